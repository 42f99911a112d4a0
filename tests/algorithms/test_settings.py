"""Settings and schedules, and that reading them does not import torch."""

import subprocess
import sys
from typing import Any

import pytest

import pipeline.algorithms
from pipeline.algorithms import DQNSettings, LinearSchedule, NetworkSettings
from pipeline.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gamma", 1.5),
        ("gamma", float("nan")),
        ("learning_rate", 0.0),
        ("adam_epsilon", -1e-8),
        ("batch_size", 0),
        ("target_interval", 0),
        ("target_rate", 0.0),
        ("gradient_clip", -1.0),
        ("huber_delta", float("inf")),
    ],
)
def test_values_out_of_range_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"algorithm.{name} is {value}"):
        DQNSettings(**{name: value})  # type: ignore[arg-type]


def test_layers_need_units_and_lists_become_tuples() -> None:
    assert NetworkSettings([8, 4]).hidden == (8, 4)  # type: ignore[arg-type]
    assert NetworkSettings(()).hidden == ()
    with pytest.raises(ConfigError, match=r"network.hidden is \(8, 0\)"):
        NetworkSettings((8, 0))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"image": "resnet"}, "algorithm.network is 'resnet'.*mlp, nature, impala"),
        ({"noisy_std": -1.0}, "algorithm.noisy_std is -1"),
        ({"noisy_std": float("nan")}, "algorithm.noisy_std is nan"),
        ({"atoms": 0}, "algorithm.categorical.atoms is 0"),
        ({"atoms": 5, "v_min": 1.0, "v_max": 1.0}, "v_min is 1.0 and v_max 1.0"),
        ({"atoms": 5, "v_max": float("inf")}, "v_max inf"),
    ],
)
def test_networks_that_cannot_be_built_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        NetworkSettings(**changes)


def test_schedule_is_a_slope_between_two_plateaus() -> None:
    schedule = LinearSchedule(1.0, 0.2, 4)
    assert [schedule(step) for step in (-1, 0, 2, 4, 9)] == pytest.approx([1, 1, 0.6, 0.2, 0.2])
    assert LinearSchedule(1.0, 0.2, 0)(0) == 0.2
    with pytest.raises(ConfigError, match="steps is -1"):
        LinearSchedule(1.0, 0.2, -1)


def test_settings_come_without_torch() -> None:
    program = (
        "import sys; from pipeline.algorithms import DQNSettings, LinearSchedule; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_every_public_name_is_there() -> None:
    for name in pipeline.algorithms.__all__:
        assert getattr(pipeline.algorithms, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        pipeline.algorithms.nonsense  # noqa: B018
