"""Appending records to the log: idempotent, bounded in bytes, and honest about the link."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from pipeline.broker.client import metadata, translate
from pipeline.broker.logs import AUTHENTICATION, LinkMonitor, LinkState, RateLimitedLog, explain
from pipeline.broker.settings import BrokerSettings, producer_options
from pipeline.broker.topics import fixed_partition
from pipeline.errors import BrokerError, DeliveryError, PipelineError, QueueFullError

Headers = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of one record.

    Attributes:
        topic, partition, offset: where it is in the log (offset −1 when ``error`` is set).
        timestamp_ms: its time in the log, unix milliseconds.
        error: ``None`` once the broker has it. A ``DeliveryError`` means *unknown*: the log may
            hold it all the same, so a record that is sent again must carry its own identity.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    error: PipelineError | None


class Producer:
    """Appends records, in order per partition, without duplicates within its session.

    Thread-safe. Callbacks (``on_delivery``, ``on_link``) run in the thread that calls ``poll``,
    ``flush`` or ``send_and_wait``, so somebody has to.

    Args:
        settings: the broker.
        on_link: told once when the broker is lost and once when it is back.
        transactional_id: makes this a transactional producer (see ``init_transactions``).
        overrides: librdkafka settings with underscores, e.g. ``message_timeout_ms=0`` for a
            producer that never gives up on a record.

    Raises:
        ConfigError: librdkafka does not know a setting or refuses its value.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        on_link: Callable[[LinkState], None] | None = None,
        transactional_id: str | None = None,
        **overrides: Any,
    ) -> None:
        self._address = settings.address
        self._monitor = LinkMonitor(settings.address, on_link)
        self._transactional = transactional_id is not None
        options = producer_options(settings, **overrides)
        if transactional_id is not None:
            options["transactional.id"] = transactional_id
        options["error_cb"] = self._monitor.on_error
        options["stats_cb"] = self._monitor.on_stats
        self._limit_kbytes = int(options["queue.buffering.max.kbytes"])
        self._closed = False
        try:
            self._producer = confluent_kafka.Producer(options, logger=RateLimitedLog())
        except KafkaException as exc:
            raise translate(exc, self._address, doing="starting a producer") from exc

    @property
    def link_up(self) -> bool:
        """Whether the link to the broker is believed to be up."""
        return self._monitor.up

    @property
    def transactional(self) -> bool:
        """Whether records go out in transactions."""
        return self._transactional

    def __len__(self) -> int:
        """Records not yet acknowledged (plus callbacks not yet served)."""
        return len(self._producer)

    def connect(self, timeout: float = 10.0) -> None:
        """Wait until a broker answers.

        Raises:
            BrokerUnreachableError, BrokerAuthenticationError: see ``client.metadata``.
        """
        metadata(self._producer, self._monitor, self._address, timeout, doing="connecting")
        self._monitor.worked()

    def send(
        self,
        topic: str,
        value: bytes,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> None:
        """Queue one record; returns at once. Versions and commands go to partition 0.

        Raises:
            QueueFullError: the queue is full; nothing was queued. Poll and try again.
            BrokerError: the record is too large, or the producer is fenced or closed.
        """
        if self._closed:
            raise BrokerError(f"the producer to {self._address} is closed")
        if partition is None:
            partition = fixed_partition(topic)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._monitor.worked()
            else:
                self._monitor.say_once(error, topic)
            if on_delivery is not None:
                on_delivery(self._delivery(error, message, topic))

        try:
            self._producer.produce(
                topic,
                value=value,
                key=key,
                headers=cast(Any, list(headers)) if headers else None,
                partition=-1 if partition is None else partition,
                on_delivery=delivered,
            )
        except BufferError as exc:
            raise QueueFullError(
                f"the producer's queue to {self._address} is full ({len(self._producer)} records, "
                f"at most {self._limit_kbytes} kB); poll and try again"
            ) from exc
        except KafkaException as exc:
            raise translate(exc, self._address, doing="sending a record", topic=topic) from exc

    def poll(self, timeout: float = 0.0) -> int:
        """Serve callbacks, waiting at most ``timeout`` seconds for the first; their number."""
        return self._producer.poll(timeout)

    def flush(self, timeout: float = 10.0) -> int:
        """Wait until every queued record is acknowledged; how many are still not after that."""
        return self._producer.flush(timeout)

    def send_and_wait(
        self,
        topic: str,
        value: bytes,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timeout: float = 10.0,
    ) -> Delivery:
        """Send one record (in a transaction of its own, if transactional) and wait for the broker.

        Raises:
            DeliveryError: not acknowledged within ``timeout`` seconds; the log may hold it or get
                it later, since it stays queued until ``message.timeout.ms``.
            BrokerUnreachableError, BrokerAuthenticationError, UnknownTopicError: known reasons.
        """
        done: list[Delivery] = []
        deadline = time.monotonic() + timeout
        if self._transactional:
            with self.transaction(timeout):
                self.send(topic, value, key, headers, partition, done.append)
        else:
            self.send(topic, value, key, headers, partition, done.append)
        while not done and time.monotonic() < deadline:
            self._producer.poll(min(0.1, max(0.0, deadline - time.monotonic())))
            refused = self._monitor.trouble
            if refused is not None and refused.code() in AUTHENTICATION:
                raise explain(refused, self._address, doing="sending a record", topic=topic)
        if not done:
            cause = self._monitor.trouble
            why = f": {cause.str()}" if cause is not None else ""
            raise DeliveryError(
                f"{self._address} did not acknowledge a record for {topic} within "
                f"{timeout:.1f} s{why}; whether the log holds it is unknown"
            )
        if done[0].error is not None:
            raise done[0].error
        return done[0]

    def init_transactions(self, timeout: float = 15.0) -> None:
        """Fence every older producer with the same transactional id. Call once, before sending.

        Raises:
            BrokerError, BrokerUnreachableError: the broker refused or did not answer.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._producer.init_transactions(min(5.0, max(0.1, deadline - time.monotonic())))
                return
            except KafkaException as exc:
                self._producer.poll(0)
                cause = self._monitor.trouble
                error = exc.args[0]
                if not error.retriable() or time.monotonic() >= deadline:
                    if cause is not None:
                        raise explain(cause, self._address, doing="claiming a run") from exc
                    raise translate(exc, self._address, doing="claiming a run") from exc

    @contextmanager
    def transaction(self, timeout: float = 15.0) -> Generator[None]:
        """Everything sent inside becomes visible at once when the block ends, or never.

        Raises:
            BrokerError: fenced by a newer producer, or the commit failed; nothing is visible.
        """
        try:
            self._producer.begin_transaction()
        except KafkaException as exc:
            raise translate(exc, self._address, doing="beginning a transaction") from exc
        try:
            yield
        except BaseException:
            self._abort(timeout)
            raise
        try:
            self._producer.commit_transaction(timeout)
        except KafkaException as exc:
            self._abort(timeout)
            raise translate(exc, self._address, doing="committing a transaction") from exc

    def close(self, timeout: float = 10.0) -> int:
        """Flush and close; how many records were left behind. Closing twice is fine."""
        if self._closed:
            return 0
        left = self._producer.flush(timeout)
        self._closed = True
        self._producer.purge()
        self._producer.poll(0)
        return left

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _abort(self, timeout: float) -> None:
        try:
            self._producer.abort_transaction(timeout)
        except KafkaException as exc:
            # The commit's or the block's own error is the one to raise.
            self._monitor.say_once(exc.args[0])

    def _delivery(self, error: KafkaError | None, message: Message, topic: str) -> Delivery:
        if error is None:
            offset = message.offset()
            return Delivery(
                topic,
                message.partition() or 0,
                -1 if offset is None else offset,
                message.timestamp()[1],
                None,
            )
        cause = self._monitor.trouble
        explained = explain(error, self._address, doing="delivering a record", topic=topic)
        if isinstance(explained, DeliveryError) and cause is not None:
            explained = DeliveryError(f"{explained} ({cause.str()})")
        return Delivery(topic, message.partition() or 0, -1, -1, explained)
