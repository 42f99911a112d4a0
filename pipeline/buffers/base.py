"""What every replay buffer gives and promises."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.experience import Transitions

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of B transitions (s_tm1, a_tm1, r_t, discount_t, s_t), column by column.

    The arrays are the buffer's own scratch space: they hold until the next ``sample`` of the same
    buffer. Copy what has to live longer.

    Attributes:
        observation: s_tm1 by column name, each (B, *column.shape) of the column's dtype.
        columns: action and extras at s_tm1, and ``action_mask`` at s_t, by column name, each (B, *column.shape).
        reward: r_t, the n-step return, float32 (B,).
        discount: discount_t, gamma^k or 0 where the episode terminated, float32 (B,).
        next_observation: s_t, the observation to bootstrap from, like ``observation``.
        rows: int64 (B,), where each transition lives; meaningful until the next ``insert``.
        weights: importance weights that make up for unequal chances of being drawn, float32 (B,), at most 1;
            ones where all have the same chance.
    """

    observation: Mapping[str, Array]
    columns: Mapping[str, Array]
    reward: NDArray[np.float32]
    discount: NDArray[np.float32]
    next_observation: Mapping[str, Array]
    rows: NDArray[np.int64]
    weights: NDArray[np.float32]


@dataclass(frozen=True)
class BufferState:
    """What a checkpoint keeps of a buffer: not its contents, which the log holds.

    Attributes:
        written: observation rows written since the run began, evicted ones included.
        generator: state of the numpy bit generator; made of str and int, so JSON can carry it.
        arrays: what the log does not hold of the rows, such as priorities; copies.
    """

    written: int
    generator: dict[str, Any]
    arrays: Mapping[str, Array] = field(default_factory=dict[str, Array])


class ReplayBuffer(Protocol):
    """A bounded memory of transitions, deterministic given its seed and its inserts."""

    def __len__(self) -> int:
        """Number of transitions that ``sample`` can return."""
        ...

    @property
    def rows(self) -> int:
        """Observation rows in use, at most the capacity."""
        ...

    @property
    def capacity(self) -> int:
        """Observation rows that fit."""
        ...

    def insert(self, transitions: Transitions) -> int:
        """Add transitions, the oldest ones giving way; return how many of them were kept."""
        ...

    def sample(self, batch_size: int) -> Batch:
        """Draw ``batch_size`` transitions with replacement.

        Raises:
            LearnerError: the buffer is empty or ``batch_size`` is below 1.
        """
        ...

    @property
    def written(self) -> int:
        """Observation rows written since the run began, evicted ones included."""
        ...

    def state(self) -> BufferState:
        """Counters and generator state; with the same inserts after it, the same batches follow."""
        ...

    def load_state(self, state: BufferState, exact: bool = True) -> None:
        """Go on as the buffer that gave ``state``.

        Args:
            state: what :meth:`state` gave.
            exact: the rows are those of ``state``, or there are none yet. Otherwise the buffer keeps the rows and
                the row counter that it has: part of the log was gone when it was refilled.

        Raises:
            CheckpointError: the state cannot belong to this buffer.
        """
        ...

    def start_at(self, row: int) -> None:
        """Let an empty buffer count its rows from ``row``, to be refilled from the log.

        Raises:
            CheckpointError: the buffer holds transitions, or ``row`` is negative.
        """
        ...

    def contents(self) -> dict[str, Array]:
        """Copies of all rows held, by name: for a checkpoint that does not rely on the log. O(rows)."""
        ...

    def load_contents(self, contents: Mapping[str, Array]) -> None:
        """Fill an empty buffer with what :meth:`contents` gave; :meth:`load_state` comes after it.

        Raises:
            CheckpointError: the buffer is not empty, or the contents are of another capacity or layout, or damaged.
                The buffer is unchanged then.
        """
        ...
