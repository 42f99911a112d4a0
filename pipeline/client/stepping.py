"""A vectorised environment, step by step: what is pushed of it, and the sums of its episodes."""

import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from pipeline.client.connector import Connector
from pipeline.client.transition import Transition
from pipeline.environment import action_masks, last_observations, rows
from pipeline.errors import ConfigError
from pipeline.experience import ACTION_MASK, Ending

Chooser: TypeAlias = Callable[[Any, NDArray[np.bool_] | None], tuple[NDArray[Any], dict[str, Any]]]
"""From E observations, and what is allowed at each (bool (E, actions); None: everything), to E actions and further
columns of the steps, each (E, …)."""


class Stepping:
    """One vectorised environment of a client.

    Environments may reset themselves in the step that ends an episode or in the one after it, which then is no
    transition and is not pushed.

    Args:
        connector: takes transitions and episodes.
        environment: of the run's spaces.
        seed: of its first reset.
        choose: the actions.

    Raises:
        ConfigError: the environment gives no action masks, or unfit ones, where the run needs them.
    """

    def __init__(
        self, connector: Connector[Any, Any], environment: VectorEnv[Any, Any, Any], seed: int, choose: Chooser
    ) -> None:
        self._connector = connector
        self._environment = environment
        self._choose = choose
        self._next_step_reset = environment.metadata.get("autoreset_mode") is AutoresetMode.NEXT_STEP
        self._pushes_masks = ACTION_MASK in connector.layout.by_name
        count = environment.num_envs
        self._observation, info = environment.reset(seed=seed)
        self._masks: NDArray[np.bool_] | None = None
        if connector.run_config.environment.action_masks:
            if ACTION_MASK not in info:
                raise ConfigError(
                    "environment.action_masks=true, but the environment's info holds no 'action_mask' after a reset; "
                    "switch it off for this environment"
                )
            self._masks = action_masks(info, environment)
        self._resetting = np.zeros(count, bool)
        self._returns = np.zeros(count)
        self._steps = np.zeros(count, np.int64)
        self._started = np.full(count, _now_ms())
        self._numbers = np.zeros(count, np.int64)
        self.episodes = 0

    def step(self) -> int:
        """Act once in every sub-environment, and push what happened; the number of transitions."""
        action, extras = self._choose(self._observation, self._masks)
        following, reward, terminated, truncated, info = self._environment.step(action)
        ended = np.logical_or(terminated, truncated)
        last = following if self._next_step_reset else last_observations(following, ended, info)
        masks = None if self._masks is None else action_masks(info, self._environment)
        if masks is not None and self._pushes_masks:
            extras = {**extras, ACTION_MASK: self._last_masks(masks, ended, info)}
        live = ~self._resetting
        transition = Transition(self._observation, action, reward, last, terminated, truncated, extras=extras)
        if live.all():
            self._connector.push_sample(transition)
        elif live.any():
            self._connector.push_sample(_part(transition, np.flatnonzero(live)))
        self._returns += np.where(live, reward, 0.0)
        self._steps += live
        for environment in np.flatnonzero(ended & live):
            self._finish(int(environment), bool(terminated[environment]))
        if self._next_step_reset:
            self._resetting = ended & live
        self._observation, self._masks = following, masks
        return int(live.sum())

    def _last_masks(
        self, masks: NDArray[np.bool_], ended: NDArray[np.bool_], info: dict[str, Any]
    ) -> NDArray[np.bool_]:
        """What is allowed at the observations that the steps led to, the last ones of episodes included."""
        if self._next_step_reset or not ended.any():
            return masks
        final = action_masks(info.get("final_info", {}), self._environment)
        return np.where(ended[:, None], final, masks)

    def _finish(self, environment: int, terminated: bool) -> None:
        self._connector.push_episode_info(
            {
                "episode": int(self._numbers[environment]),
                "environment": environment,
                "steps": int(self._steps[environment]),
                "total_return": float(self._returns[environment]),
                "ending": Ending.TERMINATED if terminated else Ending.TRUNCATED,
                "started_ms": int(self._started[environment]),
            }
        )
        self.episodes += 1
        self._numbers[environment] += 1
        self._returns[environment] = 0.0
        self._steps[environment] = 0
        self._started[environment] = _now_ms()


def _part(transition: Transition, index: NDArray[np.int64]) -> Transition:
    """The given sub-environments' transitions only."""
    return Transition(
        rows(transition.observation, index),
        transition.action[index],
        transition.reward[index],
        rows(transition.next_observation, index),
        transition.terminated[index],
        transition.truncated[index],
        index,
        {name: column[index] for name, column in (transition.extras or {}).items()},
    )


def _now_ms() -> int:
    return int(time.time() * 1000)
