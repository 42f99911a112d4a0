"""Which records of the log the replay buffer is made of, and making it again from them.

A checkpoint holds this instead of the buffer: some integers per run of records, and the few steps that waited for their
continuation at the anchors.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.broker import Record
from pipeline.buffers import ReplayBuffer
from pipeline.errors import CheckpointError
from pipeline.experience import Chunk, Identity, Layout, NStepReader
from pipeline.weights import below

Arrays = Mapping[str, NDArray[Any]]

_ANCHORS = 16
"""Anchors in one turn of the ring: a refill reads at most one part in this many beyond what the ring holds."""
_FIELDS = ("partition", "first", "count", "row")
_PROGRESS_EVERY = 256


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive records of one partition that were inserted one after another.

    Attributes:
        partition: of the samples topic.
        first: offset of the first record.
        count: how many records, at consecutive offsets.
        row: the buffer's row counter before the first of them was inserted.
    """

    partition: int
    first: int
    count: int
    row: int


@dataclass(frozen=True, eq=False, slots=True)
class Anchor:
    """A place to begin a refill: between two records, with what waited in the n-step reader there.

    Attributes:
        row: the buffer's row counter.
        run: index of the run that begins here.
        reader: the n-step reader's state.
    """

    row: int
    run: int
    reader: Arrays


class LogWindow:
    """The accepted records that the rows of a replay buffer came from, in the order of their insertion.

    Before each accepted record is inserted: :meth:`anchor` if :meth:`due`, then :meth:`note`. What the ring has
    overwritten is dropped, back to the newest anchor that still reaches its oldest row.

    Memory: four integers for each run of consecutive records, and at most 18 states of the n-step reader. At worst,
    if every record stands alone, this grows with the records in the buffer, 32 bytes each.

    Args:
        capacity: of the buffer, in rows.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._spacing = -(-capacity // _ANCHORS)
        self._runs = {name: array("q") for name in _FIELDS}
        self._anchors: list[Anchor] = []
        self._anchored = False

    def __len__(self) -> int:
        """Number of runs."""
        return len(self._runs["first"])

    @property
    def records(self) -> int:
        """Number of records in all runs."""
        return sum(self._runs["count"])

    def due(self, row: int) -> bool:
        """Whether an anchor is to be set before the record in hand.

        Args:
            row: the buffer's row counter.
        """
        return not self._anchors or row >= self._anchors[-1].row + self._spacing

    def anchor(self, row: int, reader: Arrays) -> None:
        """Set an anchor before the record in hand, and drop what no refill needs any more.

        Args:
            row: the buffer's row counter.
            reader: what ``NStepReader.state()`` gives now.
        """
        self._anchors.append(Anchor(row, len(self), reader))
        self._anchored = True
        self.trim(row - self.capacity)

    def note(self, partition: int, offset: int, row: int) -> None:
        """An accepted record is about to be inserted.

        Args:
            partition, offset: where it lies.
            row: the buffer's row counter, before it is inserted.
        """
        runs = self._runs
        if self._anchored or not self._continues(partition, offset):
            if not self._anchors:
                raise AssertionError("the first record needs an anchor before it")
            self._anchored = False
            for name, value in zip(_FIELDS, (partition, offset, 1, row), strict=True):
                runs[name].append(value)
        else:
            runs["count"][-1] += 1

    def trim(self, oldest_row: int) -> None:
        """Drop what came before the newest anchor at or below ``oldest_row``; nothing if there is none."""
        newest = bisect_right(self._anchors, oldest_row, key=_row) - 1
        if newest <= 0:
            return
        dropped = self._anchors[newest].run
        for values in self._runs.values():
            del values[:dropped]
        self._anchors = [Anchor(a.row, a.run - dropped, a.reader) for a in self._anchors[newest:]]

    def needed(self, written: int) -> tuple[Anchor | None, list[Run]]:
        """What a refill reads: the newest anchor that still reaches the ring's oldest row, and the runs from there on.

        Args:
            written: the buffer's row counter when the state was taken.

        Returns:
            The oldest anchor if none reaches as far back; None if there are no records.
        """
        if not self._anchors:
            return None, []
        anchor = self._anchors[max(0, bisect_right(self._anchors, written - self.capacity, key=_row) - 1)]
        return anchor, [
            Run(*values) for values in zip(*(self._runs[name][anchor.run :] for name in _FIELDS), strict=True)
        ]

    def starts(self, written: int) -> dict[int, int]:
        """The first offset that a refill reads of each partition; partitions that it does not read are left out."""
        starts: dict[int, int] = {}
        for run in self.needed(written)[1]:
            starts.setdefault(run.partition, run.first)
        return starts

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """All of it for a checkpoint: arrays by name, which nobody changes any more, and JSON-able values."""
        arrays: dict[str, NDArray[Any]] = {name: np.array(values, np.int64) for name, values in self._runs.items()}
        for index, anchor in enumerate(self._anchors):
            arrays |= {f"anchor{index}/{name}": values for name, values in anchor.reader.items()}
        return arrays, {"capacity": self.capacity, "anchors": [[a.row, a.run] for a in self._anchors]}

    def load_state(self, arrays: Arrays, values: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave, its capacity included.

        Raises:
            CheckpointError: it is damaged. Nothing was changed then.
        """
        try:
            capacity = int(values["capacity"])
            places = [(int(row), int(run)) for row, run in values["anchors"]]
            runs = {name: array("q", arrays[name].astype(np.int64).tolist()) for name in _FIELDS}
            _check(capacity, places, runs)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"log window: what the checkpoint says of the buffer's records is damaged: {error!r}"
            ) from error
        self.capacity = capacity
        self._spacing = -(-capacity // _ANCHORS)
        self._runs = runs
        self._anchors = [Anchor(row, run, below(f"anchor{i}", arrays)) for i, (row, run) in enumerate(places)]
        self._anchored = bool(places) and places[-1][1] == len(self)

    def _continues(self, partition: int, offset: int) -> bool:
        runs = self._runs
        return len(self) > 0 and runs["partition"][-1] == partition and runs["first"][-1] + runs["count"][-1] == offset


class Source(Protocol):
    """Reads partitions of the samples topic in a prescribed order: `pipeline.broker.OrderedReader`."""

    def seek(self, partition: int, offset: int) -> None:
        """Go on reading the partition at ``offset``."""
        ...

    def take(self, partition: int, next_offset: int) -> Iterator[tuple[Record, int]]:
        """The records from the position up to before ``next_offset``, each with how many are missing before it."""
        ...


@dataclass(frozen=True, eq=False)
class Refill:
    """What came of a refill.

    Attributes:
        records: inserted.
        transitions: inserted; those that the ring has overwritten since are among them.
        lost: records that the log no longer holds, or that cannot be decoded any more.
        exact: the buffer holds the same rows at the same places as the one that the checkpoint was taken of.
        trouble: where it first came out otherwise; empty if exact.
        window: the window of the buffer as it is now; it takes the old one's place.
    """

    records: int
    transitions: int
    lost: int
    exact: bool
    trouble: str
    window: LogWindow


def refill(
    window: LogWindow,
    written: int,
    source: Source,
    decode: Callable[[Record], tuple[Identity, Chunk] | None],
    reader: NStepReader,
    buffer: ReplayBuffer,
    layout: Layout,
    progress: Callable[[int, int], None] | None = None,
) -> Refill:
    """Insert the records of a window into an empty buffer again, in the order in which they came.

    Afterwards the reader waits for the same steps, and the buffer holds the same rows at the same places as when the
    state was taken, if the log still holds every record. Where it does not, the rows that are left stand closer
    together: call ``buffer.load_state(state, exact=False)`` then.

    Args:
        window: from the checkpoint.
        written: the buffer's row counter in the checkpoint.
        source: the samples topic, best opened at ``window.starts(written)``.
        decode: identity and content of a record; None if it is refused.
        reader: a new n-step reader with the run's settings.
        buffer: a new buffer.
        layout: the run's columns.
        progress: told how many records were read, and how many there are.

    Raises:
        CheckpointError: the window is damaged or of another n-step reader, or the buffer is not empty.
        BrokerUnreachableError: the log does not answer.
        TopicReplacedError: the topic does not hold offsets as high as the window's.
    """
    anchor, runs = window.needed(written)
    fresh = LogWindow(buffer.capacity)
    if anchor is not None:
        buffer.start_at(anchor.row)
        reader.load_state(anchor.reader)
    records = transitions = lost = 0
    trouble = _other_capacity(window, buffer)
    for run, found in _read(runs, source, progress):
        if not trouble and buffer.written != run.row:
            trouble = f"row {buffer.written} came where row {run.row} was expected, {_place(run)}"
        inserted = 0
        for record in found:
            decoded = decode(record)
            if decoded is None:
                continue
            row = buffer.written
            if fresh.due(row):
                fresh.anchor(row, reader.state())
            fresh.note(run.partition, record.offset, row)
            transitions += buffer.insert(reader.read(*decoded, layout))
            inserted += 1
        records += inserted
        lost += run.count - inserted
        if inserted < run.count and not trouble:
            trouble = (
                f"{run.count - inserted} of {run.count} records are gone or refused now, {_place(run)} "
                f"to {run.first + run.count - 1}"
            )
    if not trouble and buffer.written != written:
        trouble = f"the buffer ends at row {buffer.written}, the checkpoint's at row {written}"
    return Refill(records, transitions, lost, not trouble, trouble, fresh)


def _read(
    runs: list[Run], source: Source, progress: Callable[[int, int], None] | None
) -> Iterator[tuple[Run, Iterator[Record]]]:
    """Each run with its records, which are to be read before the next run is asked for."""
    position: dict[int, int] = {}
    wanted, done, told = sum(run.count for run in runs), 0, 0
    for run in runs:
        if position.get(run.partition) != run.first:
            source.seek(run.partition, run.first)
        position[run.partition] = end = run.first + run.count
        yield run, (record for record, _ in source.take(run.partition, end))
        done += run.count
        if progress is not None and (done >= told + _PROGRESS_EVERY or done == wanted):
            told = done
            progress(done, wanted)


def _other_capacity(window: LogWindow, buffer: ReplayBuffer) -> str:
    if window.capacity == buffer.capacity:
        return ""
    return f"the buffer has {buffer.capacity} rows, the checkpoint's had {window.capacity}"


def _place(run: Run) -> str:
    return f"partition {run.partition}, offset {run.first}"


def _row(anchor: Anchor) -> int:
    return anchor.row


def _check(capacity: int, places: list[tuple[int, int]], runs: Mapping[str, "array[int]"]) -> None:
    length = len(runs["first"])
    if capacity < 1 or any(len(values) != length for values in runs.values()):
        raise ValueError("a senseless capacity, or columns of different lengths")
    if length and (min(runs["count"]) < 1 or min(min(runs[name]) for name in ("partition", "first", "row")) < 0):
        raise ValueError("a run is negative or empty")
    if bool(length) and (not places or places[0][1] != 0):
        raise ValueError("the first run has no anchor")
    for (row, run), (later_row, later_run) in pairwise([*places, (2**63, length + 1)]):
        if not 0 <= row < later_row or not 0 <= run < later_run:
            raise ValueError("anchors are out of order")
        if run < length and runs["row"][run] != row:
            raise ValueError("an anchor does not stand where its run begins")
