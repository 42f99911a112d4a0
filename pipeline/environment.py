"""Gymnasium environments: their spaces for the learner, vectors of them for actors."""

from collections.abc import Mapping
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from pipeline.config import EnvironmentConfig
from pipeline.errors import ConfigError
from pipeline.experience import ACTION_MASK, Column, Layout


def read_layout(config: EnvironmentConfig) -> Layout:
    """The columns of a run in this environment.

    Raises:
        ConfigError: Gymnasium does not know the environment, or masks are asked for where actions are not Discrete.
        SpaceError: its spaces cannot be carried.
    """
    try:
        environment = gymnasium.make(config.id, **config.kwargs)
    except gymnasium.error.Error as error:
        raise ConfigError(f"environment.id={config.id!r} cannot be made: {error}") from error
    observations, actions = environment.observation_space, environment.action_space
    environment.close()
    if not config.action_masks:
        return Layout(observations, actions)
    if not isinstance(actions, spaces.Discrete):
        raise ConfigError(
            f"environment.action_masks=true needs Discrete actions, but those of {config.id!r} are {actions}"
        )
    return Layout(observations, actions, (Column(ACTION_MASK, np.dtype(np.bool_), (int(actions.n),)),))


def action_masks(info: Mapping[str, Any], environment: VectorEnv[Any, Any, Any]) -> NDArray[np.bool_]:
    """Which actions are allowed in each sub-environment now, bool (environments, actions).

    Args:
        info: what the environment's ``reset`` or ``step`` gave. Where it says nothing of a sub-environment,
            everything is allowed there.
        environment: with Discrete actions.

    Raises:
        ConfigError: the masks are of another shape, or this is no such environment.
    """
    actions = cast("gymnasium.Space[Any]", cast("Any", environment).single_action_space)
    shape = environment.num_envs, int(actions.n) if isinstance(actions, spaces.Discrete) else 0
    masks = np.asarray(info.get(ACTION_MASK, np.ones(shape, bool)))
    if masks.shape != shape:
        raise ConfigError(
            f"environment.action_masks=true, but the environment's info has masks of shape {masks.shape} where "
            f"{shape} is needed; it has to have one number for each Discrete action"
        )
    told = np.asarray(info.get(f"_{ACTION_MASK}", np.ones(shape[0], bool)))
    return masks.astype(bool) | ~told[:, None]


def make_vector(config: EnvironmentConfig, count: int | None = None) -> VectorEnv[Any, Any, Any]:
    """``count`` sub-environments in this process that reset themselves in the step that ends an episode.

    The environment's own vectorised version is used where there is one.

    Raises:
        ConfigError: Gymnasium does not know the environment, or refuses its arguments.
    """
    count = config.envs if count is None else count
    try:
        specification = gymnasium.spec(config.id)
        native = specification.vector_entry_point is not None
        environment = gymnasium.make_vec(
            config.id,
            num_envs=count,
            vectorization_mode="vector_entry_point" if native else "sync",
            vector_kwargs=None if native else {"autoreset_mode": AutoresetMode.SAME_STEP},
            **config.kwargs,
        )
    except (gymnasium.error.Error, TypeError) as error:
        raise ConfigError(f"environment.id={config.id!r} cannot be made: {error}") from error
    return environment
