"""The acting loop: a vectorised environment, driven by the run's newest weights."""

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from pipeline.client.connector import DQNConnector
from pipeline.client.transition import Transition
from pipeline.config import PipelineConfig
from pipeline.environment import action_masks, make_vector
from pipeline.errors import ConfigError
from pipeline.experience import ACTION_MASK, Ending

log = logging.getLogger(__name__)


def act(config: PipelineConfig, stop: Callable[[], bool] = lambda: False) -> int:
    """Take part in a run until it ends, ``stop()`` says so, or ``client.max_episodes`` are done.

    Returns:
        The number of finished episodes.

    Raises:
        RunNotFoundError, BrokerUnreachableError, ServerTimeoutError: see :class:`DQNConnector`.
        ConfigError: the environment gives no action masks, or unfit ones, where the run needs them.
    """
    torch.set_num_threads(config.client.torch_threads)
    if config.client.seed < 0:
        config = replace(config, client=replace(config.client, seed=secrets.randbits(31)))
    connector = DQNConnector(config)
    environment = make_vector(connector.run_config.environment)
    log.info("Actor %s takes part in run %s with seed %d.", connector.actor, connector.run, config.client.seed)
    loop = _ActingLoop(connector, environment, config.client.seed)
    try:
        limit = config.client.max_episodes
        while not stop() and not connector.run_ended and not (limit and loop.episodes >= limit):
            loop.step()
            connector.pace(timeout=1.0)
    finally:
        connector.close()
        environment.close()
    log.info("Actor %s ends after %d episodes.", connector.actor, loop.episodes)
    return loop.episodes


class _ActingLoop:
    """One vectorised environment with its episodes' running sums."""

    def __init__(self, connector: DQNConnector, environment: VectorEnv[Any, Any, Any], seed: int) -> None:
        self._connector = connector
        self._environment = environment
        self._next_step_reset = environment.metadata.get("autoreset_mode") is AutoresetMode.NEXT_STEP
        count = environment.num_envs
        self._random = np.random.default_rng(seed)
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

    def step(self) -> None:
        """Act once in every sub-environment, and push what happened."""
        connector = self._connector
        with connector:
            action = connector.agent.act(self._observation, connector.epsilon, self._random, mask=self._masks)
        following, reward, terminated, truncated, info = self._environment.step(action)
        ended = np.logical_or(terminated, truncated)
        last = following if self._next_step_reset else _with_final(following, ended, info)
        masks = None if self._masks is None else action_masks(info, self._environment)
        last_masks = masks
        if masks is not None and not self._next_step_reset and ended.any():
            final = action_masks(info.get("final_info", {}), self._environment)
            last_masks = np.where(ended[:, None], final, masks)
        if self._resetting.any():
            # Gymnasium's next-step mode: this step only reset these sub-environments; nothing happened in them.
            live = np.flatnonzero(~self._resetting)
            if len(live):
                connector.push_sample(
                    Transition(
                        _rows(self._observation, live),
                        action[live],
                        reward[live],
                        _rows(last, live),
                        terminated[live],
                        truncated[live],
                        live,
                        _extras(last_masks, live),
                    )
                )
        else:
            extras = _extras(last_masks)
            connector.push_sample(
                Transition(self._observation, action, reward, last, terminated, truncated, extras=extras)
            )
        live_mask = ~self._resetting
        self._returns += np.where(live_mask, reward, 0.0)
        self._steps += live_mask
        for environment in np.flatnonzero(ended & live_mask):
            self._finish(int(environment), bool(terminated[environment]))
        self._resetting = ended & live_mask if self._next_step_reset else self._resetting
        self._observation = following
        self._masks = masks

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


def _now_ms() -> int:
    return int(time.time() * 1000)


def _extras(masks: NDArray[np.bool_] | None, index: NDArray[np.int64] | None = None) -> dict[str, Any] | None:
    """What a transition holds beside the usual: which actions its last observation allows."""
    if masks is None:
        return None
    return {ACTION_MASK: masks if index is None else masks[index]}


def _rows(value: Any, index: NDArray[np.int64]) -> Any:
    """The given sub-environments' part of a batched, possibly nested, value."""
    if isinstance(value, dict):
        return {key: _rows(item, index) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, tuple):
        return tuple(_rows(item, index) for item in cast("tuple[Any, ...]", value))
    return value[index]


def _with_final(following: Any, ended: NDArray[np.bool_], info: dict[str, Any]) -> Any:
    """The observations that the steps led to: the true last ones where an episode ended (same-step mode)."""
    if not ended.any():
        return following
    final = info["final_obs"]
    index = np.flatnonzero(ended)
    return _patched(following, final, index)


def _patched(following: Any, final: Any, index: NDArray[np.int64]) -> Any:
    if isinstance(following, dict):
        leaves = cast("dict[str, Any]", following)
        return {key: _patched(leaf, _part(final, key), index) for key, leaf in leaves.items()}
    if isinstance(following, tuple):
        parts = cast("tuple[Any, ...]", following)
        return tuple(_patched(part, _part(final, at), index) for at, part in enumerate(parts))
    patched = np.array(following)
    for at in index:
        patched[at] = final[at]
    return patched


def _part(final: Any, key: Any) -> Any:
    """One leaf of final observations, which Gymnasium gives as an array of whole ones or as a dict of arrays."""
    if isinstance(final, dict):
        return cast("dict[Any, Any]", final)[key]
    return [None if one is None else one[key] for one in final]
