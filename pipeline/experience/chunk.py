"""A chunk: the unit of experience on the log.

A chunk holds steps of one actor under one version. It is made of segments: consecutive steps of
one sub-environment within one episode. k steps have k + 1 observations, so each observation is
kept once and the next observation of a step is the row after its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.experience.layout import Layout
from pipeline.experience.version import Version

_INT32_MAX = 2**31 - 1
_SEGMENT_DTYPES = (
    ("environment", ("i", 4)),
    ("episode", ("i", 8)),
    ("first_step", ("i", 4)),
    ("length", ("i", 4)),
    ("ending", ("u", 1)),
)


class Ending(IntEnum):
    """How a segment ends."""

    OPEN = 0
    """The episode goes on in a later chunk of the session."""
    TERMINATED = 1
    """The environment reached a terminal state: nothing follows the last observation."""
    TRUNCATED = 2
    """The episode was cut from outside (a time limit): the last observation has a value."""


@dataclass(frozen=True, eq=False)
class Segments:
    """The segment table of a chunk: S segments, each with at least one step.

    Attributes:
        environment: int32[S], index of the sub-environment within the actor.
        episode: int64[S], the actor's number for the episode; unique with `environment`.
        first_step: int32[S], the episode's step at which the segment begins.
        length: int32[S], number of steps, at least 1.
        ending: uint8[S], values of `Ending`.
    """

    environment: NDArray[np.int32]
    episode: NDArray[np.int64]
    first_step: NDArray[np.int32]
    length: NDArray[np.int32]
    ending: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.length)

    @cached_property
    def steps(self) -> int:
        """Number of steps in all segments together."""
        return int(self.length.sum(dtype=np.int64))

    @cached_property
    def step_offsets(self) -> NDArray[np.int64]:
        """int64[S], the row of each segment's first step in the step columns."""
        ends = np.cumsum(self.length, dtype=np.int64)
        return ends - self.length

    @cached_property
    def row_offsets(self) -> NDArray[np.int64]:
        """int64[S], the row of each segment's first observation in the observation columns."""
        return self.step_offsets + np.arange(len(self), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Chunk:
    """Steps of one actor under one version.

    Attributes:
        version: the version that acted in every step.
        segments: the segment table, S segments.
        columns: arrays by column name. Observation columns have ``steps + S`` rows: segment s
            has rows ``row_offsets[s]`` to ``row_offsets[s] + length[s]`` inclusive. All other
            columns have ``steps`` rows. Rows stand segment after segment. May be read-only views.
        dropped: transitions that the actor's bounded queue has dropped so far in its session.
        final: whether the actor's rollout under this version ends with this chunk; only synchronous training asks.
    """

    version: Version
    segments: Segments
    columns: Mapping[str, NDArray[Any]]
    dropped: int = 0
    final: bool = False

    @property
    def steps(self) -> int:
        """Number of steps, which is the number of transitions, in the chunk."""
        return self.segments.steps

    @property
    def rows(self) -> int:
        """Number of observation rows: ``steps + S``."""
        return self.segments.steps + len(self.segments)

    def validate(self, layout: Layout) -> None:
        """Check every rule a chunk must keep, vectorised.

        Checks the version's range, the segment table, the column names, dtypes and shapes, that
        all floats are finite, that actions lie in the action space and that discrete
        observations name a category. The bounds of Box observations are not enforced:
        environments overstep them.

        Raises:
            InvalidRecordError: with the reason and the figures of the first rule broken.
        """
        if not self.version.in_range() or self.dropped < 0:
            raise InvalidRecordError(
                RejectReason.MALFORMED,
                f"version {self.version} or dropped count {self.dropped} is out of range",
            )
        check_segments(self.segments)
        check_arrays(self.columns, layout, self.steps, self.rows)
        check_values(self.columns, layout)


def check_segments(segments: Segments) -> None:
    """Check a segment table by itself.

    Raises:
        InvalidRecordError: BAD_SEGMENTS, with what is wrong.
    """
    count = len(segments)
    for name, dtype in _SEGMENT_DTYPES:
        array = cast("NDArray[Any]", getattr(segments, name))
        # Views of a record are little-endian, whatever this machine is.
        if (array.dtype.kind, array.dtype.itemsize) != dtype or array.shape != (count,):
            raise _bad_segments(f"{name} is {array.dtype}{list(array.shape)}, expected {dtype[0]}{dtype[1]}[{count}]")
    if count == 0:
        raise _bad_segments("there are no segments")
    # Python integers are quicker than numpy on tables this small and cannot overflow.
    lengths = segments.length.tolist()
    firsts = segments.first_step.tolist()
    environments = segments.environment.tolist()
    episodes = segments.episode.tolist()
    if min(lengths) < 1:
        raise _bad_segments(f"a segment has length {min(lengths)}; the least is 1")
    if min(firsts) < 0 or min(environments) < 0 or min(episodes) < 0:
        raise _bad_segments("an environment, episode or first step is negative")
    if max(map(int.__add__, firsts, lengths)) > _INT32_MAX or sum(lengths) > _INT32_MAX:
        raise _bad_segments("step numbers go beyond 2^31 - 1")
    if max(segments.ending.tolist()) > Ending.TRUNCATED:
        raise _bad_segments(f"ending {segments.ending.max()} is none of 0, 1, 2")
    if len(set(zip(environments, episodes, strict=True))) != count:
        raise _bad_segments("two segments are of the same environment and episode")


def check_arrays(columns: Mapping[str, NDArray[Any]], layout: Layout, steps: int, rows: int) -> None:
    """Check names, dtypes and shapes of all columns.

    Raises:
        InvalidRecordError: MISSING_COLUMN, UNKNOWN_COLUMN or WRONG_SHAPE.
    """
    if columns.keys() != layout.by_name.keys():
        check_names(columns.keys(), layout)
    observed = len(layout.observation)
    for index, column in enumerate(layout.columns):
        array = columns[column.name]
        expected = (rows if index < observed else steps, *column.shape)
        if array.dtype != column.dtype or array.shape != expected:
            raise InvalidRecordError(
                RejectReason.WRONG_SHAPE,
                f"column {column.name!r} is {array.dtype}{list(array.shape)}, expected {column.dtype}{list(expected)}",
            )


def check_names(names: Any, layout: Layout) -> None:
    """Check that the column names are the layout's.

    Raises:
        InvalidRecordError: MISSING_COLUMN or UNKNOWN_COLUMN.
    """
    missing = layout.by_name.keys() - names
    if missing:
        raise InvalidRecordError(RejectReason.MISSING_COLUMN, f"column {min(missing)!r} of the run's layout is missing")
    unknown: Any = names - layout.by_name.keys()
    if unknown:
        raise InvalidRecordError(
            RejectReason.UNKNOWN_COLUMN, f"column {min(unknown)[:64]!r} is not in the run's layout"
        )


def check_values(columns: Mapping[str, NDArray[Any]], layout: Layout) -> None:
    """Check finiteness and bounds of columns whose dtypes and shapes are already right.

    Raises:
        InvalidRecordError: NOT_FINITE or OUT_OF_BOUNDS.
    """
    for column in layout.columns:
        if column.is_float and not np.isfinite(columns[column.name]).all():
            raise InvalidRecordError(RejectReason.NOT_FINITE, f"column {column.name!r} holds NaN or an infinity")
    for column in layout.enforced:
        if not column.contains(columns[column.name]):
            raise InvalidRecordError(
                RejectReason.OUT_OF_BOUNDS, f"column {column.name!r} holds values outside its space"
            )


def _bad_segments(detail: str) -> InvalidRecordError:
    return InvalidRecordError(RejectReason.BAD_SEGMENTS, detail)
