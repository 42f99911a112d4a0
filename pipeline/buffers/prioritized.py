"""Prioritised replay over one ring of observation rows (Schaul et al. 2016, arXiv:1511.05952)."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pipeline.buffers.base import Array, Batch, BufferState
from pipeline.buffers.ring import RingBuffer
from pipeline.buffers.sum_tree import SumTree
from pipeline.errors import CheckpointError, ConfigError, LearnerError
from pipeline.experience import Layout, Transitions

_PRIORITIES, _HIGHEST = "priorities", "highest"
_LEAST, _MOST = 1e-30, 1e30


class PrioritizedBuffer(RingBuffer):
    """Keeps the newest ``capacity`` observation rows and draws transitions in proportion to their priorities.

    Transition i is drawn with probability P(i) = p_i^alpha / sum_k p_k^alpha (section 3.3, proportional, with p_i =
    priority + epsilon), stratified: the batch has one transition of each of B equal shares of the sum. So a batch is in
    the order of the rows. A new transition gets the highest priority that was ever given (1 at first), so that all are
    seen. The batch's ``weights`` are (N P(i))^-beta, over the highest of the batch (section 3.4).

    All else is as in `RingBuffer`. Guarantees: same seed, same inserts and same updates of priorities give the same
    batches, to the last bit with the same numpy on the same kind of processor; ``state`` carries the priorities, so
    this holds across a refill.

    Attributes:
        beta: how far the weights make up for the priorities, 0 (not at all) to 1 (in full). Usually raised to 1 during
            a run, by counts; whoever changes it does so again after a restart, it is not part of ``state``.
    """

    def __init__(
        self,
        capacity: int,
        layout: Layout,
        seed: int,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        epsilon: float = 1e-6,
    ) -> None:
        """Make an empty buffer.

        Args:
            capacity: observation rows to keep, at least 2.
            layout: the run's columns.
            seed: seed of the sampling generator (PCG64).
            alpha: how much priorities count, 0 (not at all) or more.
            beta: see the class.
            epsilon: added to each priority, so that none is 0; above 0.

        Raises:
            ConfigError: a figure is out of range.
        """
        super().__init__(capacity, layout, seed)
        _check(alpha, beta, epsilon)
        self.beta = beta
        self._alpha = alpha
        self._epsilon = epsilon
        self._tree = SumTree(capacity)
        # As it stands in the tree: with epsilon, to the power of alpha.
        self._highest = np.float32(1.0)

    def configure(self, alpha: float, epsilon: float) -> None:
        """Go on with another alpha and epsilon, as the constructor's.

        The priorities that are there, epsilon included, stay what they are and count by the new alpha; where the old
        one was 0 they are not known, and are 1. The highest priority likewise.

        Raises:
            ConfigError: a figure is out of range. Nothing was changed then.
        """
        _check(alpha, self.beta, epsilon)
        if alpha != self._alpha:
            power = alpha / self._alpha if self._alpha else 1.0
            leaves = self._tree.leaves[: self.rows]
            self._tree.set_range(0, np.where(leaves > 0, _powers(leaves, power), np.float32(0)))
            self._highest = _powers(np.array([self._highest]), power)[0]
        self._alpha, self._epsilon = alpha, epsilon

    def insert(self, transitions: Transitions) -> int:
        """Add transitions with the highest priority so far; all else as in `RingBuffer.insert`."""
        before = self._written
        kept = super().insert(transitions)
        count = min(self._written - before, self._capacity)
        first = (self._written - count) % self._capacity
        fits = min(count, self._capacity - first)
        self._prioritize(first, first + fits)
        self._prioritize(0, count - fits)
        return kept

    def sample(self, batch_size: int) -> Batch:
        """Draw ``batch_size`` transitions by priority; all else as in `RingBuffer.sample`."""
        batch = super().sample(batch_size)
        chance = self._tree.leaves.take(batch.rows).astype(np.float64)
        chance *= self._length / self._tree.total
        np.power(chance, -self.beta, out=chance)
        np.divide(chance, chance.max(), out=batch.weights, casting="same_kind")
        return batch

    def update_priorities(self, rows: NDArray[np.int64], priorities: NDArray[np.floating]) -> None:
        """Give transitions of the last batch new priorities, such as their absolute TD errors.

        Args:
            rows: int64 (B,), the batch's ``rows``, with no insert since. Of a row named twice the last priority holds.
            priorities: (B,), 0 or more.

        Raises:
            LearnerError: a row starts no transition, or a priority is negative or no number. Nothing was changed then.
        """
        rows, values = np.asarray(rows), np.asarray(priorities, np.float64)
        if rows.shape != values.shape or not (
            len(rows) == 0 or (rows.min() >= 0 and rows.max() < self._capacity and bool(self._delta[rows].all()))
        ):
            raise LearnerError(
                "prioritised replay buffer: priorities are given to rows that start no transition, or are of another "
                "number; give those of the last batch, before the next insert"
            )
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise LearnerError(
                "prioritised replay buffer: a priority is negative or not a finite number; nothing was changed"
            )
        weights = _powers(values + self._epsilon, self._alpha)
        self._tree.set(rows, weights)
        self._highest = max(self._highest, weights.max(initial=np.float32(0)))

    def state(self) -> BufferState:
        """Counters, generator state and priorities: 4 bytes for each row in use. See `RingBuffer.state`."""
        state = super().state()
        arrays = {_PRIORITIES: self._tree.leaves[: self.rows].copy(), _HIGHEST: np.array([self._highest])}
        return BufferState(state.written, state.generator, arrays)

    def load_state(self, state: BufferState, exact: bool = True) -> None:
        """Take over generator and priorities; see `RingBuffer.load_state`.

        Where the rows are not those of the state, each transition gets the highest priority.

        Raises:
            CheckpointError: as `RingBuffer.load_state`; or the priorities are not those of the rows here.
        """
        self._check_position(state, exact)
        priorities, highest = _read(state.arrays)
        starts = self._delta[: self.rows] != 0
        restore = exact and self._length > 0
        if restore and not (len(priorities) == len(starts) and np.array_equal(priorities > 0, starts)):
            raise CheckpointError(
                f"replay buffer: the checkpoint has priorities for {np.count_nonzero(priorities)} transitions in "
                f"{len(priorities)} rows, which are not the {self._length} in {len(starts)} rows here; refill with the "
                "rows before the checkpoint, all of them"
            )
        super().load_state(state, exact)
        self._highest = highest
        self._tree.set_range(0, priorities if restore else np.where(starts, highest, np.float32(0)))

    def load_contents(self, contents: Mapping[str, Array]) -> None:
        """Fill an empty buffer; see `RingBuffer.load_contents`. Priorities come with :meth:`load_state`."""
        super().load_contents(contents)
        self._prioritize(0, self.rows)

    def _draw(self, batch_size: int) -> NDArray[np.int64]:
        """B rows, one of each of B equal shares of the sum of priorities."""
        masses = self._generator.random(batch_size)
        masses += np.arange(batch_size)
        masses *= self._tree.total / batch_size
        return self._tree.find(masses)

    def _prioritize(self, first: int, last: int) -> None:
        """The highest priority for the transitions in some rows of the ring, none for the other rows."""
        if last > first:
            self._tree.set_range(first, np.where(self._delta[first:last] != 0, self._highest, np.float32(0)))


def _check(alpha: float, beta: float, epsilon: float) -> None:
    if not (0 <= alpha <= 10 and 0 <= beta <= 1 and 0 < epsilon <= 1):
        raise ConfigError(
            f"prioritised replay buffer: alpha is {alpha}, beta {beta}, epsilon {epsilon}; expected alpha in "
            "0 … 10, beta in 0 … 1, epsilon above 0 and up to 1"
        )


def _powers(values: NDArray[np.floating], power: float) -> NDArray[np.float32]:
    """The values to that power, as they stand in the tree."""
    with np.errstate(over="ignore", under="ignore"):
        return np.clip(values.astype(np.float64) ** power, _LEAST, _MOST).astype(np.float32)


def _read(arrays: Mapping[str, Array]) -> tuple[NDArray[np.float32], np.float32]:
    priorities, highest = arrays.get(_PRIORITIES), arrays.get(_HIGHEST)
    if (
        priorities is None
        or highest is None
        or (priorities.dtype, priorities.ndim) != (np.float32, 1)
        or (highest.dtype, highest.shape) != (np.float32, (1,))
        or not (np.isfinite(priorities).all() and (priorities >= 0).all() and 0 < highest[0] < np.inf)
    ):
        raise CheckpointError(
            "replay buffer: the checkpoint has no priorities, or damaged ones; it is of another kind of buffer"
        )
    return priorities, highest[0]
