"""Appending records to the log: idempotent, bounded in bytes, and honest about the link."""

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from pipeline.broker.client import kafka_error, metadata, translate
from pipeline.broker.logs import (
    FENCED,
    NO_RIGHT,
    PURGED,
    LinkMonitor,
    LinkState,
    RateLimitedLog,
    explain,
    refuses,
)
from pipeline.broker.settings import TRANSACTION_DEFAULTS, BrokerSettings, producer_options
from pipeline.broker.topics import fixed_partition
from pipeline.errors import (
    BrokerError,
    BrokerUnreachableError,
    DeliveryError,
    FencedError,
    PipelineError,
    QueueFullError,
)

logger = logging.getLogger("pipeline.broker")

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
    ``flush`` or ``send_and_wait``, so somebody has to. A transactional producer sends inside of transactions only.

    On the embedded cluster transactions commit, and a commit takes an offset as on Kafka; but nobody is ever fenced,
    and what was aborted stays visible. There, only the epochs in the records tell of a learner that was replaced.

    Args:
        settings: the broker.
        on_link: told once when the broker is lost and once when it is back.
        transactional_id: makes this a transactional producer (see ``init_transactions``).
        guards: what the transactional id stands for, such as ``run lander``: named in errors.
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
        guards: str = "",
        **overrides: Any,
    ) -> None:
        self._address = settings.address
        self._monitor = LinkMonitor(settings, on_link)
        self._transactional = transactional_id is not None
        self._guards = guards or f"transactional id {transactional_id}"
        self._transactions = threading.Lock()
        self._unsettled: Literal["commit", "abort"] | None = None
        self._error: BrokerError | None = None
        self._begun = float("inf")
        options = producer_options(settings, **overrides)
        if transactional_id is not None:
            options = {**TRANSACTION_DEFAULTS, **options, "transactional.id": transactional_id}
        self._transaction_seconds = int(options.get("transaction.timeout.ms", 0)) / 1000
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

    @property
    def error(self) -> BrokerError | None:
        """What ended this producer for good, such as a ``FencedError``; None while it can go on."""
        return self._error

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
            FencedError: another process took over.
            BrokerError: the record is too large, or the producer is closed.
        """
        if self._closed:
            raise BrokerError(f"the producer to {self._address} is closed")
        if self._error is not None:
            raise self._error
        if partition is None:
            partition = fixed_partition(topic)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._monitor.worked()
            elif error.code() not in PURGED:
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
            raise self._explained(exc, "sending a record", topic) from exc

    def poll(self, timeout: float = 0.0) -> int:
        """Serve callbacks, waiting at most ``timeout`` seconds for the first; their number.

        Raises:
            FencedError, BrokerError: the producer has come to its end; see ``error``.
        """
        return self._serve(lambda: self._producer.poll(timeout))

    def flush(self, timeout: float = 10.0) -> int:
        """Wait until every queued record is acknowledged; how many are still not after that.

        Raises:
            FencedError, BrokerError: the producer has come to its end; see ``error``.
        """
        return self._serve(lambda: self._producer.flush(timeout))

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
            FencedError: another process took over, and the log does not hold it; see ``transaction``.
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
            self.poll(min(0.1, max(0.0, deadline - time.monotonic())))
            refused = self._monitor.trouble
            if refuses(refused):
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
        """Fence every older producer with the same transactional id, and end what it left open. Call once, first.

        When this returns, all that the older ones committed is visible to a reader.

        Raises:
            FencedError: a newer producer did the same in the meantime.
            BrokerUnreachableError, BrokerAuthenticationError, BrokerError: the broker did not answer or refused.
        """
        doing = f"taking over {self._guards}"
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._producer.init_transactions(min(1.0, max(0.1, deadline - time.monotonic())))
                self._monitor.worked()
                return
            except KafkaException as exc:
                self._serve_quietly()
                error, cause = cast(KafkaError, exc.args[0]), self._monitor.trouble
                if refuses(cause):
                    raise explain(cause, self._address, doing=doing) from exc
                if not error.retriable():
                    raise self._explained(exc, doing) from exc
                if time.monotonic() >= deadline:
                    raise BrokerUnreachableError(
                        f"no broker answers at {self._address} (waited {timeout:.1f} s while {doing}): "
                        f"{(cause or error).str()}; check the address and that the broker runs"
                    ) from exc

    @contextmanager
    def transaction(self, timeout: float = 15.0) -> Generator[None]:
        """Everything sent inside becomes visible at once when the block ends, or never.

        One transaction at a time: another thread's waits. If an earlier one was left with its outcome unknown, that
        is settled first.

        Args:
            timeout: seconds for beginning and committing, each.

        Raises:
            FencedError: a newer producer took over; nothing of the block is visible, now or later.
            DeliveryError: the broker did not answer in time. While beginning: nothing was sent. While committing:
                the outcome is unknown, and settled before the next transaction begins.
            BrokerError: the commit was refused; nothing is visible.
        """
        if not self._transactions.acquire(timeout=timeout):
            raise DeliveryError(
                f"a transaction at {self._address} has not begun within {timeout:.1f} s: one before it goes on"
            )
        try:
            self._begin(time.monotonic() + timeout)
            try:
                yield
            except BaseException:
                self._abort_quietly(time.monotonic() + timeout)
                raise
            self._commit(time.monotonic() + timeout)
        finally:
            self._transactions.release()

    def close(self, timeout: float = 10.0) -> int:
        """Flush and close; how many records were left behind. Closing twice is fine."""
        if self._closed:
            return 0
        try:
            left = self.flush(timeout)
        except BrokerError:  # nothing more can be sent; whoever sent has been told, or did not ask
            left = len(self._producer)
        self._closed = True
        self._producer.purge()
        self._serve_quietly()
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

    def _begin(self, deadline: float) -> None:
        if self._unsettled is not None:
            # An open commit may only be committed on, an open abort only aborted on.
            (self._commit if self._unsettled == "commit" else self._abort)(deadline, settling=True)
        try:
            self._producer.begin_transaction()
        except KafkaException as exc:
            raise self._explained(exc, "beginning a transaction") from exc
        self._begun = time.monotonic()

    def _commit(self, deadline: float, *, settling: bool = False) -> None:
        error = self._until_done(self._producer.commit_transaction, "commit", deadline)
        if error is None:
            return
        if not cast(KafkaError, error.args[0]).txn_requires_abort():
            raise self._explained(error, "committing a transaction") from error
        self._abort(deadline)
        if not settling:
            raise self._explained(error, "committing a transaction") from error

    def _abort(self, deadline: float, *, settling: bool = True) -> None:
        error = self._until_done(self._producer.abort_transaction, "abort", deadline)
        if error is not None:
            raise self._explained(error, "aborting a transaction") from error

    def _abort_quietly(self, deadline: float) -> None:
        """The block's own error is the one to raise; what is wrong here shows with the next transaction."""
        try:
            self._abort(deadline)
        except BrokerError as exc:
            logger.warning("%s", exc)

    def _until_done(
        self, call: Callable[[float], None], what: Literal["commit", "abort"], deadline: float
    ) -> KafkaException | None:
        """Call until it is done or refused, which is returned.

        Raises:
            DeliveryError: neither within the deadline; it is called again before the next transaction.
        """
        while True:
            self._unsettled = what
            try:
                call(max(0.1, deadline - time.monotonic()))
            except KafkaException as exc:
                error = cast(KafkaError, exc.args[0])
                if not error.retriable() or error.txn_requires_abort():
                    self._unsettled = None
                    return exc
                self._serve_quietly()
                if time.monotonic() >= deadline:
                    cause = self._monitor.trouble or error
                    raise DeliveryError(
                        f"{self._address} did not {what} a transaction in time: {cause.str()}; whether the log holds "
                        "its records is unknown, and settled before the next one begins"
                    ) from exc
            else:
                self._unsettled = None
                return None

    def _serve(self, call: Callable[[], int]) -> int:
        """A call that serves callbacks: out of it comes librdkafka's fatal error, as an exception."""
        try:
            return call()
        except KafkaException as exc:
            raise self._explained(exc, "serving the producer") from exc
        except SystemError as exc:
            # A callback met the exception that confluent_kafka had set a moment before, and may have swallowed it.
            if isinstance(exc.__cause__, KafkaException):
                raise self._explained(exc.__cause__, "serving the producer") from exc.__cause__
            if self._error is not None:
                raise self._error from exc
            raise

    def _serve_quietly(self) -> None:
        with suppress(BrokerError):
            self._serve(lambda: self._producer.poll(0))

    def _explained(self, exc: KafkaException, doing: str, topic: str | None = None) -> PipelineError:
        """The package's error; one that ends the producer is kept, and given again to whoever asks for more."""
        error = kafka_error(exc)
        if error is not None and error.code() == KafkaError._FATAL:
            self._serve_quietly()  # hands out what lies behind it
        if self._error is not None:
            return self._error
        if error is not None and (error.fatal() or error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)):
            self._error = self._ending(error, doing)
            return self._error
        return translate(exc, self._address, doing=doing, topic=topic)

    def _ending(self, error: KafkaError, doing: str) -> BrokerError:
        if error.code() in NO_RIGHT:
            # Whichever call it comes out of: what is refused is the transactional id.
            return cast(BrokerError, explain(error, self._address, doing=f"taking over {self._guards}"))
        if error.code() not in FENCED:
            return BrokerError(
                f"{error.name()} from {self._address} while {doing}: {error.str()}; the producer can send nothing "
                "more, start this process again"
            )
        # The broker gives a transaction up in the same words as it fences.
        expired = time.monotonic() - self._begun >= self._transaction_seconds
        instead = f", or the broker gave up a transaction open for {self._transaction_seconds:.0f} s" if expired else ""
        return FencedError(
            f"another learner has taken {self._guards} over at {self._address}, seen while {doing}{instead}; "
            f"this one stops ({error.str()})"
        )

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
