"""An agent that chooses among some of an environment's Discrete actions.

The agent's actions are 0 … n − 1; ``environment.actions`` lists what each is in the environment. Masks are mapped with
them.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsFloat, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from pipeline.errors import ConfigError
from pipeline.experience import ACTION_MASK

if TYPE_CHECKING:
    VectorBase = VectorWrapper[Any, Any, Any, Any, Any]
else:
    # Older releases of Gymnasium have it without parameters.
    VectorBase = VectorWrapper


class ActionTable:
    """What each of the agent's actions is in the environment.

    Args:
        space: the environment's actions.
        actions: those that the agent chooses among, in its order.

    Attributes:
        space: the agent's actions.

    Raises:
        ConfigError: the space is not Discrete, or an action is not in it or listed twice.
    """

    def __init__(self, space: gymnasium.Space[Any], actions: Sequence[int]) -> None:
        if not isinstance(space, spaces.Discrete):
            raise ConfigError(f"environment.actions needs Discrete actions, but the environment's are {space}")
        first, count = int(space.start), int(space.n)
        wrong = [action for action in actions if not first <= action < first + count]
        if wrong or len(set(actions)) != len(actions):
            raise ConfigError(
                f"environment.actions={list(actions)} must be different ones of {first} … {first + count - 1}"
            )
        self.space = spaces.Discrete(len(actions))
        self._actions = np.array(actions, cast("Any", space.dtype))
        self._places = self._actions - first
        self._count = count

    def to_environment(self, actions: Any) -> Any:
        """The environment's actions, of the same shape as the agent's."""
        return self._actions[actions]

    def to_agent(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """The environment's info with the masks of the agent's actions, those of ``final_info`` as well.

        Raises:
            ConfigError: a mask has another number of actions than the environment.
        """
        mapped = dict(info)
        for name, value in info.items():
            if name == ACTION_MASK:
                mapped[name] = self._mask(np.asarray(value))
            elif name == "final_info" and isinstance(value, Mapping):
                mapped[name] = self.to_agent(cast("Mapping[str, Any]", value))
        return mapped

    def _mask(self, mask: NDArray[Any]) -> NDArray[Any]:
        if mask.shape[-1:] != (self._count,):
            raise ConfigError(
                f"The environment's info has action masks of shape {mask.shape}, but it has {self._count} actions"
            )
        return mask[..., self._places]


class MappedActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One environment in which an agent chooses among the listed actions; see :class:`ActionTable`."""

    def __init__(self, environment: gymnasium.Env[Any, Any], actions: Sequence[int]) -> None:
        super().__init__(environment)
        self._table = ActionTable(environment.action_space, actions)
        self.action_space = self._table.space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """See ``gymnasium.Env.reset``."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._table.to_agent(info)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """See ``gymnasium.Env.step``."""
        following, reward, terminated, truncated, info = self.env.step(self._table.to_environment(action))
        return following, reward, terminated, truncated, self._table.to_agent(info)


class VectorMappedActions(VectorBase):
    """A vectorised environment in which an agent chooses among the listed actions; see :class:`ActionTable`."""

    def __init__(self, environment: VectorEnv[Any, Any, Any], actions: Sequence[int]) -> None:
        super().__init__(environment)
        self._table = ActionTable(cast("Any", environment).single_action_space, actions)
        self.single_action_space = self._table.space
        self.action_space = batch_space(self._table.space, environment.num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """See ``gymnasium.vector.VectorEnv.reset``."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._table.to_agent(info)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """See ``gymnasium.vector.VectorEnv.step``."""
        following, reward, terminated, truncated, info = self.env.step(self._table.to_environment(np.asarray(actions)))
        return following, reward, terminated, truncated, self._table.to_agent(info)
