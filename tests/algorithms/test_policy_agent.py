"""The acting side of PPO."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from pipeline.algorithms import PolicyAgent, PolicySettings, build_policy
from pipeline.errors import SpaceError, WeightsCorruptError
from pipeline.experience import Layout

BOX = spaces.Box(-1, 1, (4,), np.float32)
SETTINGS = PolicySettings((16,))
ACTIONS = (
    spaces.Discrete(3, start=5),
    spaces.MultiDiscrete([2, 4]),
    spaces.Box(-0.5, 2.0, (2,), np.float32),
    spaces.Box(np.float64(-1), np.float64(1), (), np.float64),
)


def observations(count: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (count, 4)).astype(np.float32)


@pytest.mark.parametrize("space", ACTIONS)
def test_the_log_probability_is_the_network_s_own(space: Any) -> None:
    """The learner computes it in another process and in batches of another size."""
    layout = Layout(BOX, space)
    agent = PolicyAgent(layout, SETTINGS, seed=0)
    network = build_policy(layout, SETTINGS, seed=0)
    batch = observations(64)
    actions, log_prob = agent.act(batch)
    assert (actions.shape, actions.dtype) == ((64, *space.shape), space.dtype)
    assert (log_prob.shape, log_prob.dtype) == ((64,), np.float32)
    assert all(space.contains(np.asarray(action)) for action in actions)
    with torch.no_grad():
        outputs = network.outputs(torch.from_numpy(batch))
        expected = network.distribution.log_prob(outputs, torch.from_numpy(actions), None)
    np.testing.assert_array_equal(log_prob, expected.numpy())
    halves = [agent.act_columns({"observation": half}, greedy=True) for half in (batch[:1], batch[1:])]
    whole = agent.act_columns({"observation": batch}, greedy=True)
    for parts, all_of_it in zip(zip(*halves, strict=True), whole, strict=True):
        np.testing.assert_allclose(np.concatenate(parts), all_of_it, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("space", ACTIONS)
def test_a_single_observation_gives_a_single_action(space: Any) -> None:
    agent, same = PolicyAgent(Layout(BOX, space), SETTINGS, 3), PolicyAgent(Layout(BOX, space), SETTINGS, 3)
    one = observations(1)
    action, log_prob = agent.act(one[0])
    actions, log_probs = same.act(one)
    assert (np.shape(action), np.shape(log_prob)) == (space.shape, ())
    np.testing.assert_array_equal(action, actions[0])
    assert log_prob == log_probs[0]
    assert space.contains(np.asarray(action))


def test_nested_observations_may_be_single_or_batched() -> None:
    space = spaces.Tuple([spaces.Dict({"x": BOX, "y": spaces.Discrete(3)}), BOX])
    agent = PolicyAgent(Layout(space, spaces.Discrete(2)), SETTINGS, seed=0)
    x, y = observations(6), np.array([0, 1, 2, 0, 1, 2])
    batched = agent.act(({"x": x, "y": y}, x), greedy=True)
    assert batched[0].shape == (6,)
    for at in range(6):
        action, log_prob = agent.act(({"x": x[at], "y": y[at]}, x[at]), greedy=True)
        assert action == batched[0][at]
        assert log_prob == pytest.approx(batched[1][at], rel=1e-5)
    with pytest.raises(SpaceError):
        agent.act(({"x": x, "y": y[:3]}, x))


def test_draws_follow_the_generator_given_or_the_seed_and_greedy_ones_need_none() -> None:
    layout, batch = Layout(BOX, ACTIONS[0]), observations(100)
    agent, same = PolicyAgent(layout, SETTINGS, seed=7), PolicyAgent(layout, SETTINGS, seed=7)
    first, second = agent.act(batch)[0], agent.act(batch)[0]
    assert not np.array_equal(first, second)
    greedy = agent.act(batch, greedy=True)[0]
    np.testing.assert_array_equal(same.act(batch)[0], first)
    np.testing.assert_array_equal(same.act(batch, greedy=True)[0], greedy)
    given = agent.act(batch, rng=np.random.default_rng(3))[0]
    np.testing.assert_array_equal(same.act(batch)[0], second)
    np.testing.assert_array_equal(same.act(batch, rng=np.random.default_rng(3))[0], given)


def test_masks_bound_actions_and_count_in_the_log_probability() -> None:
    layout, batch = Layout(BOX, ACTIONS[0]), observations(300)
    agent = PolicyAgent(layout, SETTINGS, seed=0)
    mask = np.zeros((300, 3), np.int8)
    mask[:200, 1] = 1
    actions, log_prob = agent.act(batch, mask=mask)
    assert set(actions[:200]) == {6}
    np.testing.assert_allclose(log_prob[:200], 0, atol=1e-6)
    assert set(actions[200:]) == {5, 6, 7}
    assert agent.act(batch[0], mask=mask[0])[0] == 6
    with pytest.raises(SpaceError, match="action mask has shape"):
        agent.act(batch, mask=mask[:, :2])
    with pytest.raises(SpaceError, match="need Discrete actions"):
        PolicyAgent(Layout(BOX, ACTIONS[1]), SETTINGS, seed=0).act(batch, mask=np.ones((300, 6), bool))


def test_weights_are_exchanged_as_a_whole() -> None:
    layout, batch = Layout(BOX, ACTIONS[2]), observations(50)
    agent, other = PolicyAgent(layout, SETTINGS, seed=0), PolicyAgent(layout, SETTINGS, seed=1)
    expected = other.act(batch, greedy=True)[0]
    assert not np.array_equal(agent.act(batch, greedy=True)[0], expected)
    tensors = {name: array.copy() for name, array in other.weights().items()}
    agent.load(tensors)
    np.testing.assert_array_equal(agent.act(batch, greedy=True)[0], expected)
    assert agent.parameters_nbytes == 4 * (2 * (4 * 16 + 16) + 16 * 2 + 2 + 16 + 1 + 2)
    tensors["log_std"] = tensors["log_std"][:1]
    with pytest.raises(WeightsCorruptError, match="log_std"):
        agent.load({name: array + 1 for name, array in tensors.items()})
    np.testing.assert_array_equal(agent.act(batch, greedy=True)[0], expected)
