"""PPO's learning side: it learns known problems, repeats itself to the bit, and resumes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from pipeline.algorithms import PPO, PolicyAgent, PolicySettings, PPOSettings, Rollout, build_policy
from pipeline.errors import CheckpointError, ConfigError, LearnerError
from pipeline.experience import Column, Layout

LOG_PROB = Column("log_prob", np.dtype(np.float32), ())
LAYOUT = Layout(spaces.Discrete(3), spaces.Discrete(2, start=1), (LOG_PROB,))
GAMMA = 0.9


def settings(**changes: Any) -> PPOSettings:
    values: dict[str, Any] = {
        "network": PolicySettings((16,)),
        "gamma": GAMMA,
        "learning_rate": 0.01,
        "minibatch_size": 32,
    }
    return PPOSettings(**(values | changes))


def chain(agent: PolicyAgent, rng: np.random.Generator, episodes: int = 40) -> Rollout:
    """States 0, 1, 2 in a row: action 2 goes right, from state 2 to the end with reward 1; action 1 ends the episode
    with reward 0.5."""
    drawn = [agent.act(np.full(episodes, state), rng=rng) for state in range(3)]
    actions, logs = (np.stack(column, axis=1) for column in zip(*drawn, strict=True))
    length = np.where(actions[:, 0] == 1, 1, np.where(actions[:, 1] == 1, 2, 3))
    made = np.arange(3) < length[:, None]
    rewards = np.where(actions == 1, 0.5, np.arange(3) == 2).astype(np.float32)
    observations = np.concatenate([[*range(steps), min(steps, 2)] for steps in length])
    return Rollout(
        {"observation": observations},
        {"action": actions[made], "log_prob": logs[made]},
        rewards[made],
        length,
        np.ones(episodes, np.uint8),
        np.zeros(episodes, bool),
    )


def agent_of(ppo: PPO, chosen: PPOSettings, layout: Layout = LAYOUT) -> PolicyAgent:
    agent = PolicyAgent(layout, chosen.network, seed=0)
    agent.load(ppo.weights())
    return agent


def rollouts(count: int, seed: int = 1) -> list[Rollout]:
    """Of a policy that stays as it is: the same for every learner that is to be compared."""
    agent, rng = PolicyAgent(LAYOUT, PolicySettings((16,)), seed=0), np.random.default_rng(seed)
    return [chain(agent, rng) for _ in range(count)]


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(array, right[name]) for name, array in left.items())


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "changes", [{}, {"value_clip": 0.2, "entropy_coefficient": 0.01, "normalise_advantages": False}]
)
def test_learns_to_wait_for_the_larger_reward(changes: dict[str, Any]) -> None:
    chosen = settings(**changes)
    ppo, rng = PPO(LAYOUT, chosen, seed=0), np.random.default_rng(0)
    for _ in range(25):
        figures = ppo.update(chain(agent_of(ppo, chosen), rng))
    network = build_policy(LAYOUT, chosen.network)
    network.load_state_dict({name: torch.from_numpy(array) for name, array in ppo.weights().items()})
    outputs, values = network(torch.arange(3))
    assert outputs.argmax(1).tolist() == [1, 1, 1]
    np.testing.assert_allclose(values.detach().numpy(), [GAMMA**2, GAMMA, 1], atol=0.1)
    assert figures["explained_variance"] > 0.5
    assert ppo.updates == 25


def test_learns_a_continuous_action() -> None:
    """The reward is the negative distance from 0.5 in a space from -1 to 3; one step an episode."""
    layout = Layout(spaces.Box(-1, 1, (1,), np.float32), spaces.Box(-1, 3, (1,), np.float32), (LOG_PROB,))
    chosen = settings(epochs=8)
    ppo, rng = PPO(layout, chosen, seed=0), np.random.default_rng(0)
    for _ in range(40):
        agent = agent_of(ppo, chosen, layout)
        action, log_prob = agent.act(np.zeros((64, 1), np.float32), rng=rng)
        ppo.update(
            Rollout(
                {"observation": np.zeros((128, 1), np.float32)},
                {"action": action, "log_prob": log_prob},
                -np.abs(action[:, 0] - 0.5),
                np.ones(64, np.int64),
                np.ones(64, np.uint8),
                np.zeros(64, bool),
            )
        )
    action, _ = agent_of(ppo, chosen, layout).act(np.zeros(1, np.float32), greedy=True)
    assert action[0] == pytest.approx(0.5, abs=0.15)
    assert ppo.weights()["log_std"][0] < -1


def test_what_was_not_allowed_is_not_learned_about() -> None:
    """Where one action is allowed only, there is nothing to choose, so the policy's weights stay."""
    layout = Layout(
        LAYOUT.observation_space, LAYOUT.action_space, (LOG_PROB, Column("acted_mask", np.dtype(bool), (2,)))
    )
    chosen = settings(entropy_coefficient=0.1)
    ppo = PPO(layout, chosen, seed=0)
    agent = agent_of(ppo, chosen, layout)
    before = ppo.weights()
    mask = np.tile([False, True], (10, 1))
    action, log_prob = agent.act(np.zeros(10, np.int64), mask=mask)
    rollout = Rollout(
        {"observation": np.zeros(20, np.int64)},
        {"action": action, "log_prob": log_prob, "acted_mask": mask},
        np.arange(10, dtype=np.float32),
        np.ones(10, np.int64),
        np.ones(10, np.uint8),
        np.zeros(10, bool),
    )
    figures = ppo.update(rollout)
    assert (figures["entropy"], figures["kl"]) == (0, 0)
    for name, array in ppo.weights().items():
        assert np.array_equal(array, before[name]) == name.startswith("policy.")


def test_a_gradient_step_is_the_one_of_the_definition() -> None:
    """One minibatch, one epoch: Adam's first moment is a tenth of the gradient of the loss written out."""
    chosen = settings(epochs=1, minibatch_size=1000, gradient_clip=0.0, entropy_coefficient=0.03, value_coefficient=0.7)
    ppo, (rollout,) = PPO(LAYOUT, chosen, seed=0), rollouts(1)
    network = build_policy(LAYOUT, chosen.network, seed=0)
    with torch.no_grad():
        values = network.values(torch.from_numpy(rollout.observations["observation"])).numpy()
    advantages, step, row = np.zeros(rollout.steps), rollout.steps, len(values)
    for length in reversed(rollout.length):
        row -= 1
        following, bootstrap = 0.0, 0.0
        for _ in range(length):
            step, row = step - 1, row - 1
            following = rollout.reward[step] + GAMMA * bootstrap - values[row] + GAMMA * 0.95 * following
            advantages[step], bootstrap = following, values[row]
    acted = torch.from_numpy(rollout.observations["observation"][rollout.rows])
    returns = torch.tensor(advantages + values[rollout.rows], dtype=torch.float32)
    weights = torch.tensor((advantages - advantages.mean()) / advantages.std(ddof=1), dtype=torch.float32)
    outputs, found = network(acted)
    logs = outputs.log_softmax(1)
    taken = logs[torch.arange(rollout.steps), torch.from_numpy(rollout.columns["action"]) - 1]
    ratio = (taken - torch.from_numpy(rollout.columns["log_prob"])).exp()
    loss = (
        -(ratio * weights).mean() + 0.7 * (found - returns).square().mean() + 0.03 * (logs.exp() * logs).sum(1).mean()
    )
    loss.backward()
    expected = torch.cat(
        [parameter.grad.reshape(-1) for parameter in network.parameters() if parameter.grad is not None]
    )
    figures = ppo.update(rollout)
    np.testing.assert_allclose(10 * ppo.state()["adam/exp_avg"], expected.numpy(), rtol=1e-3, atol=1e-6)
    assert figures["gradient_norm"] == pytest.approx(float(expected.norm()), rel=1e-4)
    assert figures["minibatches"] == 1
    assert figures["clip_fraction"] == 0
    # Clipping scales the same gradient.
    clipped = PPO(LAYOUT, settings(epochs=1, minibatch_size=1000, gradient_clip=0.01), seed=0)
    clipped.update(rollout)
    assert 10 * np.linalg.norm(clipped.state()["adam/exp_avg"]) == pytest.approx(0.01, rel=1e-3)


def test_a_rollout_is_divided_evenly_and_breathes_between() -> None:
    breaths: list[None] = []
    ppo, (rollout,) = PPO(LAYOUT, settings(minibatch_size=rollouts(1)[0].steps // 3, epochs=2), seed=0), rollouts(1)
    figures = ppo.update(rollout, breathe=lambda: breaths.append(None))
    assert figures["minibatches"] == 6
    # Once more for the values.
    assert len(breaths) == 7
    large = PPO(LAYOUT, settings(minibatch_size=10_000, epochs=2), seed=0)
    assert large.update(rollout)["minibatches"] == 2


def test_an_update_ends_when_the_policy_has_moved_too_far() -> None:
    (rollout,) = rollouts(1)
    free = PPO(LAYOUT, settings(epochs=30), seed=0).update(rollout)
    bounded = PPO(LAYOUT, settings(epochs=30, target_kl=0.002), seed=0).update(rollout)
    assert free["kl"] > 0.002
    assert 1 < bounded["minibatches"] < free["minibatches"]
    assert bounded["kl"] < 0.003
    # The first minibatch finds a policy that has acted by itself, so it always makes a step.
    assert PPO(LAYOUT, settings(target_kl=1e-7), seed=0).update(rollout)["minibatches"] >= 1


def test_learning_rate_and_clip_may_be_told_each_time() -> None:
    (rollout,) = rollouts(1)
    ppo = PPO(LAYOUT, settings(), seed=0)
    before = ppo.weights()
    ppo.update(rollout, learning_rate=0.0)
    assert same(before, ppo.weights())
    told, settled = PPO(LAYOUT, settings(), seed=0), PPO(LAYOUT, settings(learning_rate=0.003, clip=0.05), seed=0)
    told.update(rollout, learning_rate=0.003, clip=0.05)
    settled.update(rollout)
    assert same(told.weights(), settled.weights())
    configured = PPO(LAYOUT, settings(), seed=0)
    configured.configure(settings(learning_rate=0.003, clip=0.05))
    configured.update(rollout)
    assert same(told.weights(), configured.weights())
    with pytest.raises(ConfigError, match="another network"):
        configured.configure(settings(network=PolicySettings((16, 16))))


def test_same_seed_same_weights_to_the_bit() -> None:
    results: list[dict[str, Any]] = []
    for seed in (4, 4, 5):
        ppo = PPO(LAYOUT, settings(), seed)
        for rollout in rollouts(3):
            ppo.update(rollout)
        results.append(ppo.state())
    assert same(results[0], results[1])
    assert not same(results[0], results[2])


def test_orders_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    ppo, (rollout,) = PPO(LAYOUT, settings(), seed=0), rollouts(1)
    ppo.update(rollout)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("before", [0, 3])
def test_resumes_to_the_bit(before: int) -> None:
    ppo, resumed = PPO(LAYOUT, settings(), seed=0), PPO(LAYOUT, settings(), seed=99)
    for rollout in rollouts(before):
        ppo.update(rollout)
    resumed.update(rollouts(1, seed=7)[0])
    resumed.load_state({name: array.copy() for name, array in ppo.state().items()})
    assert resumed.updates == before
    for rollout in rollouts(3, seed=8):
        ppo.update(rollout)
        resumed.update(rollout)
    assert same(ppo.state(), resumed.state())


def test_published_weights_and_states_are_copies_and_the_rollout_is_only_read() -> None:
    ppo, (rollout,) = PPO(LAYOUT, settings(), seed=0), rollouts(1)
    arrays = [*rollout.observations.values(), *rollout.columns.values(), rollout.reward, rollout.length]
    kept = [array.copy() for array in arrays]
    weights, state = ppo.weights(), ppo.state()
    before = {name: array.copy() for name, array in weights.items()}
    ppo.update(rollout)
    assert same(weights, before)
    assert all(np.array_equal(state[f"network/{name}"], array) for name, array in before.items())
    assert not same(ppo.weights(), before)
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, kept, strict=True))


def test_published_weights_are_taken_over_and_the_optimizer_begins_anew() -> None:
    ppo, other = PPO(LAYOUT, settings(), seed=0), PPO(LAYOUT, settings(), seed=1)
    (rollout,) = rollouts(1)
    ppo.update(rollout)
    other.update(rollout)
    ppo.load_weights(other.weights())
    assert same(ppo.weights(), other.weights())
    assert ppo.state()["adam/step"] == 0
    assert not ppo.state()["adam/exp_avg"].any()
    with pytest.raises(CheckpointError, match="published weights"):
        ppo.load_weights(PPO(LAYOUT, settings(network=PolicySettings((8,))), seed=0).weights())


def test_a_checkpoint_of_another_network_is_refused_as_a_whole() -> None:
    ppo = PPO(LAYOUT, settings(), seed=0)
    before = ppo.state()
    with pytest.raises(CheckpointError, match="another network"):
        ppo.load_state(PPO(LAYOUT, settings(network=PolicySettings((8,))), seed=1).state())
    damaged = PPO(LAYOUT, settings(), seed=1).state()
    damaged["orders"] = np.full_like(damaged["orders"], 255)
    with pytest.raises(CheckpointError, match="generator is damaged"):
        ppo.load_state(damaged)
    assert same(ppo.state(), before)


def test_arrays_that_do_not_fit_are_refused() -> None:
    (rollout,) = rollouts(1)
    columns = dict(rollout.columns)
    columns["log_prob"] = columns["log_prob"][:, None]
    broken = Rollout(rollout.observations, columns, rollout.reward, rollout.length, rollout.ending, rollout.continues)
    with pytest.raises(LearnerError, match="behaviour_log_prob"):
        PPO(LAYOUT, settings(), seed=0).update(broken)
