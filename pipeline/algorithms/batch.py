"""What an algorithm asks of a batch, whichever buffer or reader it comes from."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class TransitionBatch(Protocol):
    """B transitions (s_tm1, a_tm1, r_t, discount_t, s_t), column by column.

    The algorithm reads the arrays during the call only, and never writes to them.
    """

    @property
    def observation(self) -> Mapping[str, NDArray[Any]]:
        """s_tm1 by column name, each (B, *column.shape)."""
        ...

    @property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """Action and extras at s_tm1 by column name, each (B, *column.shape)."""
        ...

    @property
    def reward(self) -> NDArray[np.float32]:
        """r_t: n-step returns, (B,)."""
        ...

    @property
    def discount(self) -> NDArray[np.float32]:
        """discount_t: gamma^k, or 0 where the episode terminated, (B,)."""
        ...

    @property
    def next_observation(self) -> Mapping[str, NDArray[Any]]:
        """s_t by column name, the observation to bootstrap from."""
        ...

    @property
    def weights(self) -> NDArray[np.float32]:
        """Importance weights, (B,); read only where the settings say that transitions are prioritised."""
        ...
