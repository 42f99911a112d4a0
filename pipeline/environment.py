"""Gymnasium environments: their spaces for the learner, vectors of them for actors."""

from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv

from pipeline.config import EnvironmentConfig
from pipeline.errors import ConfigError
from pipeline.experience import Layout


def read_layout(config: EnvironmentConfig) -> Layout:
    """The columns of a run in this environment.

    Raises:
        ConfigError: Gymnasium does not know the environment.
        SpaceError: its spaces cannot be carried.
    """
    try:
        environment = gymnasium.make(config.id, **config.kwargs)
    except gymnasium.error.Error as error:
        raise ConfigError(f"environment.id={config.id!r} cannot be made: {error}") from error
    layout = Layout(environment.observation_space, environment.action_space)
    environment.close()
    return layout


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
