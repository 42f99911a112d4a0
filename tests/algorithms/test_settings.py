"""Settings and schedules, and that reading them does not import torch."""

import subprocess
import sys
from typing import Any

import pytest

import pipeline.algorithms
from pipeline.algorithms import DQNSettings, LinearSchedule, NetworkSettings, PolicySettings, PPOSettings
from pipeline.algorithms.spec import network_spec, policy_spec, ppo_settings
from pipeline.config import AlgorithmConfig
from pipeline.config.algorithm import PPOConfig
from pipeline.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "says", "value"),
    [
        ("gamma", "gamma", 1.5),
        ("gamma", "gamma", float("nan")),
        ("learning_rate", "lr", 0.0),
        ("adam_epsilon", "adam_eps", -1e-8),
        ("batch_size", "batch_size", 0),
        ("target_interval", "target_interval", 0),
        ("target_rate", "target_rate", 0.0),
        ("gradient_clip", "grad_clip", -1.0),
        ("huber_delta", "huber_delta", float("inf")),
    ],
)
def test_values_out_of_range_are_refused_by_the_setting_s_name(name: str, says: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"algorithm.{says} is {value}"):
        DQNSettings(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gamma", "gamma"),
        ("gae_lambda", "ppo.gae_lambda"),
        ("learning_rate", "lr"),
        ("adam_epsilon", "adam_eps"),
        ("epochs", "ppo.epochs"),
        ("minibatch_size", "ppo.minibatch_size"),
        ("clip", "ppo.clip"),
        ("value_clip", "ppo.value_clip"),
        ("value_coefficient", "ppo.value_coefficient"),
        ("entropy_coefficient", "ppo.entropy_coefficient"),
        ("target_kl", "ppo.target_kl"),
        ("gradient_clip", "grad_clip"),
    ],
)
@pytest.mark.parametrize("value", [-1, float("nan")])
def test_values_of_ppo_out_of_range_are_refused_by_the_setting_s_name(name: str, says: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"algorithm.{says} is {value}"):
        PPOSettings(**{name: value})  # type: ignore[arg-type]


def test_every_setting_of_ppo_comes_from_the_configuration() -> None:
    config = AlgorithmConfig(hidden=[5, 4], activation="tanh", network="nature", normalise_observations=True)
    config.lr, config.adam_eps, config.grad_clip, config.gamma = 0.1, 0.2, 0.3, 0.4
    config.ppo = PPOConfig(
        epochs=7,
        minibatch_size=8,
        gae_lambda=0.9,
        clip=0.11,
        value_clip=0.12,
        value_coefficient=0.13,
        entropy_coefficient=0.14,
        normalise_advantages=False,
        target_kl=0.15,
    )
    found = ppo_settings(config)
    assert found == PPOSettings(
        PolicySettings((5, 4), "nature", "tanh", True),
        0.4,
        0.9,
        0.1,
        0.2,
        7,
        8,
        0.11,
        0.12,
        0.13,
        0.14,
        False,
        0.15,
        0.3,
    )
    assert found.network == policy_spec(config)
    assert (network_spec(config).activation, network_spec(config).normalise) == ("tanh", True)


def test_layers_need_units_and_lists_become_tuples() -> None:
    assert NetworkSettings([8, 4]).hidden == (8, 4)  # type: ignore[arg-type]
    assert NetworkSettings(()).hidden == ()
    with pytest.raises(ConfigError, match=r"network.hidden is \(8, 0\)"):
        NetworkSettings((8, 0))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"activation": "gelu"}, "algorithm.activation is 'gelu'.*relu, tanh"),
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
    if changes.keys() <= {"image", "activation"}:
        with pytest.raises(ConfigError, match=says):
            PolicySettings(**changes)


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
