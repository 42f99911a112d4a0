"""DQN's learning side: it learns a known problem, repeats itself to the bit, and resumes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from pipeline.algorithms import DQN, Agent, DQNSettings, NetworkSettings
from pipeline.errors import CheckpointError, ConfigError, LearnerError, SpaceError
from pipeline.experience import Layout

LAYOUT = Layout(spaces.Discrete(3), spaces.Discrete(2, start=1))
GAMMA = 0.9


@dataclass
class Batch:
    observation: dict[str, Any]
    columns: dict[str, Any]
    reward: Any
    discount: Any
    next_observation: dict[str, Any]
    weights: Any = None


def chain(rng: np.random.Generator, size: int = 64) -> Batch:
    """States 0, 1, 2 in a row: action 2 goes right, from state 2 to the end with reward 1;
    action 1 ends the episode with reward 0.5."""
    state = rng.integers(0, 3, size)
    action = rng.integers(1, 3, size)
    right = action == 2
    reward = np.where(right, (state == 2) * 1.0, 0.5).astype(np.float32)
    discount = np.where(right & (state < 2), GAMMA, 0.0).astype(np.float32)
    return Batch(
        {"observation": state},
        {"action": action},
        reward,
        discount,
        {"observation": np.minimum(state + 1, 2)},
    )


def settings(**changes: Any) -> DQNSettings:
    values: dict[str, Any] = {
        "network": NetworkSettings((16,)),
        "gamma": GAMMA,
        "learning_rate": 0.01,
        "target_interval": 10,
        "target_rate": 1.0,
    }
    return DQNSettings(**(values | changes))


def q_table(dqn: DQN) -> np.ndarray:
    agent = Agent(LAYOUT, NetworkSettings((16,)), seed=0)
    agent.load(dqn.weights())
    return agent.values({"observation": np.arange(3)})


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("changes", [{}, {"double": False}, {"huber_delta": 0.0}, {"gradient_clip": 0.0}])
def test_learns_the_values_of_a_chain(changes: dict[str, Any]) -> None:
    dqn = DQN(LAYOUT, settings(**changes), seed=0)
    rng = np.random.default_rng(0)
    for _ in range(600):
        assert dqn.update(chain(rng)) == {}
    expected = [[0.5, GAMMA**2], [0.5, GAMMA], [0.5, 1.0]]
    np.testing.assert_allclose(q_table(dqn), expected, atol=0.05)


CATEGORICAL = {"atoms": 31, "v_min": -0.5, "v_max": 1.5}
RAINBOW = {"dueling": True, "noisy": True, **CATEGORICAL}


def extended(network: dict[str, Any], **changes: Any) -> DQNSettings:
    return settings(network=NetworkSettings((16,), **network), **changes)


@pytest.mark.parametrize(
    ("network", "changes"),
    [
        ({"dueling": True}, {}),
        ({"noisy": True}, {}),
        (CATEGORICAL, {}),
        (CATEGORICAL, {"double": False}),
        (RAINBOW, {"prioritised": True}),
    ],
)
def test_each_extension_learns_the_values_of_a_chain(network: dict[str, Any], changes: dict[str, Any]) -> None:
    chosen = extended(network, **changes)
    dqn = DQN(LAYOUT, chosen, seed=0)
    rng = np.random.default_rng(0)
    for _ in range(400):
        batch = chain(rng)
        batch.weights = np.ones(64, np.float32)
        dqn.update(batch)
    expected = [[0.5, GAMMA**2], [0.5, GAMMA], [0.5, 1.0]]
    agent = Agent(LAYOUT, chosen.network, seed=0)
    agent.load(dqn.weights())
    np.testing.assert_allclose(agent.values({"observation": np.arange(3)}), expected, atol=0.1)


def test_importance_weights_scale_what_is_learned() -> None:
    """Transitions of weight 0 change nothing; without priorities weights are not looked at."""
    batch = chain(np.random.default_rng(0))
    batch.weights = np.zeros(64, np.float32)
    for network in ({}, CATEGORICAL):
        dqn = DQN(LAYOUT, extended(network, prioritised=True), seed=0)
        assert dqn.update(batch, metrics=True)["gradient_norm"] == 0
        half = np.where(np.arange(64) < 32, 1.0, 0.0).astype(np.float32)
        batch.weights = half
        norm = DQN(LAYOUT, extended(network, prioritised=True), seed=0).update(batch, metrics=True)["gradient_norm"]
        part = Batch(
            {"observation": batch.observation["observation"][:32]},
            {"action": batch.columns["action"][:32]},
            batch.reward[:32],
            batch.discount[:32],
            {"observation": batch.next_observation["observation"][:32]},
        )
        expected = DQN(LAYOUT, extended(network), seed=0).update(part, metrics=True)["gradient_norm"]
        assert norm == pytest.approx(expected / 2, rel=1e-4)
        batch.weights = np.zeros(64, np.float32)


def test_priorities_are_absolute_errors_or_divergences() -> None:
    batch = chain(np.random.default_rng(0))
    batch.weights = np.ones(64, np.float32)
    plain = DQN(LAYOUT, settings(), seed=0)
    plain.update(batch)
    assert plain.priorities is None
    for network in ({}, CATEGORICAL):
        dqn = DQN(LAYOUT, extended(network, prioritised=True), seed=0)
        assert dqn.priorities is None
        before = q_table(dqn) if not network else None
        metrics = dqn.update(batch, metrics=True)
        priorities = dqn.priorities
        assert priorities is not None
        assert (priorities.shape, priorities.dtype, bool((priorities >= 0).all())) == ((64,), np.float32, True)
        assert priorities.mean() == pytest.approx(metrics["td_error"], rel=1e-5)
        if before is not None:
            state, action = batch.observation["observation"], batch.columns["action"] - 1
            following = before[batch.next_observation["observation"]].max(1)
            errors = batch.reward + batch.discount * following - before[state, action]
            np.testing.assert_allclose(priorities, np.abs(errors), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("network", [{}, CATEGORICAL])
@pytest.mark.parametrize("double", [True, False])
def test_the_mask_bounds_the_next_action(network: dict[str, Any], double: bool) -> None:
    """Where action 2 is never allowed next, going right is worth what action 1 is worth there."""
    chosen = extended(network, double=double)
    dqn = DQN(LAYOUT, chosen, seed=0)
    rng = np.random.default_rng(0)
    for _ in range(400):
        batch = chain(rng)
        batch.columns["action_mask"] = np.tile([True, False], (64, 1))
        dqn.update(batch)
    agent = Agent(LAYOUT, chosen.network, seed=0)
    agent.load(dqn.weights())
    expected = [[0.5, GAMMA * 0.5], [0.5, GAMMA * 0.5], [0.5, 1.0]]
    np.testing.assert_allclose(agent.values({"observation": np.arange(3)}), expected, atol=0.1)


def test_a_mask_that_allows_all_changes_nothing() -> None:
    weights: list[dict[str, Any]] = []
    for masks in (False, True):
        dqn = DQN(LAYOUT, settings(), seed=0)
        rng = np.random.default_rng(0)
        for _ in range(5):
            batch = chain(rng)
            if masks:
                batch.columns["action_mask"] = np.ones((64, 2), bool)
            dqn.update(batch)
        weights.append(dqn.weights())
    assert all(np.array_equal(array, weights[1][name]) for name, array in weights[0].items())


def test_noise_leaves_the_global_generator_alone() -> None:
    dqn = DQN(LAYOUT, extended(RAINBOW), seed=0)
    before = torch.get_rng_state()
    dqn.update(chain(np.random.default_rng(0)))
    assert torch.equal(torch.get_rng_state(), before)


def test_metrics_on_request() -> None:
    dqn = DQN(LAYOUT, settings(), seed=0)
    metrics = dqn.update(chain(np.random.default_rng(0)), metrics=True)
    assert metrics.keys() == {"loss", "td_error", "q", "gradient_norm"}
    assert all(np.isfinite(value) for value in metrics.values())
    assert metrics["gradient_norm"] > 0


def test_the_target_network_follows_at_the_interval() -> None:
    dqn = DQN(LAYOUT, settings(target_interval=3), seed=0)
    rng = np.random.default_rng(0)
    for update in range(1, 7):
        dqn.update(chain(rng))
        state = dqn.state()
        same = all(
            np.array_equal(array, state["target/" + name.removeprefix("online/")])
            for name, array in state.items()
            if name.startswith("online/")
        )
        assert same == (update % 3 == 0)
        assert dqn.updates == update


def test_a_slow_target_network_goes_part_of_the_way() -> None:
    dqn = DQN(LAYOUT, settings(target_interval=1, target_rate=0.25), seed=0)
    before = dqn.state()
    dqn.update(chain(np.random.default_rng(0)))
    after = dqn.state()
    for name in dqn.weights():
        expected = 0.75 * before[f"target/{name}"] + 0.25 * after[f"online/{name}"]
        np.testing.assert_allclose(after[f"target/{name}"], expected, rtol=1e-5, atol=1e-7)


def test_gradients_are_clipped_by_their_global_norm() -> None:
    """Adam's first moment after one update is a tenth of the gradient that it was given."""
    batch = chain(np.random.default_rng(0))
    free, clipped = (DQN(LAYOUT, settings(gradient_clip=clip), seed=0) for clip in (0.0, 0.125))
    norm = free.update(batch, metrics=True)["gradient_norm"]
    assert clipped.update(batch, metrics=True)["gradient_norm"] == norm > 0.125
    for dqn, expected in ((free, norm), (clipped, 0.125)):
        found = 10 * np.linalg.norm(dqn.state()["adam/exp_avg"])
        assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("network", [{}, RAINBOW])
def test_same_seed_same_weights_to_the_bit(network: dict[str, Any]) -> None:
    results: list[dict[str, Any]] = []
    for seed in (4, 4, 5):
        dqn = DQN(LAYOUT, extended(network), seed)
        rng = np.random.default_rng(1)
        for _ in range(25):
            dqn.update(chain(rng))
        results.append(dqn.weights())
    assert all(np.array_equal(array, results[1][name]) for name, array in results[0].items())
    assert not all(np.array_equal(array, results[2][name]) for name, array in results[0].items())


@pytest.mark.parametrize("before", [0, 17])
@pytest.mark.parametrize("network", [{}, RAINBOW])
def test_resumes_to_the_bit(before: int, network: dict[str, Any]) -> None:
    dqn = DQN(LAYOUT, extended(network), seed=0)
    rng = np.random.default_rng(1)
    for _ in range(before):
        dqn.update(chain(rng))
    resumed = DQN(LAYOUT, extended(network), seed=99)
    resumed.update(chain(np.random.default_rng(5)))
    resumed.load_state({name: array.copy() for name, array in dqn.state().items()})
    assert resumed.updates == before
    batches = [chain(rng) for _ in range(15)]
    for batch in batches:
        dqn.update(batch)
        resumed.update(batch)
    expected = dqn.state()
    found = resumed.state()
    assert found.keys() == expected.keys()
    assert ("noise" in expected) == bool(network)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_a_damaged_noise_generator_is_refused_as_a_whole() -> None:
    dqn = DQN(LAYOUT, extended(RAINBOW), seed=0)
    before = dqn.state()
    other = DQN(LAYOUT, extended(RAINBOW), seed=1).state()
    other["noise"] = np.full_like(other["noise"], 255)
    with pytest.raises(CheckpointError, match="generator is damaged"):
        dqn.load_state(other)
    with pytest.raises(CheckpointError, match="noise"):
        DQN(LAYOUT, extended(CATEGORICAL | {"dueling": True}), seed=0).load_state(before)
    for name, array in dqn.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_published_weights_and_states_are_copies() -> None:
    dqn = DQN(LAYOUT, settings(), seed=0)
    weights, state = dqn.weights(), dqn.state()
    kept = {name: array.copy() for name, array in weights.items()}
    dqn.update(chain(np.random.default_rng(0)))
    for name, array in kept.items():
        np.testing.assert_array_equal(weights[name], array)
        np.testing.assert_array_equal(state[f"online/{name}"], array)
        assert not np.array_equal(dqn.weights()[name], array)


def test_a_checkpoint_of_another_network_is_refused_as_a_whole() -> None:
    dqn = DQN(LAYOUT, settings(), seed=0)
    before = dqn.weights()
    other = DQN(LAYOUT, settings(network=NetworkSettings((8,))), seed=1)
    with pytest.raises(CheckpointError, match="another network"):
        dqn.load_state(other.state())
    incomplete = DQN(LAYOUT, settings(), seed=1).state()
    del incomplete["updates"]
    with pytest.raises(CheckpointError, match="updates"):
        dqn.load_state(incomplete)
    for name, array in dqn.weights().items():
        np.testing.assert_array_equal(array, before[name])


def test_the_batch_is_not_written_to() -> None:
    batch = chain(np.random.default_rng(0))
    arrays = [*batch.observation.values(), *batch.columns.values(), batch.reward, batch.discount]
    before = [array.copy() for array in arrays]
    DQN(LAYOUT, settings(), seed=0).update(batch)
    for array, kept in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, kept)


def test_a_batch_that_does_not_fit_is_refused() -> None:
    batch = chain(np.random.default_rng(0))
    batch.reward = batch.reward[:, None]
    with pytest.raises(LearnerError, match="r_t"):
        DQN(LAYOUT, settings(), seed=0).update(batch)


def test_continuous_actions_are_refused() -> None:
    box = spaces.Box(-1, 1, (2,), np.float32)
    with pytest.raises(SpaceError, match="Discrete"):
        DQN(Layout(box, box), settings(), seed=0)


def test_settings_that_keep_the_network_may_change_and_the_learning_rate_may_be_told() -> None:
    batch = chain(np.random.default_rng(0))
    changed, told = DQN(LAYOUT, settings(learning_rate=0.5), seed=0), DQN(LAYOUT, settings(), seed=0)
    changed.configure(settings(learning_rate=0.003))
    changed.update(batch)
    told.update(batch, learning_rate=0.003)
    assert all(np.array_equal(array, told.weights()[name]) for name, array in changed.weights().items())
    before = told.weights()
    told.update(batch, learning_rate=0.0)
    assert all(np.array_equal(array, before[name]) for name, array in told.weights().items())
    for other in (settings(network=NetworkSettings((8,))), settings(prioritised=True)):
        with pytest.raises(ConfigError, match="dqn"):
            told.configure(other)
