"""Reading the log from chosen positions: no group, no hidden jumps, skipped offsets counted."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from pipeline.broker.client import kafka_error, metadata, translate
from pipeline.broker.logs import NO_RIGHT, TIMED_OUT, UNREACHABLE, LinkMonitor, LinkState, RateLimitedLog
from pipeline.broker.logs import explain as explain_error
from pipeline.broker.settings import BrokerSettings, consumer_options
from pipeline.broker.topics import is_contiguous
from pipeline.errors import BrokerError, BrokerUnreachableError, TopicReplacedError, UnknownTopicError

logger = logging.getLogger("pipeline.broker")

Place = tuple[str, int]
"""Topic and partition."""


# Frozen, it would take six times as long to make.
@dataclass(slots=True)
class Record:
    """One record of the log; not to be changed.

    Attributes:
        topic, partition, offset: its coordinates.
        timestamp_ms: the log's time (``LogAppendTime``), unix milliseconds; −1 if it has none.
        key: ``None`` if it has none.
        value: the payload; empty for a tombstone.
        headers: as Kafka gives them; ``None`` if there are none.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]] | None

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return (self.topic, self.partition)


class LogReader:
    """Reads all partitions of some topics, in order per partition, from positions of the caller's.

    Records of a partition come in the order of their offsets, each at most once. A position that
    retention has overtaken is moved to the oldest record left, and what was lost is in ``expired``;
    any other skipped offset of a contiguous topic is in ``gaps``. Nothing is committed.

    The connection is made by ``open`` or the first ``poll``. Not thread-safe.

    Args:
        settings: the broker.
        topics: one topic or several.
        start: ``"earliest"``, ``"latest"`` (records appended after opening), or the next offset
            for each ``(topic, partition)``; partitions that are not named start at the earliest.
        partitions: read only these partition numbers of each topic; ``None``: all.
        open_timeout: seconds that the first ``poll`` waits for broker and topics.
        on_link: told once when the broker is lost and once when it is back.
        overrides: librdkafka settings.

    Raises:
        ConfigError: librdkafka does not know a setting or refuses its value.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        topics: str | Sequence[str],
        start: Literal["earliest", "latest"] | Mapping[Place, int] = "earliest",
        *,
        partitions: Sequence[int] | None = None,
        open_timeout: float = 10.0,
        on_link: Callable[[LinkState], None] | None = None,
        **overrides: Any,
    ) -> None:
        self._address = settings.address
        self._topics = (topics,) if isinstance(topics, str) else tuple(topics)
        self._start = start
        self._partitions = None if partitions is None else frozenset(partitions)
        self._open_timeout = open_timeout
        self._monitor = LinkMonitor(settings, on_link)
        self._options = consumer_options(settings, **overrides)
        self._options["error_cb"] = self._monitor.on_error
        self._options["stats_cb"] = self._monitor.on_stats
        self._consumer: confluent_kafka.Consumer | None = None
        self._closed = False
        self._next: dict[Place, int] = {}
        self._at_end: dict[Place, int] = {}
        self._told: set[Place] = set()
        self.gaps: dict[Place, int] = {}
        """Offsets that were skipped without a reason, by topic and partition."""
        self.expired: dict[Place, int] = {}
        """Offsets that retention removed before they were read, by topic and partition."""

    @property
    def address(self) -> str:
        """The broker's address, as messages name it."""
        return self._address

    @property
    def link_up(self) -> bool:
        """Whether the link to the broker is believed to be up."""
        return self._monitor.up

    def open(self, timeout: float | None = None, *, topics_s: float = math.inf) -> None:
        """Connect, wait until the topics exist, and settle the positions. Opening twice is fine.

        Args:
            timeout: seconds for all of it; by default ``open_timeout``.
            topics_s: topics that do not exist are waited for at most so long.

        Raises:
            BrokerUnreachableError: nobody answers at the address.
            BrokerAuthenticationError: the credentials are refused.
            UnknownTopicError: a topic does not exist, and did not come up in time.
        """
        if self._closed:
            raise BrokerError(f"the reader of {', '.join(self._topics)} is closed")
        if self._consumer is not None:
            return
        deadline = time.monotonic() + (self._open_timeout if timeout is None else timeout)
        exist_by = min(deadline, time.monotonic() + topics_s)
        try:
            consumer = confluent_kafka.Consumer(self._options, logger=RateLimitedLog())
        except KafkaException as exc:
            raise translate(exc, self._address, doing="starting a reader") from exc
        try:
            places = [place for topic in self._topics for place in self._places(consumer, topic, deadline, exist_by)]
            assigned = [TopicPartition(*place, self._first(consumer, place)) for place in places]
            consumer.assign(assigned)
        except BaseException:
            consumer.close()
            raise
        self._monitor.worked()
        self._next = {(tp.topic, tp.partition): tp.offset for tp in assigned}
        self._consumer = consumer

    def poll(self, max_records: int = 500, timeout: float = 0.1) -> list[Record]:
        """Up to ``max_records`` records; waits at most ``timeout`` seconds for the first of them.

        A broker that is away means an empty list (``on_link`` tells), not an error.

        Raises:
            BrokerError: as ``open`` on the first call; later if a topic was deleted or access was
                taken away.
            TopicReplacedError: a position lies beyond the end of the log, which was made anew.
        """
        if self._consumer is None:
            self.open()
        consumer = cast(confluent_kafka.Consumer, self._consumer)
        deadline = time.monotonic() + timeout
        records: list[Record] = []
        while not records:
            left = deadline - time.monotonic()
            # consume() waits for the whole number; one poll() comes back with the first.
            first = consumer.poll(max(0.0, left))
            if first is not None:
                self._take([first], records)
                if max_records > 1:
                    self._take(consumer.consume(max_records - 1, 0), records)
            if time.monotonic() >= deadline:
                break
        return records

    def read_to_end(self, timeout: float = 10.0) -> list[Record]:
        """All records up to the end of the log as it is at the time of the call.

        Raises:
            BrokerUnreachableError: the end was not reached in time.
            BrokerError: as ``poll``.
        """
        return [record for batch in self._batches(timeout, renewed=False) for record in batch]

    def batches_to_end(self, timeout: float = 10.0) -> Iterator[list[Record]]:
        """The records up to the end of the log as it is at the time of the call, as they come.

        Args:
            timeout: seconds without a record after which the broker counts as away.

        Raises:
            BrokerUnreachableError: nothing came for that long, and the end was not reached.
            BrokerError: as ``poll``.
        """
        return self._batches(timeout, renewed=True)

    def positions(self) -> dict[Place, int]:
        """The next offset to be read, by topic and partition: what a checkpoint stores."""
        return dict(self._next)

    def reached(self, place: Place) -> int:
        """The offset up to which a partition is known to hold nothing unread: its position, or beyond it, behind
        control records and what was aborted."""
        return max(self._next[place], self._at_end.get(place, -1))

    def at_end(self, place: Place) -> bool:
        """Whether the end of the log was met at the partition's position. It may have grown since."""
        return self._at_end.get(place, -1) >= self._next[place]

    def end_offsets(self, timeout: float = 5.0) -> dict[Place, int]:
        """The offset that the next record will get, by topic and partition, asked of the broker.

        Raises:
            BrokerError: the broker did not answer in time.
        """
        return {place: high for place, (_, high) in self.watermarks(timeout).items()}

    def watermarks(self, timeout: float = 5.0) -> dict[Place, tuple[int, int]]:
        """Oldest offset kept and end offset, by topic and partition, asked of the broker.

        Raises:
            BrokerError: the broker did not answer in time.
        """
        self.open(timeout)
        consumer = cast(confluent_kafka.Consumer, self._consumer)
        return {place: self._watermarks(consumer, place, timeout) for place in self._next}

    def seek(self, place: Place, offset: int) -> None:
        """Go on reading a partition from another offset."""
        self.open()
        consumer = cast(confluent_kafka.Consumer, self._consumer)
        # seek() needs a partition that is being fetched already; assigning anew always works.
        self._next[place] = offset
        self._at_end.pop(place, None)
        consumer.incremental_unassign([TopicPartition(*place)])
        consumer.incremental_assign([TopicPartition(*place, offset)])

    def pause(self) -> None:
        """Fetch nothing more until ``resume``; keep polling, which then only serves callbacks."""
        if self._consumer is not None:
            self._consumer.pause([TopicPartition(*place) for place in self._next])

    def resume(self) -> None:
        """Fetch again."""
        if self._consumer is not None:
            self._consumer.resume([TopicPartition(*place) for place in self._next])

    def close(self) -> None:
        """Disconnect. Closing twice is fine."""
        self._closed = True
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _batches(self, timeout: float, *, renewed: bool) -> Iterator[list[Record]]:
        deadline = time.monotonic() + timeout
        self.open(timeout)
        ends = self.end_offsets(max(0.1, deadline - time.monotonic()))
        read = 0
        while any(self.reached(place) < end for place, end in ends.items()):
            if time.monotonic() >= deadline:
                raise BrokerUnreachableError(
                    f"the end of {', '.join(self._topics)} at {self._address} was not reached within {timeout:.1f} s "
                    f"({read} records read); check the broker"
                )
            records = self.poll(10_000, min(0.05, max(0.0, deadline - time.monotonic())))
            if records:
                read += len(records)
                yield records
                if renewed:
                    deadline = time.monotonic() + timeout

    def _places(self, consumer: confluent_kafka.Consumer, topic: str, deadline: float, exist_by: float) -> list[Place]:
        started = time.monotonic()
        while True:
            left = max(0.1, deadline - time.monotonic())
            found = metadata(consumer, self._monitor, self._address, left, topic, doing="opening a topic").topics[topic]
            if found.error is None and found.partitions:
                numbers = sorted(cast(dict[int, Any], found.partitions))
                if self._partitions is not None:
                    numbers = [number for number in numbers if number in self._partitions]
                return [(topic, number) for number in numbers]
            if found.error is not None and found.error.code() in NO_RIGHT:
                raise explain_error(found.error, self._address, doing="reading", topic=topic)
            if time.monotonic() >= exist_by:
                waited = time.monotonic() - started
                raise UnknownTopicError(
                    f"topic {topic} does not exist at {self._address} (waited {waited:.1f} s); "
                    "create the topics with `pipeline topics` or start the learner"
                )
            consumer.poll(0.05)

    def _first(self, consumer: confluent_kafka.Consumer, place: Place) -> int:
        """Offsets, never symbols: a later loss is then told from the start's choice."""
        if isinstance(self._start, Mapping) and place in self._start:
            return self._start[place]
        low, high = self._watermarks(consumer, place, self._open_timeout)
        return high if self._start == "latest" else low

    def _watermarks(self, consumer: confluent_kafka.Consumer, place: Place, timeout: float) -> tuple[int, int]:
        deadline = time.monotonic() + timeout
        while True:
            left = max(0.05, deadline - time.monotonic())
            said = "no answer"
            try:
                # Not in small portions: a request that times out takes the connection with it, and a busy broker would
                # be asked for one handshake after another instead of for the offsets.
                found = consumer.get_watermark_offsets(TopicPartition(*place), timeout=min(5.0, left), cached=False)
                if found:  # None after a time-out, whatever the stub says
                    return found
            except KafkaException as exc:
                inner = kafka_error(exc)
                if inner is None or not _passing(inner):
                    raise translate(exc, self._address, doing="asking for offsets", topic=place[0]) from exc
                said = inner.str()
            if time.monotonic() >= deadline:
                raise BrokerUnreachableError(
                    f"{self._address} does not tell the offsets of {place[0]}[{place[1]}] within {timeout:.1f} s: "
                    f"{said}; check that the broker runs"
                )
            time.sleep(0.02)  # get_watermark_offsets() may have come back at once

    def _take(self, messages: Sequence[Any], into: list[Record]) -> None:
        # Some ten thousand times a second: names are looked up once, and types are left to the stubs' word.
        positions, append = self._next, into.append
        for message in messages:
            error = message.error()
            if error is not None:
                self._handle(error, message)
                continue
            topic, partition = message.topic(), message.partition()
            place, offset = (topic, partition), int(message.offset())
            expected = positions.get(place, offset)
            if offset != expected:
                if offset < expected:
                    continue  # fetched before a seek
                self._skipped(place, expected, offset)
            positions[place] = offset + 1
            append(
                Record(
                    topic,
                    partition,
                    offset,
                    message.timestamp()[1],
                    message.key(),
                    message.value() or b"",
                    message.headers(),
                )
            )

    def _skipped(self, place: Place, expected: int, offset: int) -> None:
        if not is_contiguous(place[0]):
            return
        self.gaps[place] = self.gaps.get(place, 0) + offset - expected
        if place not in self._told:
            self._told.add(place)
            logger.warning(
                "%s[%d] at %s skips from offset %d to %d: %d records are missing; further gaps of "
                "this partition are only counted",
                *place,
                self._address,
                expected,
                offset,
                offset - expected,
            )

    def _handle(self, error: KafkaError, message: Message) -> None:
        code = error.code()
        topic, partition = message.topic(), message.partition()
        if topic is not None and partition is not None and partition >= 0:
            place = (topic, partition)
            if code == KafkaError._PARTITION_EOF:
                self._at_end[place] = cast(int, message.offset())
                self._monitor.worked()
                return
            if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                self._jump(place)
                return
        if code in UNREACHABLE or code in TIMED_OUT or error.retriable():
            self._monitor.on_error(error)
            return
        raise explain_error(error, self._address, doing="reading", topic=topic)

    def _jump(self, place: Place) -> None:
        """The position is outside of what is kept: go to the oldest record, and count the loss."""
        consumer = cast(confluent_kafka.Consumer, self._consumer)
        low, high = self._watermarks(consumer, place, 5.0)
        expected = self._next[place]
        if expected > high:
            raise TopicReplacedError(
                f"position {expected} of {place[0]}[{place[1]}] at {self._address} lies beyond the "
                f"end of the log ({high}): the topic was made anew; start from the earliest record"
            )
        if expected < low:
            lost = low - expected
            self.expired[place] = self.expired.get(place, 0) + lost
            logger.warning(
                "%s[%d] at %s: %d records (offsets %d to %d) were removed by retention before they were read",
                *place,
                self._address,
                lost,
                expected,
                low - 1,
            )
        self.seek(place, max(low, expected))


def _passing(error: KafkaError) -> bool:
    """Whether asking again may help."""
    return (
        error.code() in UNREACHABLE
        or error.code() in TIMED_OUT
        # A topic that was made this moment: its leader is not everywhere known yet.
        or error.code()
        in (
            KafkaError._UNKNOWN_PARTITION,
            KafkaError.NOT_LEADER_FOR_PARTITION,
            KafkaError.LEADER_NOT_AVAILABLE,
        )
    )
