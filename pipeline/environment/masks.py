"""Which actions an environment allows, from what its info says."""

from collections.abc import Mapping
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from pipeline.errors import ConfigError
from pipeline.experience import ACTION_MASK


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
