"""Rewards as they are learned from; the log holds them as they were."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import ConfigError


@dataclass(frozen=True)
class RewardTransform:
    """Multiplies rewards by ``scale``, then brings them within plus and minus ``clip`` (Mnih et al., 2015).

    Attributes:
        scale: other than 0.
        clip: 0 or more; 0: nothing is clipped.

    Raises:
        ConfigError: a figure is out of range.
    """

    scale: float = 1.0
    clip: float = 0.0

    def __post_init__(self) -> None:
        if self.scale == 0 or not math.isfinite(self.scale):
            raise ConfigError(f"algorithm.reward_scale is {self.scale}, but has to be a number other than 0")
        if not 0 <= self.clip < math.inf:
            raise ConfigError(f"algorithm.reward_clip is {self.clip}, but has to be 0 or more")

    def __call__(self, rewards: NDArray[Any]) -> NDArray[np.float64]:
        """The rewards of single steps, float64 of the same shape; in float64 from the first operation on."""
        scaled = rewards.astype(np.float64)
        if self.scale != 1.0:
            scaled *= self.scale
        if self.clip:
            np.clip(scaled, -self.clip, self.clip, out=scaled)
        return scaled
