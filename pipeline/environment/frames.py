"""Observations made of the newest k ones, stacked along a new first axis (Mnih et al., 2015).

The oldest comes first. At the beginning of an episode its first observation stands in for those before it.
"""

from typing import TYPE_CHECKING, Any, SupportsFloat, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from pipeline.environment.nested import last_observations, rows
from pipeline.errors import ConfigError, SpaceError
from pipeline.experience import flatten, unflatten

if TYPE_CHECKING:
    VectorBase = VectorWrapper[Any, Any, Any, Any, Any]
else:
    # Older releases of Gymnasium have it without parameters.
    VectorBase = VectorWrapper

_PREFIX = "observation"


def stacked_space(space: gymnasium.Space[Any], depth: int) -> gymnasium.Space[Any]:
    """The space of ``depth`` observations of a space: its leaves have one axis more, the first.

    Raises:
        SpaceError: there is a space in it that is not carried.
    """
    match space:
        case spaces.Dict():
            return spaces.Dict([(key, stacked_space(part, depth)) for key, part in space.spaces.items()])
        case spaces.Tuple():
            parts = cast("tuple[gymnasium.Space[Any], ...]", cast("Any", space).spaces)
            return spaces.Tuple([stacked_space(part, depth) for part in parts])
        case spaces.Box():
            low, high = (np.repeat(bound[None], depth, axis=0) for bound in (space.low, space.high))
            return spaces.Box(low, high, dtype=cast("Any", space.dtype).type)
        case spaces.Discrete():
            dtype = cast("Any", space.dtype)
            return spaces.MultiDiscrete(
                np.full(depth, space.n, dtype), dtype=dtype.type, start=np.full(depth, space.start, dtype)
            )
        case spaces.MultiDiscrete():
            nvec, start = (np.repeat(bound[None], depth, axis=0) for bound in (space.nvec, space.start))
            return spaces.MultiDiscrete(nvec, dtype=cast("Any", space.dtype).type, start=start)
        case spaces.MultiBinary():
            return spaces.MultiBinary((depth, *space.shape))
        case _:
            raise SpaceError(f"observations of the space {space} cannot be stacked")


class Frames:
    """The newest ``depth`` observations of each of some sub-environments; for loops of any kind.

    Example:
        >>> frames = Frames(space, 4)
        >>> stack = frames.begin(first_observation)
        >>> stack = frames.push(following)

    Stacks that were given out do not change any more, and are not to be changed.

    Args:
        space: of one observation.
        depth: k, how many are stacked.
        batched: whether observations are those of several sub-environments, with a leading axis in each leaf.
    """

    def __init__(self, space: gymnasium.Space[Any], depth: int, batched: bool = False) -> None:
        self._space = space
        self._depth = depth
        self._batched = batched
        self._stacks: dict[str, NDArray[Any]] = {}

    def begin(self, observation: Any, where: NDArray[np.bool_] | None = None) -> Any:
        """Episodes begin with this observation.

        Args:
            observation: a value of the space, of all sub-environments.
            where: bool (environments,), in which of them; None: in all.

        Returns:
            The stacks, of all sub-environments.

        Raises:
            SpaceError: the observation does not fit the space.
        """
        fresh = {
            name: np.repeat(array[:, None], self._depth, axis=1) for name, array in self._columns(observation).items()
        }
        if where is not None:
            for name, stack in self._stacks.items():
                fresh[name] = np.where(where.reshape(-1, *[1] * (stack.ndim - 1)), fresh[name], stack)
        self._stacks = fresh
        return self._out()

    def push(self, observation: Any) -> Any:
        """Episodes go on with this observation.

        Returns:
            The stacks: k observations in each leaf, behind the axis of sub-environments.

        Raises:
            SpaceError: the observation does not fit the space.
        """
        columns = self._columns(observation)
        self._stacks = {
            name: np.concatenate([stack[:, 1:], columns[name][:, None]], axis=1) for name, stack in self._stacks.items()
        }
        return self._out()

    def _columns(self, observation: Any) -> dict[str, NDArray[Any]]:
        columns = flatten(_PREFIX, self._space, observation, batch=self._batched)
        return columns if self._batched else {name: array[None] for name, array in columns.items()}

    def _out(self) -> Any:
        stacks = self._stacks if self._batched else {name: stack[0] for name, stack in self._stacks.items()}
        return unflatten(_PREFIX, self._space, stacks)


class StackedFrames(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One environment whose observations are the newest ``depth`` ones."""

    def __init__(self, environment: gymnasium.Env[Any, Any], depth: int) -> None:
        super().__init__(environment)
        self.observation_space = stacked_space(environment.observation_space, depth)
        self._frames = Frames(environment.observation_space, depth)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """See ``gymnasium.Env.reset``."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._frames.begin(observation), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """See ``gymnasium.Env.step``."""
        following, reward, terminated, truncated, info = self.env.step(action)
        return self._frames.push(following), reward, terminated, truncated, info


class VectorStackedFrames(VectorBase):
    """A vectorised environment whose observations are the newest ``depth`` ones of each sub-environment.

    Both of Gymnasium's ways to reset by itself are known: in the step that ends an episode, where
    ``info["final_obs"]`` holds the true last stacks then, and in the step after it.

    Raises:
        ConfigError: the environment does not reset itself.
    """

    def __init__(self, environment: VectorEnv[Any, Any, Any], depth: int) -> None:
        super().__init__(environment)
        mode = environment.metadata.get("autoreset_mode")
        if mode is AutoresetMode.DISABLED:
            raise ConfigError("environment.frame_stack needs a vectorised environment that resets itself")
        self._next_step = mode is AutoresetMode.NEXT_STEP
        single = cast("gymnasium.Space[Any]", cast("Any", environment).single_observation_space)
        self.single_observation_space = stacked_space(single, depth)
        self.observation_space = batch_space(self.single_observation_space, environment.num_envs)
        self._frames = Frames(single, depth, batched=True)
        self._resetting = np.zeros(environment.num_envs, bool)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """See ``gymnasium.vector.VectorEnv.reset``."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._resetting = np.zeros(self.num_envs, bool)
        return self._frames.begin(observation), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """See ``gymnasium.vector.VectorEnv.step``."""
        following, reward, terminated, truncated, info = self.env.step(actions)
        ended = np.logical_or(terminated, truncated)
        if self._next_step:
            stacks = self._frames.push(following)
            if self._resetting.any():
                stacks = self._frames.begin(following, self._resetting)
            self._resetting = ended & ~self._resetting
            return stacks, reward, terminated, truncated, info
        stacks = self._frames.push(last_observations(following, ended, info))
        if ended.any():
            final = np.full(self.num_envs, None, object)
            for environment in np.flatnonzero(ended):
                final[environment] = rows(stacks, environment)
            info = {**info, "final_obs": final, "_final_obs": ended}
            stacks = self._frames.begin(following, ended)
        return stacks, reward, terminated, truncated, info
