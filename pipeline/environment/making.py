"""From a run's settings to its spaces, and to environments with the run's transforms around them."""

import importlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NoReturn, cast, overload

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from pipeline.config import EnvironmentConfig
from pipeline.environment.actions import ActionTable, MappedActions, VectorMappedActions
from pipeline.environment.frames import StackedFrames, VectorStackedFrames, stacked_space
from pipeline.errors import ConfigError
from pipeline.experience import ACTED_MASK, ACTION_MASK, LOG_PROB, Column, Layout


def read_layout(config: EnvironmentConfig, on_policy: bool = False) -> Layout:
    """The columns of a run in this environment, with the run's frame stack and actions.

    Args:
        config: the environment.
        on_policy: whether the run trains on-policy (PPO): its steps carry ``log_prob`` float32 (), and where
            actions are masked ``acted_mask`` instead of ``action_mask``, both bool (actions,).

    Raises:
        ConfigError: Gymnasium does not know the environment, or masks or ``environment.actions`` are asked for where
            actions are not Discrete.
        SpaceError: its spaces cannot be carried.
    """
    with _refusing(config):
        environment = gymnasium.make(config.id, **config.kwargs)
    observations, actions = environment.observation_space, environment.action_space
    environment.close()
    if config.frame_stack > 1:
        observations = stacked_space(observations, config.frame_stack)
    if config.actions:
        actions = ActionTable(actions, config.actions).space
    extras = (Column(LOG_PROB, np.dtype(np.float32), ()),) if on_policy else ()
    if not config.action_masks:
        return Layout(observations, actions, extras)
    if not isinstance(actions, spaces.Discrete):
        raise ConfigError(
            f"environment.action_masks=true needs Discrete actions, but those of {config.id!r} are {actions}"
        )
    name = ACTED_MASK if on_policy else ACTION_MASK
    return Layout(observations, actions, (*extras, Column(name, np.dtype(np.bool_), (int(actions.n),))))


def make_vector(config: EnvironmentConfig, count: int | None = None) -> VectorEnv[Any, Any, Any]:
    """``count`` sub-environments in this process that reset themselves, with the run's frame stack and actions.

    The environment's own vectorised version is used where there is one; others reset themselves in the step that ends
    an episode.

    Raises:
        ConfigError: Gymnasium does not know the environment, or refuses its arguments.
    """
    count = config.envs if count is None else count
    with _refusing(config):
        module, _, name = config.id.rpartition(":")
        if module:
            importlib.import_module(module)
        native = gymnasium.spec(name).vector_entry_point is not None
        environment = gymnasium.make_vec(
            name,
            num_envs=count,
            vectorization_mode="vector_entry_point" if native else "sync",
            vector_kwargs=None if native else {"autoreset_mode": AutoresetMode.SAME_STEP},
            **config.kwargs,
        )
    return wrap(environment, config)


@overload
def wrap(environment: gymnasium.Env[Any, Any], config: EnvironmentConfig) -> gymnasium.Env[Any, Any]: ...
@overload
def wrap(environment: VectorEnv[Any, Any, Any], config: EnvironmentConfig) -> VectorEnv[Any, Any, Any]: ...
def wrap(
    environment: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any], config: EnvironmentConfig
) -> gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]:
    """An environment of your own as the run's agents see it: with its frame stack and its actions.

    Args:
        environment: made by you, vectorised or not.
        config: the run's settings, ``connector.run_config.environment``.

    Raises:
        ConfigError: ``environment.actions`` does not fit the environment's.
        SpaceError: its observations cannot be stacked.
    """
    if isinstance(environment, VectorEnv):
        if config.actions:
            environment = VectorMappedActions(environment, config.actions)
        return VectorStackedFrames(environment, config.frame_stack) if config.frame_stack > 1 else environment
    if config.actions:
        environment = MappedActions(environment, config.actions)
    return StackedFrames(environment, config.frame_stack) if config.frame_stack > 1 else environment


def declare(name: str, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
    """Let a learner know the spaces of an environment that lives elsewhere: in a game, in a robot.

    Call it where a module of yours is imported, and start the learner with ``environment.id=your.module:Name-v0``.

    Args:
        name: as Gymnasium's ids are, such as ``Robot-v0``.
        observation_space: of one observation.
        action_space: of one action.
    """

    def make(**_: Any) -> gymnasium.Env[Any, Any]:
        return _Elsewhere(name, observation_space, action_space)

    register = cast("Callable[..., None]", cast("Any", gymnasium).register)
    register(name, make, disable_env_checker=True, order_enforce=False)


def check_module(run: EnvironmentConfig, own: EnvironmentConfig) -> None:
    """Refuse to import a module because a run's manifest names it: whoever starts a process says so here.

    Args:
        run: the settings that came over the network.
        own: the settings that this process was started with.

    Raises:
        ConfigError: the run's environment is in a module that was not named here.
    """
    if ":" in run.id and own.id != run.id:
        raise ConfigError(
            f"The run's environment is {run.id!r}, in a module of its own. No code is run because a message names "
            f"it: if it is to be run here, say so with environment.id={run.id}"
        )


class _Elsewhere(gymnasium.Env[Any, Any]):
    """Spaces without an environment."""

    def __init__(self, name: str, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        self._name = name
        self.observation_space = observation_space
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> NoReturn:
        """Raises ConfigError."""
        raise ConfigError(f"{self._name!r} is only declared here: the client that it belongs to acts in it")

    def step(self, action: Any) -> NoReturn:
        """Raises ConfigError."""
        self.reset()


@contextmanager
def _refusing(config: EnvironmentConfig) -> Generator[None]:
    """What Gymnasium raises, as a sentence about the setting."""
    try:
        yield
    except (gymnasium.error.Error, ImportError, TypeError, ValueError) as error:
        raise ConfigError(f"environment.id={config.id!r} cannot be made: {error}") from error
