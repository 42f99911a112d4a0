"""Records of any topic within bounds, read with consumers of their own: nothing is committed, no group is touched."""

import heapq
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pipeline.broker import BrokerSettings, LogReader, Record
from pipeline.broker.topics import is_contiguous
from pipeline.errors import BrokerUnreachableError, ReplayError
from pipeline.offline.progress import Advance, silent
from pipeline.offline.ranges import Range, Selection

# Several partitions are read side by side, and a merge by time needs a few records of each.
_QUEUED_KBYTES = 16_384


@dataclass(frozen=True)
class Extent:
    """What a partition holds.

    Attributes:
        low: the oldest offset kept.
        high: the offset that the next record gets.
    """

    low: int
    high: int


class BoundedReader:
    """Reads the records of one topic that lie within a selection, up to the log's end as it was on opening.

    Records of a partition come in the order of their offsets; partitions are merged by the log's time.

    Args:
        settings: the broker.
        topic: its full name.
        selection: partition, offsets and times are looked at here; versions and the limit are the caller's.
        spans: further bounds by partition, first and next offset; None: none.
        timeout: seconds that the broker may be silent.

    Raises:
        BrokerUnreachableError: nobody answers at the address.
        UnknownTopicError: there is no such topic.
        ReplayError: there is no such partition.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        topic: str,
        selection: Selection,
        spans: Mapping[int, tuple[int, int]] | None = None,
        timeout: float = 10.0,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._timeout = timeout
        self._times = selection.times
        self._open = ExitStack()
        self.extents = extents(settings, topic, timeout)
        """What each partition of the topic holds."""
        if selection.partition is not None and selection.partition not in self.extents:
            there = ", ".join(map(str, self.extents))
            raise ReplayError(f"{topic} has no partition {selection.partition}; there are {there}.")
        wanted = self.extents if selection.partition is None else [selection.partition]
        self._spans = {partition: self._span(partition, selection.offsets, spans) for partition in wanted}
        self.total = sum(end - first for first, end in self._spans.values())
        """Offsets that are to be read."""

    def records(self, advance: Advance = silent) -> Iterator[Record]:
        """The records, once."""
        parts = [self._partition(p, *span, advance) for p, span in self._spans.items() if span[0] < span[1]]
        return iter(parts[0]) if len(parts) == 1 else heapq.merge(*parts, key=lambda record: record.timestamp_ms)

    def close(self) -> None:
        """Disconnect."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _span(self, partition: int, offsets: Range, spans: Mapping[int, tuple[int, int]] | None) -> tuple[int, int]:
        extent = self.extents[partition]
        first = max(extent.low, offsets.first or 0)
        end = extent.high if offsets.last is None else min(extent.high, offsets.last + 1)
        if spans is not None:
            low, high = spans.get(partition, (0, 0))
            first, end = max(first, low), min(end, high)
        if first < end and not self._times.everything and is_contiguous(self._topic):
            first, end = self._within_times(partition, first, end)
        return first, max(first, end)

    def _within_times(self, partition: int, first: int, end: int) -> tuple[int, int]:
        """Narrow a span by the log's time, which grows with the offsets; asking the broker does not work everywhere."""
        with self._reader(partition, first) as reader:
            if self._times.first is not None:
                first = self._search(reader, partition, first, end, self._times.first)
            if self._times.last is not None:
                end = self._search(reader, partition, first, end, self._times.last + 1)
        return first, end

    def _search(self, reader: LogReader, partition: int, first: int, end: int, time_ms: int) -> int:
        """The first offset from which on no record is older than ``time_ms``; ``end`` if there is none."""
        while first < end:
            middle = (first + end) // 2
            reader.seek((self._topic, partition), middle)
            record = next(_until(reader, self._topic, middle, end, self._timeout, most=1), None)
            if record is None or record.timestamp_ms >= time_ms:
                end = middle
            else:
                first = record.offset + 1
        return first

    def _partition(self, partition: int, first: int, end: int, advance: Advance) -> Iterator[Record]:
        with self._reader(partition, first) as reader:
            if is_contiguous(self._topic):
                found = _until(reader, self._topic, first, end, self._timeout)
            else:
                # What stands at the end may be a control record, which no position shows. These topics are small.
                found = iter(reader.read_to_end(max(60.0, self._timeout)))
            position = first
            for record in found:
                if record.offset >= end:
                    break
                advance(record.offset + 1 - position)
                position = record.offset + 1
                if record.timestamp_ms in self._times:
                    yield record
            advance(end - position)

    def _reader(self, partition: int, first: int) -> LogReader:
        reader = LogReader(
            self._settings,
            self._topic,
            {(self._topic, partition): first},
            partitions=[partition],
            open_timeout=self._timeout,
            queued_max_messages_kbytes=_QUEUED_KBYTES,
        )
        return self._open.enter_context(reader)


def extents(settings: BrokerSettings, topic: str, timeout: float = 10.0) -> dict[int, Extent]:
    """What each partition of a topic holds.

    Raises:
        BrokerUnreachableError, UnknownTopicError: see `LogReader.open`.
    """
    with LogReader(settings, topic, "earliest", open_timeout=timeout) as reader:
        marks = reader.watermarks(timeout)
    return {partition: Extent(low, high) for (_, partition), (low, high) in sorted(marks.items())}


def _until(reader: LogReader, topic: str, first: int, end: int, timeout: float, most: int = 1000) -> Iterator[Record]:
    """Records from the reader's position, which is ``first``, up to before ``end``."""
    position, heard = first, time.monotonic()
    while position < end:
        records = reader.poll(most, 0.2)
        if not records and time.monotonic() - heard > timeout:
            raise BrokerUnreachableError(
                f"{topic}: nothing came for {timeout:.1f} s at offset {position}, and the end, {end}, is not reached; "
                "check that the broker runs, and read again"
            )
        for record in records:
            if record.offset >= end:
                return
            position = record.offset + 1
            yield record
        heard = time.monotonic() if records else heard
