"""Observation statistics: the same as over all rows at once, and what networks do with them."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from pipeline.algorithms import (
    DQN,
    PPO,
    Agent,
    DQNSettings,
    NetworkSettings,
    ObservationStatistics,
    PolicyAgent,
    PolicySettings,
    PPOSettings,
    build_network,
)
from pipeline.errors import CheckpointError
from pipeline.experience import Layout

SPACE = spaces.Dict(
    {
        "pose": spaces.Box(-np.inf, np.inf, (2, 3), np.float64),
        "speed": spaces.Box(-1, 1, (), np.float32),
        "image": spaces.Box(0, 255, (2, 2), np.uint8),
        "kind": spaces.Discrete(3),
    }
)
LAYOUT = Layout(SPACE, spaces.Discrete(2))


def rows(count: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "observation/pose": rng.normal(1e4, 2.0, (count, 2, 3)),
        "observation/speed": rng.normal(-3.0, 0.5, count).astype(np.float32),
        "observation/image": rng.integers(0, 256, (count, 2, 2)).astype(np.uint8),
        "observation/kind": rng.integers(0, 3, count),
    }


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6))
def test_portions_give_the_moments_of_all_rows(portions: list[int]) -> None:
    every = rows(sum(portions))
    statistics = ObservationStatistics(LAYOUT)
    first = 0
    for count in portions:
        statistics.update({name: column[first : first + count] for name, column in every.items()})
        first += count
    assert statistics.columns == ("observation/pose", "observation/speed")
    assert statistics.count == sum(portions)
    for name in statistics.columns:
        mean, std = statistics.moments(name)
        assert (mean.dtype, std.dtype) == (np.float32, np.float32)
        column = every[name].astype(np.float64)
        if sum(portions):
            np.testing.assert_allclose(mean, column.mean(0), rtol=1e-6)
            np.testing.assert_allclose(std, np.sqrt(column.var(0) + 1e-8), rtol=1e-5)
        else:
            assert (mean == 0).all() and (std == 1).all()


def test_a_state_goes_on_to_the_bit() -> None:
    statistics, loaded = ObservationStatistics(LAYOUT), ObservationStatistics(LAYOUT)
    statistics.update(rows(10))
    loaded.load_state(statistics.state())
    for one in (statistics, loaded):
        one.update(rows(7, seed=1))
    expected, found = statistics.state(), loaded.state()
    assert found.keys() == expected.keys()
    assert all(np.array_equal(array, found[name]) for name, array in expected.items())
    other = ObservationStatistics(Layout(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2)))
    with pytest.raises(CheckpointError, match="normalisation"):
        other.load_state(expected)
    assert other.count == 0


def test_numbers_beyond_float32_do_not_spoil_the_statistics() -> None:
    layout = Layout(spaces.Box(-np.inf, np.inf, (1,), np.float64), spaces.Discrete(2))
    statistics = ObservationStatistics(layout)
    statistics.update({"observation": np.array([[1e300], [-1e300], [1.0]])})
    for _ in range(2):
        mean, std = statistics.moments("observation")
        assert np.isfinite(mean).all() and np.isfinite(std).all()
        statistics.update({"observation": np.zeros((3, 1))})


def test_nothing_to_normalise_is_no_trouble() -> None:
    statistics = ObservationStatistics(Layout(spaces.Discrete(3), spaces.Discrete(2)))
    statistics.update({"observation": np.arange(3)})
    assert (statistics.columns, statistics.state().keys()) == ((), {"count"})


def test_float_columns_enter_networks_normalised_and_clipped() -> None:
    network = build_network(LAYOUT, NetworkSettings((), normalise=True), seed=0)
    statistics = ObservationStatistics(LAYOUT)
    statistics.update(rows(50))
    features: list[torch.Tensor] = []
    network.body.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0]))
    batch = rows(20, seed=1)
    batch["observation/speed"][0] = 1e9
    network.set_normalisation(*statistics.tensors(torch.device("cpu")))
    network({name: torch.from_numpy(array) for name, array in batch.items()})
    first = 0
    for column in LAYOUT.observation:
        width = 3 if column.name == "observation/kind" else int(np.prod(column.shape))
        found = features[0][:, first : first + width].numpy()
        first += width
        if column.name in statistics.columns:
            mean, std = statistics.moments(column.name)
            expected = np.clip((batch[column.name] - mean) / std, -10, 10).reshape(20, width)
            np.testing.assert_allclose(found, expected, atol=2e-3)
        elif column.name == "observation/image":
            np.testing.assert_allclose(found, batch[column.name].reshape(20, 4) / 255, rtol=1e-6)
        else:
            assert (found.sum(1) == 1).all()


def test_before_any_statistics_and_without_the_setting_nothing_changes() -> None:
    plain = build_network(LAYOUT, NetworkSettings((4,)), seed=0)
    normalising = build_network(LAYOUT, NetworkSettings((4,), normalise=True), seed=0)
    assert not [name for name in plain.state_dict() if "normaliser" in name]
    batch = rows(5)
    batch["observation/pose"] -= 1e4
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
    assert torch.equal(plain(tensors), normalising(tensors))


def test_statistics_are_part_of_the_weights_that_actors_get() -> None:
    statistics = ObservationStatistics(LAYOUT)
    statistics.update(rows(50))
    batch = rows(30, seed=1)
    ppo = PPO(LAYOUT, PPOSettings(network=PolicySettings((8,), normalise=True)), seed=0)
    dqn = DQN(LAYOUT, DQNSettings(network=NetworkSettings((8,), normalise=True)), seed=0)
    for learner in (ppo, dqn):
        before = learner.weights()
        learner.set_normalisation(statistics)
        after = learner.weights()
        changed = {name for name in after if not np.array_equal(after[name], before[name])}
        assert changed == {name for name in after if name.startswith("normalisers.")} and changed
    state = dqn.state()
    for name in changed:
        assert np.array_equal(state[f"online/{name}"], state[f"target/{name}"])
    agent, policy = (
        Agent(LAYOUT, NetworkSettings((8,), normalise=True), 1),
        PolicyAgent(LAYOUT, PolicySettings((8,), normalise=True), 1),
    )
    agent.load(dqn.weights())
    policy.load(ppo.weights())
    expected = build_network(LAYOUT, NetworkSettings((8,), normalise=True), seed=0)
    expected.set_normalisation(*statistics.tensors(torch.device("cpu")))
    with torch.no_grad():
        values = expected({name: torch.from_numpy(array) for name, array in batch.items()})
    assert np.array_equal(agent.values(batch), values.numpy())
    assert np.isfinite(policy.act_columns(batch)[1]).all()
