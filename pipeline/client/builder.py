"""Transitions become chunks: columns filled in place, each observation stored once."""

import math
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pipeline.client.transition import Transition
from pipeline.errors import InvalidSampleError, PipelineError
from pipeline.experience import Chunk, Column, Ending, Layout, Segments, Version, flatten

Array = NDArray[Any]
_NO_VERSION = Version(-1, -1)


@dataclass(slots=True)
class _Segment:
    """A finished piece of one sub-environment: steps ``start`` … ``stop`` of its rows, and what came after."""

    environment: int
    episode: int
    first_step: int
    start: int
    stop: int
    ending: Ending
    last: list[Array]


@dataclass(slots=True)
class _Stream:
    """Where one sub-environment stands."""

    episode: int = 0
    first_step: int = 0
    start: int = 0
    stop: int = 0
    segments: list[_Segment] = field(default_factory=list[_Segment])


class ChunkBuilder:
    """Collects transitions acted under one version until they are cut into a chunk.

    Rows lie as ``[environment, step, …]``, so that a cut copies runs of memory. The next observation of a step is kept
    only as the newest row of its sub-environment: where the following step starts from another observation, the
    segment is closed open-ended and a new episode begins, since the two steps do not belong together.

    Args:
        layout: the run's columns.
        chunk_steps: transitions in a chunk, at most (rounded up to a multiple of the number of sub-environments).
        chunk_bytes: bytes of columns in a chunk, at most.
    """

    def __init__(self, layout: Layout, chunk_steps: int, chunk_bytes: int) -> None:
        self._layout = layout
        row_bytes = sum(_nbytes(column) for column in layout.columns)
        self._chunk_steps = self._limit = max(1, min(chunk_steps, chunk_bytes // max(1, row_bytes)))
        self._observation = layout.observation
        self._others = tuple(c for c in layout.columns if c not in layout.observation)
        self._action = layout.action
        self._observation_leaves = [_Leaf(column) for column in layout.observation]
        self._numbered_leaves = tuple(enumerate(self._observation_leaves))
        self._action_leaves = [_Leaf(column) for column in layout.action]
        self._extra_leaves = [_Leaf(column) for column in layout.extras]
        leaves = (*layout.observation, *layout.action)
        self._plain = {column.name for column in leaves if column.name in ("observation", "action")}
        self._episodes_begun = 0
        self._environments = 0
        self._streams: list[_Stream] = []
        self.version = _NO_VERSION
        self.steps = 0
        self._allocate(1)

    @property
    def chunk_steps(self) -> int:
        """Transitions in a chunk, at most, with bytes taken into account."""
        return self._chunk_steps

    @property
    def full(self) -> bool:
        """Whether the chunk has to be cut before another transition is added."""
        return self._fullest >= self._most_rows

    def limit(self, steps: int) -> None:
        """From now on the chunk is full at this many transitions, or at those of the beginning if they are fewer."""
        self._limit = max(1, min(steps, self._chunk_steps))
        self._most_rows = -(-self._limit // self._environments)

    def add(self, sample: Transition, version: Version) -> int:
        """Add one transition, or one of each given sub-environment, acted under ``version``.

        The caller cuts first when the builder is :attr:`full` or holds another version.

        Returns:
            The number of transitions added.

        Raises:
            InvalidSampleError: shape, dtype, or value does not fit the run's spaces; nothing was added.
        """
        self.version = version
        if type(sample.reward) is float or np.ndim(sample.reward) == 0:
            return self._add_one(sample)
        return self._add_many(sample)

    def reserve(self, environments: int) -> bool:
        """Make room for this many sub-environments; False if the chunk has to be cut for it first."""
        if environments <= self._environments:
            return True
        if self.steps:
            return False
        self._allocate(environments)
        return True

    def cut(self) -> Chunk | None:
        """The chunk of everything added since the last cut; None if there is nothing."""
        if self.steps == 0:
            return None
        for environment, stream in enumerate(self._streams):
            if stream.stop > stream.start:
                length = stream.stop - stream.start
                self._close(environment, stream, Ending.OPEN)
                stream.first_step += length
        segments = [segment for stream in self._streams for segment in stream.segments]
        chunk = Chunk(version=self.version, segments=_segment_table(segments), columns=self._columns(segments))
        for stream in self._streams:
            stream.start = stream.stop = 0
            stream.segments = []
        self.steps = 0
        self._fullest = 0
        return chunk

    def _allocate(self, environments: int) -> None:
        rows = -(-self._chunk_steps // environments)
        self._most_rows = -(-self._limit // environments)
        self._fullest = 0

        def zeros(column: Column, *lead: int) -> Array:
            return np.zeros((*lead, *column.shape), column.dtype)

        self._observation_rows = [zeros(c, environments, rows) for c in self._observation]
        self._other_rows = {c.name: zeros(c, environments, rows) for c in self._others}
        last = [zeros(c, environments) for c in self._observation]
        for new, old in zip(last, getattr(self, "_last", []), strict=False):
            new[: len(old)] = old
        self._last = last
        for _ in range(environments - self._environments):
            self._streams.append(_Stream(episode=self._next_episode()))
        self._environments = environments

    def _next_episode(self) -> int:
        self._episodes_begun += 1
        return self._episodes_begun - 1

    def _add_one(self, sample: Transition) -> int:
        environment = 0 if sample.environment is None else int(sample.environment)
        observation = self._flat(sample.observation, "observation")
        following = self._flat(sample.next_observation, "observation")
        stream = self._streams[environment]
        follows = stream.stop > stream.start or stream.first_step > 0
        same = follows
        for at, leaf in self._numbered_leaves:
            observation[at] = value = leaf.shaped(observation[at])
            following[at] = leaf.checked(following[at])
            # What follows the step before was checked with it.
            if not same or self._last[at][environment].tobytes() != value.tobytes():
                same = False
                leaf.check_values(value)
        steps = self._step_values(sample)
        if follows and not same:
            self._break(environment, stream)
        row = stream.stop
        for at, _ in self._numbered_leaves:
            self._observation_rows[at][environment, row] = observation[at]
            self._last[at][environment] = following[at]
        for rows, value in steps:
            rows[environment, row] = value
        stream.stop = row + 1
        if sample.terminated or sample.truncated:
            self._end(environment, stream, bool(sample.terminated))
        self.steps += 1
        if row + 1 > self._fullest:
            self._fullest = row + 1
        return 1

    def _add_many(self, sample: Transition) -> int:
        count = len(sample.reward)
        index = np.arange(count) if sample.environment is None else np.asarray(sample.environment)
        if index.shape != (count,) or len(np.unique(index)) != count:
            raise InvalidSampleError(
                f"A vector of {count} transitions needs {count} different sub-environments, got {index!r}."
            )
        leaves = self._observation_leaves
        values = self._flat_many(sample.observation, "observation")
        observation = [leaf.checked(value, count) for leaf, value in zip(leaves, values, strict=True)]
        values = self._flat_many(sample.next_observation, "observation")
        following = [leaf.checked(value, count) for leaf, value in zip(leaves, values, strict=True)]
        steps = self._step_values_many(sample, count)
        ended = np.logical_or(sample.terminated, sample.truncated)
        if ended.shape != (count,):
            raise InvalidSampleError(f"terminated and truncated need shape ({count},), got {ended.shape}.")
        streams = [self._streams[e] for e in index]
        same = np.ones(count, bool)
        for last, value in zip(self._last, observation, strict=True):
            same &= (last[index] == value).reshape(count, -1).all(axis=1)
        if not same.all():
            for at in np.flatnonzero(~same):
                stream = streams[at]
                if stream.first_step + stream.stop - stream.start:
                    self._break(int(index[at]), stream)
        rows = np.array([stream.stop for stream in streams])
        for target, value in zip(self._observation_rows, observation, strict=True):
            target[index, rows] = value
        for target, value in steps:
            target[index, rows] = value
        for last, value in zip(self._last, following, strict=True):
            last[index] = value
        for stream in streams:
            stream.stop += 1
        for at in np.flatnonzero(ended):
            self._end(int(index[at]), streams[at], bool(sample.terminated[at]))
        self.steps += count
        self._fullest = max(self._fullest, int(rows.max()) + 1)
        return count

    def _break(self, environment: int, stream: _Stream) -> None:
        """The steps so far do not lead to the next one: leave them open-ended and begin another episode."""
        if stream.stop > stream.start:
            self._close(environment, stream, Ending.OPEN)
        stream.episode = self._next_episode()
        stream.first_step = 0

    def _end(self, environment: int, stream: _Stream, terminated: bool) -> None:
        self._close(environment, stream, Ending.TERMINATED if terminated else Ending.TRUNCATED)
        stream.episode = self._next_episode()
        stream.first_step = 0

    def _close(self, environment: int, stream: _Stream, ending: Ending) -> None:
        last = [rows[environment].copy() for rows in self._last]
        stream.segments.append(
            _Segment(
                environment,
                stream.episode,
                stream.first_step,
                stream.start,
                stream.stop,
                ending,
                last,
            )
        )
        stream.start = stream.stop

    def _columns(self, segments: list[_Segment]) -> dict[str, Array]:
        columns: dict[str, Array] = {}
        rows = self.steps + len(segments)
        for at, (column, source) in enumerate(zip(self._observation, self._observation_rows, strict=True)):
            target = np.empty((rows, *column.shape), column.dtype)
            row = 0
            for segment in segments:
                stop = row + segment.stop - segment.start
                target[row:stop] = source[segment.environment, segment.start : segment.stop]
                target[stop] = segment.last[at]
                row = stop + 1
            columns[column.name] = target
        for column in self._others:
            source = self._other_rows[column.name]
            pieces = [source[e, : stream.stop] for e, stream in enumerate(self._streams) if stream.stop]
            columns[column.name] = np.concatenate(pieces)
        return columns

    def _step_values(self, sample: Transition) -> list[tuple[Array, Any]]:
        reward = float(sample.reward)
        if not math.isfinite(reward):
            raise InvalidSampleError(f"The reward is {reward}; it must be finite.")
        rows = self._other_rows
        values: list[tuple[Array, Any]] = [(rows["reward"], reward)]
        for leaf, value in zip(self._action_leaves, self._flat(sample.action, "action"), strict=True):
            values.append((rows[leaf.name], value if leaf.holds_number(value) else leaf.checked(value)))
        for leaf in self._extra_leaves:
            values.append((rows[leaf.name], leaf.checked(_extra(sample, leaf.name))))
        return values

    def _step_values_many(self, sample: Transition, count: int) -> list[tuple[Array, Any]]:
        reward = np.asarray(sample.reward, np.float32)
        if not np.isfinite(reward).all():
            raise InvalidSampleError("A reward is not finite.")
        rows = self._other_rows
        values: list[tuple[Array, Any]] = [(rows["reward"], reward)]
        for leaf, value in zip(self._action_leaves, self._flat_many(sample.action, "action"), strict=True):
            values.append((rows[leaf.name], leaf.checked(value, count)))
        for leaf in self._extra_leaves:
            values.append((rows[leaf.name], leaf.checked(_extra(sample, leaf.name), count)))
        return values

    def _flat(self, value: Any, what: str) -> list[Any]:
        """The value's leaves, unchecked; a space that is not nested is its own only leaf."""
        if what in self._plain:
            return [value]
        return self._leaves(value, what, batch=False)

    def _flat_many(self, value: Any, what: str) -> list[Any]:
        if what in self._plain:
            return [value]
        return self._leaves(value, what, batch=True)

    def _leaves(self, value: Any, what: str, batch: bool) -> list[Any]:
        observed = what == "observation"
        space = self._layout.observation_space if observed else self._layout.action_space
        columns = self._observation if observed else self._action
        try:
            leaves = flatten(what, space, value, batch=batch)
            return [leaves[column.name] for column in columns]
        except (PipelineError, KeyError, TypeError, ValueError, IndexError) as error:
            raise InvalidSampleError(f"The {what} does not fit the space {space}: {error}") from error


class _Leaf:
    """Checks values of one column, cheaply: this is what the environment loop waits for."""

    __slots__ = ("_range", "_zeros", "column", "dtype", "name", "shape")

    def __init__(self, column: Column) -> None:
        self.column = column
        self.name = column.name
        self.dtype = column.dtype
        self.shape = column.shape
        size = int(np.prod(column.shape, dtype=np.int64))
        self._zeros = np.zeros(size, column.dtype) if column.dtype.kind == "f" else None
        low, high = column.low, column.high
        self._range = range(0)
        if column.discrete and column.shape == () and low is not None and high is not None:
            self._range = range(int(low), int(high) + 1)

    def holds_number(self, value: Any) -> bool:
        """Whether it is an integer inside a single discrete column's bounds; False says nothing."""
        return (type(value) is int or isinstance(value, np.integer)) and int(cast(int, value)) in self._range

    def shaped(self, value: Any, *lead: int) -> Array:
        """The value as an array of the column's dtype and shape (behind ``lead``).

        Raises:
            InvalidSampleError: it cannot be one.
        """
        array = value if type(value) is np.ndarray else np.asarray(value)
        if array.shape != (self.shape if not lead else (*lead, *self.shape)):
            raise InvalidSampleError(f"{self.name!r} has shape {array.shape}, the run needs {(*lead, *self.shape)}.")
        if array.dtype is self.dtype or array.dtype == self.dtype:
            return array
        if array.dtype.kind not in "biu" and not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise InvalidSampleError(f"{self.name!r} is {array.dtype}, the run needs {self.dtype}.")
        converted = array.astype(self.dtype)
        if array.dtype.kind in "iu" and not np.array_equal(converted, array):
            raise InvalidSampleError(f"{self.name!r} holds {array}, which {self.dtype} cannot.")
        return converted

    def check_values(self, array: Array) -> None:
        """Raises InvalidSampleError for what is not finite, or outside a discrete column's bounds."""
        zeros = self._zeros
        if zeros is not None:
            # 0·NaN and 0·∞ are NaN: one product finds both.
            finite = math.isfinite(array.reshape(-1).dot(zeros)) if array.size == zeros.size else _all_finite(array)
            if not finite:
                raise InvalidSampleError(f"{self.name!r} holds a value that is not finite.")
        elif self.column.discrete and not self.column.contains(array):
            raise InvalidSampleError(f"{self.name!r} is {array}, outside {self.column.low} … {self.column.high}.")

    def checked(self, value: Any, *lead: int) -> Array:
        """:meth:`shaped`, then :meth:`check_values`."""
        array = self.shaped(value, *lead)
        self.check_values(array)
        return array


def _nbytes(column: Column) -> int:
    return int(np.prod(column.shape, dtype=np.int64)) * column.dtype.itemsize


def _all_finite(array: Array) -> bool:
    return bool(np.isfinite(array).all())


def _extra(sample: Transition, name: str) -> Any:
    if sample.extras is None or name not in sample.extras:
        raise InvalidSampleError(f"The sample lacks the run's column {name!r}.")
    return sample.extras[name]


def _segment_table(segments: list[_Segment]) -> Segments:
    return Segments(
        environment=np.array([s.environment for s in segments], np.int32),
        episode=np.array([s.episode for s in segments], np.int64),
        first_step=np.array([s.first_step for s in segments], np.int32),
        length=np.array([s.stop - s.start for s in segments], np.int32),
        ending=np.array([s.ending for s in segments], np.uint8),
    )
