"""One ring of observation rows with the transitions that start in them: what buffers that draw differently share."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.buffers.base import Array, Batch, BufferState
from pipeline.errors import CheckpointError, ConfigError, LearnerError
from pipeline.experience import Layout, Transitions

_COLUMN = "column:"


class RingBuffer(ABC):
    """Keeps the newest ``capacity`` observation rows; a derived class says how transitions are drawn.

    Every observation is stored once. A transition lives in the row of its start observation, which
    also holds its action, extras, n-step return, discount, and how many rows further on its end
    observation lies; rows that start nothing (the last observation of a segment) hold 0 there.
    A transition's end is newer than its start, so the ring overwrites the start first: no
    transition ever points at a row that was evicted.

    Guarantees: same seed and same inserts give the same batches, on any machine.

    Memory is allocated at construction (touched by the operating system as rows fill up).
    """

    def __init__(self, capacity: int, layout: Layout, seed: int) -> None:
        """Make an empty buffer.

        Args:
            capacity: observation rows to keep, at least 2.
            layout: the run's columns.
            seed: seed of the sampling generator (PCG64).

        Raises:
            ConfigError: ``capacity`` is below 2 or ``seed`` negative.
        """
        if capacity < 2:
            raise ConfigError(
                f"replay buffer: capacity is {capacity}, but a transition needs two rows; set it to 2 or more"
            )
        if seed < 0:
            raise ConfigError(f"replay buffer: seed is {seed}; set it to 0 or more")
        self._capacity = capacity
        self._observation: dict[str, Array] = {
            column.name: np.zeros((capacity, *column.shape), column.dtype) for column in layout.observation
        }
        # What belongs to one transition stands together, so that drawing it costs one access to memory.
        columns = (*layout.action, *layout.extras)
        self._steps = np.zeros(
            capacity,
            np.dtype(
                [
                    ("delta", np.int32),
                    ("reward", np.float32),
                    ("discount", np.float32),
                    *((_COLUMN + column.name, column.dtype, column.shape) for column in columns),
                ],
                align=True,
            ),
        )
        self._columns: dict[str, Array] = {column.name: self._steps[_COLUMN + column.name] for column in columns}
        self._reward: NDArray[np.float32] = self._steps["reward"]
        self._discount: NDArray[np.float32] = self._steps["discount"]
        self._delta: NDArray[np.int32] = self._steps["delta"]
        self._written = 0
        self._length = 0
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._scratch: Batch | None = None

    def __len__(self) -> int:
        """Number of transitions that ``sample`` can return."""
        return self._length

    @property
    def capacity(self) -> int:
        """Observation rows that fit."""
        return self._capacity

    @property
    def rows(self) -> int:
        """Observation rows in use, at most the capacity."""
        return min(self._written, self._capacity)

    @property
    def written(self) -> int:
        """Observation rows written since the run began, evicted ones included."""
        return self._written

    def insert(self, transitions: Transitions) -> int:
        """Add transitions and their observations, the oldest rows giving way.

        Args:
            transitions: R observation rows and T transitions over them; columns of the layout.

        Returns:
            How many of the T transitions were kept: all, unless there are more rows than capacity,
            when the newest ``capacity`` rows are.

        Raises:
            LearnerError: a column is missing, or shapes or row numbers do not fit together. The
                buffer is unchanged then.
        """
        total = self._check(transitions)
        if total == 0:
            return 0
        # Rows of an oversized insert that would be overwritten by the same insert are skipped,
        # but counted, so that row positions do not depend on how rows were grouped.
        skipped = max(0, total - self._capacity)
        first = (self._written + skipped) % self._capacity
        count = total - skipped
        for name, ring in self._observation.items():
            _write(ring, first, transitions.observations[name][skipped:])
        self._length -= _clear(self._delta, first, count)

        kept = int(np.searchsorted(transitions.start, skipped))
        start = transitions.start[kept:]
        places = (start + self._written) % self._capacity
        for name, ring in self._columns.items():
            ring[places] = transitions.columns[name][kept:]
        self._reward[places] = transitions.reward[kept:]
        self._discount[places] = transitions.discount[kept:]
        self._delta[places] = transitions.end[kept:] - start
        self._written += total
        self._length += len(start)
        return len(start)

    def sample(self, batch_size: int) -> Batch:
        """Draw ``batch_size`` transitions, with replacement.

        Args:
            batch_size: B, at least 1.

        Returns:
            A batch in the buffer's scratch arrays, which the next ``sample`` overwrites.

        Raises:
            LearnerError: the buffer is empty or ``batch_size`` is below 1.
        """
        if batch_size < 1:
            raise LearnerError(f"replay buffer: batch size is {batch_size}; ask for 1 or more")
        if self._length == 0:
            raise LearnerError("replay buffer: nothing to sample, it holds no transition yet; insert first")
        rows = self._draw(batch_size)
        steps = self._steps.take(rows)
        ends = rows + steps["delta"]

        batch = self._scratch
        if batch is None or len(batch.reward) != batch_size:
            batch = self._scratch = self._empty_batch(batch_size)
        # mode="clip" lets numpy write into `out` without a temporary; rows are in range anyway. Ends go round the end.
        for name, ring in self._observation.items():
            ring.take(rows, axis=0, out=batch.observation[name], mode="clip")
            ring.take(ends, axis=0, out=batch.next_observation[name], mode="wrap")
        for name, column in batch.columns.items():
            np.copyto(column, steps[_COLUMN + name])
        np.copyto(batch.reward, steps["reward"])
        np.copyto(batch.discount, steps["discount"])
        np.copyto(batch.rows, rows)
        return batch

    def state(self) -> BufferState:
        """Counters and generator state, not the contents: those are in the log.

        To go on bit for bit, build the buffer anew, ``load_state``, and insert what followed; or
        ``start_at`` an earlier row, insert the same rows again, then ``load_state``.
        """
        return BufferState(self._written, dict(self._generator.bit_generator.state))

    def load_state(self, state: BufferState, exact: bool = True) -> None:
        """Take over the generator and, when empty, the row counter of ``state``.

        Args:
            state: what :meth:`state` gave.
            exact: the rows are those of ``state``, or there are none yet. Otherwise the buffer keeps the rows and
                the row counter that it has.

        Raises:
            CheckpointError: rows were inserted, but not up to where the state was taken; or the
                generator state is not PCG64's. The buffer is unchanged then.
        """
        self._check_position(state, exact)
        generator = np.random.Generator(np.random.PCG64())
        try:
            generator.bit_generator.state = state.generator
        except (ValueError, TypeError, KeyError) as error:
            raise CheckpointError(
                f"replay buffer: the checkpoint's generator state is not that of PCG64 ({error})"
            ) from error
        self._generator = generator
        if exact:
            self._written = state.written

    def start_at(self, row: int) -> None:
        """Let an empty buffer count its rows from ``row``, to be refilled from the log.

        Raises:
            CheckpointError: the buffer holds transitions, or ``row`` is negative.
        """
        if self._length:
            raise CheckpointError(
                f"replay buffer: cannot start at row {row}, it already holds {self._length} "
                "transitions; start with a new buffer"
            )
        if row < 0:
            raise CheckpointError(f"replay buffer: cannot start at row {row}; rows start at 0")
        self._written = row

    def contents(self) -> dict[str, Array]:
        """Copies of all rows in use, by name, in the ring's order: O(rows) of time and memory."""
        rows = self.rows
        arrays = {name: ring[:rows].copy() for name, ring in self._rings().items()}
        arrays["written"] = np.array([self._written], np.int64)
        return arrays

    def load_contents(self, contents: Mapping[str, Array]) -> None:
        """Fill an empty buffer with what :meth:`contents` gave; :meth:`load_state` comes after it.

        Raises:
            CheckpointError: the buffer is not empty, or the contents are of another capacity or layout, or damaged.
                The buffer is unchanged then.
        """
        if self._length:
            raise CheckpointError(
                f"replay buffer: contents are loaded, but it already holds {self._length} transitions; "
                "start with a new buffer"
            )
        rings = self._rings()
        written = _written_of(contents)
        rows = min(written, self._capacity)
        wrong = sorted(
            name for name, ring in rings.items() if not _fits(contents.get(name), ring.dtype, (rows, *ring.shape[1:]))
        )
        if wrong or set(contents) != {"written", *rings}:
            raise CheckpointError(
                f"replay buffer: the contents in the checkpoint do not fit {rows} rows of a capacity of "
                f"{self._capacity}: {', '.join(wrong) or 'columns'} missing, unknown or of another shape; load them "
                "with the capacity and spaces of their run, or refill from the log"
            )
        if not _whole(contents["delta"], written, self._capacity):
            raise CheckpointError("replay buffer: the contents in the checkpoint are damaged: transitions dangle")
        for name, ring in rings.items():
            ring[:rows] = contents[name]
        self._written = written
        self._length = int(np.count_nonzero(self._delta))

    @abstractmethod
    def _draw(self, batch_size: int) -> NDArray[np.int64]:
        """B rows that start a transition."""

    def _check_position(self, state: BufferState, exact: bool) -> None:
        if exact and self._length and self._written != state.written:
            raise CheckpointError(
                f"replay buffer: refilled up to row {self._written}, but the checkpoint was taken "
                f"at row {state.written}; refill with the rows before the checkpoint, all of them"
            )

    def _rings(self) -> dict[str, Array]:
        rings = {f"observation:{name}": ring for name, ring in self._observation.items()}
        rings |= {_COLUMN + name: ring for name, ring in self._columns.items()}
        return rings | {"reward": self._reward, "discount": self._discount, "delta": self._delta}

    def _empty_batch(self, size: int) -> Batch:
        def like(rings: Mapping[str, Array]) -> dict[str, Array]:
            return {name: np.empty((size, *ring.shape[1:]), ring.dtype) for name, ring in rings.items()}

        return Batch(
            observation=like(self._observation),
            columns=like(self._columns),
            reward=np.empty(size, np.float32),
            discount=np.empty(size, np.float32),
            next_observation=like(self._observation),
            rows=np.empty(size, np.int64),
            weights=np.ones(size, np.float32),
        )

    def _check(self, transitions: Transitions) -> int:
        """Refuse what would corrupt the ring; return the number of observation rows."""
        rows: int | None = None
        for name, ring in self._observation.items():
            array = _column(transitions.observations, name, ring)
            if rows is None:
                rows = len(array)
            elif len(array) != rows:
                raise LearnerError(
                    f"replay buffer: observation column {name!r} has {len(array)} rows where the "
                    f"others have {rows}; nothing was inserted"
                )
        total = rows or 0
        start, end = transitions.start, transitions.end
        lengths = {"end": len(end), "reward": len(transitions.reward)}
        lengths["discount"] = len(transitions.discount)
        for name, ring in self._columns.items():
            lengths[name] = len(_column(transitions.columns, name, ring))
        wrong = {name: length for name, length in lengths.items() if length != len(start)}
        if wrong:
            raise LearnerError(
                f"replay buffer: {len(start)} transitions, but columns of other lengths: {wrong}; nothing was inserted"
            )
        if len(start) and not (
            start[0] >= 0
            and int(end.max()) < total
            and bool((end > start).all())
            and bool((start[1:] > start[:-1]).all())
        ):
            raise LearnerError(
                f"replay buffer: start rows must increase and end rows follow them within the "
                f"{total} rows given; nothing was inserted"
            )
        return total


def _column(columns: Mapping[str, Array], name: str, ring: Array) -> Array:
    array = columns.get(name)
    if array is None:
        raise LearnerError(
            f"replay buffer: column {name!r} is missing, there are {sorted(columns)}; nothing was inserted"
        )
    if array.shape[1:] != ring.shape[1:]:
        raise LearnerError(
            f"replay buffer: column {name!r} has rows of shape {array.shape[1:]} where the layout "
            f"says {ring.shape[1:]}; nothing was inserted"
        )
    return array


def _write(ring: Array, first: int, rows: Array) -> None:
    """Copy rows into the ring from ``first`` on, going round its end once at most."""
    fits = min(len(rows), len(ring) - first)
    ring[first : first + fits] = rows[:fits]
    ring[: len(rows) - fits] = rows[fits:]


def _clear(delta: NDArray[np.int32], first: int, count: int) -> int:
    """Zero ``count`` entries from ``first`` on; return how many were not zero."""
    fits = min(count, len(delta) - first)
    head, tail = delta[first : first + fits], delta[: count - fits]
    cleared = int(np.count_nonzero(head)) + int(np.count_nonzero(tail))
    head[:] = 0
    tail[:] = 0
    return cleared


def _written_of(contents: Mapping[str, Array]) -> int:
    written = contents.get("written")
    if written is None or written.shape != (1,) or written.dtype != np.int64 or written[0] < 0:
        raise CheckpointError("replay buffer: the contents in the checkpoint do not say how many rows were written")
    return int(written[0])


def _fits(array: Array | None, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    return array is not None and array.dtype == dtype and array.shape == shape


def _whole(delta: NDArray[np.int32], written: int, capacity: int) -> bool:
    """Whether no transition ends beyond the newest row."""
    rows = np.arange(len(delta))
    age = (written - 1 - rows) % capacity
    return bool((delta >= 0).all() and (delta <= age).all())
