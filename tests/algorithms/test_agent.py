"""The acting side."""

import numpy as np
import pytest
from gymnasium import spaces

from pipeline.algorithms import Agent, NetworkSettings
from pipeline.errors import SpaceError, WeightsCorruptError
from pipeline.experience import Layout

LAYOUT = Layout(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(3, start=5))
SETTINGS = NetworkSettings((16,))


def observations(count: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (count, 4)).astype(np.float32)


def test_greedy_actions_have_the_largest_value_and_the_space_s_dtype() -> None:
    agent = Agent(LAYOUT, SETTINGS, seed=0)
    batch = observations(50)
    actions = agent.act(batch)
    assert (actions.shape, actions.dtype) == ((50,), LAYOUT.action_space.dtype)
    values = agent.values({"observation": batch})
    assert (values.shape, values.dtype) == ((50, 3), np.dtype(np.float32))
    np.testing.assert_array_equal(actions, values.argmax(axis=1) + 5)


def test_epsilon_is_the_share_of_random_actions() -> None:
    agent = Agent(LAYOUT, SETTINGS, seed=0)
    batch = observations(30_000)
    greedy = agent.act(batch)
    explored = agent.act(batch, 0.3, np.random.default_rng(1))
    # A random action is the greedy one in a third of the cases.
    assert np.mean(explored != greedy) == pytest.approx(0.2, abs=0.01)
    uniform = agent.act(batch, 1.0, np.random.default_rng(2))
    np.testing.assert_allclose(np.bincount(uniform - 5) / len(batch), 1 / 3, atol=0.02)


def test_exploration_follows_the_generator_given_or_the_seed() -> None:
    batch = observations(100)
    agent, same = Agent(LAYOUT, SETTINGS, seed=7), Agent(LAYOUT, SETTINGS, seed=7)
    np.testing.assert_array_equal(agent.act(batch, 0.5), same.act(batch, 0.5))
    first = agent.act(batch, 0.5, np.random.default_rng(3))
    np.testing.assert_array_equal(first, same.act(batch, 0.5, np.random.default_rng(3)))


def test_loaded_weights_act_and_are_copies() -> None:
    agent, other = Agent(LAYOUT, SETTINGS, seed=0), Agent(LAYOUT, SETTINGS, seed=1)
    batch = observations(200)
    expected = other.act(batch)
    assert not np.array_equal(agent.act(batch), expected)
    tensors = {name: array.copy() for name, array in other.weights().items()}
    agent.load(tensors)
    for array in tensors.values():
        array.fill(0)
    np.testing.assert_array_equal(agent.act(batch), expected)
    assert agent.parameters_nbytes == 4 * (4 * 16 + 16 + 16 * 3 + 3)


def test_read_only_weights_can_be_loaded() -> None:
    agent, other = Agent(LAYOUT, SETTINGS, seed=0), Agent(LAYOUT, SETTINGS, seed=1)
    tensors = {name: array.copy() for name, array in other.weights().items()}
    for array in tensors.values():
        array.flags.writeable = False
    agent.load(tensors)
    np.testing.assert_array_equal(agent.act(observations(20)), other.act(observations(20)))


@pytest.mark.parametrize("fault", ["name", "shape", "dtype"])
def test_foreign_weights_are_refused_as_a_whole(fault: str) -> None:
    agent = Agent(LAYOUT, SETTINGS, seed=0)
    before = {name: array.copy() for name, array in agent.weights().items()}
    tensors = {name: array + 1 for name, array in before.items()}
    last = sorted(tensors)[-1]
    if fault == "name":
        tensors["other"] = tensors.pop(last)
    elif fault == "shape":
        tensors[last] = tensors[last][:1]
    else:
        tensors[last] = tensors[last].astype(np.float64)
    with pytest.raises(WeightsCorruptError):
        agent.load(tensors)
    for name, array in agent.weights().items():
        np.testing.assert_array_equal(array, before[name])


def test_nested_observations_are_flattened() -> None:
    space = spaces.Dict({"x": spaces.Box(-1, 1, (2,), np.float32), "y": spaces.Discrete(3)})
    agent = Agent(Layout(space, spaces.Discrete(2)), SETTINGS, seed=0)
    x, y = np.zeros((4, 2), np.float32), np.array([0, 1, 2, 0])
    actions = agent.act({"x": x, "y": y})
    columns = {"observation/x": x, "observation/y": y}
    np.testing.assert_array_equal(actions, agent.act_columns(columns))
    with pytest.raises(SpaceError):
        agent.act({"x": x})


NOISY = NetworkSettings((16,), dueling=True, noisy=True, noisy_std=5.0, atoms=11)


def test_a_noisy_agent_explores_anew_with_each_call_and_is_quiet_when_greedy() -> None:
    agent, same = Agent(LAYOUT, NOISY, seed=7), Agent(LAYOUT, NOISY, seed=7)
    batch = observations(200)
    greedy = agent.values({"observation": batch}).argmax(axis=1) + 5
    first, second = agent.act(batch), agent.act(batch)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(agent.act(batch, explore=False), greedy)
    np.testing.assert_array_equal(agent.act(batch, 1.0, explore=False), greedy)
    np.testing.assert_array_equal(agent.values({"observation": batch}).argmax(axis=1) + 5, greedy)
    # The noise follows the seed, or the generator given; greedy calls draw nothing.
    np.testing.assert_array_equal(same.act(batch), first)
    np.testing.assert_array_equal(same.act(batch), second)
    given = agent.act(batch, rng=np.random.default_rng(3))
    np.testing.assert_array_equal(same.act(batch, rng=np.random.default_rng(3)), given)
    np.testing.assert_array_equal(agent.act(batch), same.act(batch))


def test_noise_is_no_part_of_the_weights() -> None:
    agent = Agent(LAYOUT, NOISY, seed=0)
    before = {name: array.copy() for name, array in agent.weights().items()}
    agent.act(observations(3))
    assert agent.weights().keys() == before.keys()
    assert all(np.array_equal(array, before[name]) for name, array in agent.weights().items())


@pytest.mark.parametrize("settings", [SETTINGS, NOISY])
def test_a_mask_bounds_greedy_and_random_actions(settings: NetworkSettings) -> None:
    agent = Agent(LAYOUT, settings, seed=0)
    batch = observations(3000)
    mask = np.zeros((3000, 3), np.int8)
    mask[:1000, [0, 2]] = 1
    mask[1000:2000, 1] = 1
    for epsilon in (0.0, 1.0):
        actions = agent.act(batch, epsilon, mask=mask) - 5
        assert set(actions[:1000]) <= {0, 2}
        assert set(actions[1000:2000]) == {1}
    # Random ones are uniform among the allowed; where nothing is, everything is.
    assert np.mean(actions[:1000] == 0) == pytest.approx(0.5, abs=0.06)
    assert set(actions[2000:]) == {0, 1, 2}
    values = np.where(mask != 0, agent.values({"observation": batch}), -np.inf)
    greedy = agent.act(batch, explore=False, mask=mask) - 5
    np.testing.assert_array_equal(greedy[:2000], values[:2000].argmax(axis=1))
    with pytest.raises(SpaceError, match="action mask"):
        agent.act(batch, mask=mask[:, :2])
