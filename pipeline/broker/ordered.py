"""Reading partitions in an order that somebody else prescribes: a journal, or the rows of a checkpoint."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from pipeline.broker.reader import LogReader, Record
from pipeline.broker.settings import BrokerSettings
from pipeline.errors import BrokerUnreachableError, TopicReplacedError

_BATCH = 1000
_OPTIONS: Mapping[str, Any] = {
    "queued_max_messages_kbytes": 16 * 1024,
    # A consumer asks for one partition only: a larger answer saves questions.
    "fetch_message_max_bytes": 4 * 1024 * 1024,
}
_NEAR = 512
"""A jump over fewer offsets is read through: assigning anew throws away what was fetched ahead."""


class OrderedReader:
    """Reads ranges of a topic's partitions, one after the other, each partition ahead in the background.

    Each partition has a consumer of its own, opened when it is first read, so that a partition whose turn is late
    holds up no other. Memory is bounded: per partition some 16 MiB inside librdkafka and as much again here.
    Nothing is committed. Not thread-safe.

    Args:
        settings: the broker.
        topic: its partitions are read; every offset of it holds a record, or held one.
        start: the first offset to read, by partition; other partitions start at the oldest record kept.
        timeout: seconds without any progress after which the broker counts as away.
        overrides: librdkafka settings.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        topic: str,
        start: Mapping[int, int],
        *,
        timeout: float = 30.0,
        **overrides: Any,
    ) -> None:
        self.topic = topic
        self._settings = settings
        self._start = dict(start)
        self._timeout = timeout
        self._overrides: dict[str, Any] = {**_OPTIONS, **overrides}
        self._partitions: dict[int, _Partition] = {}
        self.lost = 0
        """Offsets in the ranges taken so far that the log no longer holds."""
        self.missing = 0
        """Those of them at the end of the range taken last, where no record stands to tell."""

    def take(self, partition: int, next_offset: int) -> Iterator[tuple[Record, int]]:
        """The records from the partition's position up to before ``next_offset``.

        Yields:
            Each record with the number of offsets right before it that the log no longer holds. The position moves
            with each; when the iterator is exhausted it is ``next_offset``, and ``missing`` tells how many offsets
            at the end of the range are gone. Nothing at all where the position is there already or beyond.

        Raises:
            BrokerUnreachableError: no record came for ``timeout`` seconds, and the end was not reached.
            TopicReplacedError: the log ends before ``next_offset``: the topic was made anew, or cut.
            BrokerError: as ``LogReader.poll``.
        """
        self.missing = 0
        source = self._open(partition)
        ahead = source.ahead
        while source.position < next_offset:
            while ahead and (offset := ahead[0].offset) < next_offset:
                record = ahead.popleft()
                skipped = offset - source.position
                if skipped < 0:
                    continue  # a seek passed over it
                source.position = offset + 1
                self.lost += skipped
                yield record, skipped
            if source.position < next_offset and (ahead or not source.fetch(next_offset)):
                self.missing = next_offset - source.position
                self.lost += self.missing
                source.position = next_offset

    def position(self, partition: int) -> int:
        """The next offset of a partition.

        Raises:
            BrokerError: the partition's first record is not known yet, and the broker does not tell.
        """
        if partition not in self._partitions and partition in self._start:
            return self._start[partition]
        return self._open(partition).position

    def seek(self, partition: int, offset: int) -> None:
        """Go on with another offset of a partition; what lies between counts neither as read nor as lost."""
        if partition not in self._partitions:
            self._start[partition] = offset
        else:
            self._partitions[partition].seek(offset)

    def close(self) -> None:
        """Disconnect. Closing twice is fine."""
        for source in self._partitions.values():
            source.reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self, partition: int) -> "_Partition":
        source = self._partitions.get(partition)
        if source is None:
            start = {(self.topic, partition): self._start[partition]} if partition in self._start else "earliest"
            reader = LogReader(
                self._settings,
                self.topic,
                start,
                partitions=[partition],
                open_timeout=self._timeout,
                **self._overrides,
            )
            source = _Partition(reader, self.topic, partition, self._timeout)
            self._partitions[partition] = source
        return source


class _Partition:
    """One partition: its reader, what that has handed over, and the position of whoever takes."""

    def __init__(self, reader: LogReader, topic: str, number: int, timeout: float) -> None:
        reader.open()
        self.reader = reader
        self._place = (topic, number)
        self._timeout = timeout
        self.ahead = deque[Record]()
        self.position = self._fetched()

    def seek(self, offset: int) -> None:
        near = self.position <= offset <= self._fetched() + _NEAR
        self.position = offset
        if not near:
            self.ahead.clear()
            self.reader.seek(self._place, offset)

    def _fetched(self) -> int:
        return self.reader.positions()[self._place]

    def fetch(self, before: int) -> bool:
        """Wait for records; False when the log is known to hold none before that offset."""
        deadline = time.monotonic() + self._timeout
        asked = False
        while not (records := self.reader.poll(_BATCH, 0.05)):
            if self.reader.reached(self._place) >= before:
                return False
            # The end that was met may be an old one: ask the broker once where it is now.
            if self.reader.at_end(self._place) and not asked:
                asked = True
                self._check_end(before)
            if time.monotonic() >= deadline:
                raise BrokerUnreachableError(
                    f"nothing came of {self._place[0]}[{self._place[1]}] at {self.reader.address} for "
                    f"{self._timeout:.1f} s, at offset {self._fetched()}; check that the broker runs"
                )
        self.ahead.extend(records)
        return True

    def _check_end(self, before: int) -> None:
        end = self.reader.end_offsets(self._timeout)[self._place]
        if end < before:
            raise TopicReplacedError(
                f"{self._place[0]}[{self._place[1]}] at {self.reader.address} ends at offset {end}, but records up to "
                f"offset {before - 1} were read from it before: the topic was made anew or lost its end; a run "
                "cannot go on with other records: start a new one"
            )
