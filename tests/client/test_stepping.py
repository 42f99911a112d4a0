"""Environments that reset themselves: what is pushed of them, and their episodes' sums."""

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from pipeline.client.stepping import Stepping
from pipeline.client.transition import Transition
from pipeline.experience import Ending, Layout


class Counting(gymnasium.Env[Any, Any]):
    """Observes the number of the step; ends after ``length`` steps, by turns terminated and truncated."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int) -> None:
        self._length = length
        self._step = self._episode = 0

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self._step = 0
        self._episode += 1
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        over = self._step == self._length
        terminated = over and self._episode % 2 == 1
        return np.full(1, self._step, np.float32), 2.0, terminated, over and not terminated, {}


class Connector:
    """Collects what is pushed."""

    layout = Layout(Counting.observation_space, Counting.action_space)
    run_config = SimpleNamespace(environment=SimpleNamespace(action_masks=False))

    def __init__(self) -> None:
        self.steps: dict[int, list[tuple[float, float, bool, bool, float]]] = {}
        self.episodes: list[dict[str, Any]] = []

    def push_sample(self, sample: Transition) -> None:
        index = range(len(sample.reward)) if sample.environment is None else sample.environment
        for at, environment in enumerate(index):
            assert sample.extras is not None
            self.steps.setdefault(int(environment), []).append(
                (
                    float(sample.observation[at, 0]),
                    float(sample.next_observation[at, 0]),
                    bool(sample.terminated[at]),
                    bool(sample.truncated[at]),
                    float(sample.extras["mark"][at]),
                )
            )

    def push_episode_info(self, info: dict[str, Any]) -> None:
        self.episodes.append(info)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_what_is_pushed_does_not_depend_on_when_an_environment_resets(mode: AutoresetMode):
    """A step that only resets is none; the last observation is the true one; extras stay with their steps."""
    lengths = (2, 3)
    environment = SyncVectorEnv([lambda n=n: Counting(n) for n in lengths], autoreset_mode=mode)
    connector = Connector()

    def choose(observation: Any, masks: Any) -> tuple[Any, dict[str, Any]]:
        assert masks is None
        return np.zeros(2, np.int64), {"mark": observation[:, 0] * 10}

    stepping = Stepping(connector, environment, 0, choose)  # type: ignore[arg-type]
    pushed = sum(stepping.step() for _ in range(24))
    assert pushed == sum(len(steps) for steps in connector.steps.values())
    for environment_index, length in enumerate(lengths):
        for number, (before, after, terminated, truncated, mark) in enumerate(connector.steps[environment_index]):
            episode, step = divmod(number, length)
            over = step == length - 1
            assert (before, after, mark) == (step, step + 1, step * 10)
            assert (terminated, truncated) == (over and episode % 2 == 0, over and episode % 2 == 1)
        infos = [info for info in connector.episodes if info["environment"] == environment_index]
        assert [info["episode"] for info in infos] == list(range(len(infos)))
        assert {(info["steps"], info["total_return"]) for info in infos} == {(length, 2.0 * length)}
        assert [info["ending"] for info in infos[:2]] == [Ending.TERMINATED, Ending.TRUNCATED]
    assert stepping.episodes == len(connector.episodes)
