"""The process beside the environment loop: it sends experience, fetches weights, and says that the actor lives.

It imports no torch and no Gymnasium environment. Three threads: the main one sends what comes through the pipe, one
follows the versions topic, one sends heartbeats and reads the learner's. When the pipe closes, because the connector
closed it or because its process died, the uplink flushes for a moment, says that it leaves where it took part in
synchronous training, and ends.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection as _Connection
from typing import Any, TypeAlias

from pipeline.broker import Delivery, LinkState, LogReader, Producer, Record, Topics
from pipeline.client.counters import (
    ALIVE,
    DROPPED,
    JUDGED,
    LEARNER_BEATS,
    LEARNER_SEQUENCE,
    LINK_UP,
    PUSHED,
    RUN_ENDED,
    STALE,
)
from pipeline.client.ledger import ActorLedger
from pipeline.client.mailbox import Mailbox
from pipeline.connect import Connection
from pipeline.errors import (
    BrokerAuthenticationError,
    BrokerError,
    DeliveryError,
    InvalidRecordError,
    PipelineError,
    QueueFullError,
    UnknownTopicError,
)
from pipeline.experience import Version
from pipeline.logs import configure_logging
from pipeline.weights import Follower, ObjectStore, unpack
from pipeline.wire import Heartbeat, Member, RecordHeaders, RunManifest, Signer, fingerprint

log = logging.getLogger(__name__)

Pipe: TypeAlias = "_Connection[Any, Any]"
_Item: TypeAlias = tuple[int, str, bytes, list[tuple[str, bytes]]]
_REFUSED_PAUSE_S = 2.0
_REFUSALS_SAID = 8


@dataclass(frozen=True)
class UplinkSettings:
    """What the uplink process is started with.

    Attributes:
        connection: broker and store.
        namespace, run: name the topics.
        actor, session: this client's identity.
        signer: vouches for it.
        queue_bytes: bound on librdkafka's own queue, in bytes.
        heartbeat_s: seconds between two heartbeats.
        log_level: of this process.
        ledger: file that says what was produced and acknowledged; empty: none.
        joins: whether the client asks to take part in synchronous training.
        loop_timeout_s: it does not ask while its loop has shown no life for so many seconds.
    """

    connection: Connection
    namespace: str
    run: str
    actor: str
    session: str
    signer: Signer
    queue_bytes: int
    heartbeat_s: float
    log_level: str
    ledger: str = ""
    joins: bool = False
    loop_timeout_s: float = 15.0


def run_uplink(settings: UplinkSettings, pipe: Pipe, mailbox: Mailbox, counters: Any) -> None:
    """Entry point of the process.

    Args:
        settings: see there.
        pipe: items come in as ``(index, topic, value, headers)``; ``("acknowledged", indices)``,
            ``("refused", index, sentence)``, ``("link", up, sentence)``, ``("version", version)`` for what the mailbox
            holds and ``("members", members)`` for what the learner says of them go out.
        mailbox: where weights are put.
        counters: ``int64[COUNTERS]`` shared with the connector, see :mod:`pipeline.client.counters`.
    """
    # Ctrl-C and a service manager's SIGTERM reach the whole group; the connector decides when the uplink ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    configure_logging(settings.log_level)
    uplink = _Uplink(settings, pipe, mailbox, counters)
    try:
        uplink.run()
        uplink.leave()
    finally:
        uplink.close()


class _Uplink:
    def __init__(self, settings: UplinkSettings, pipe: Pipe, mailbox: Mailbox, counters: Any) -> None:
        self._settings = settings
        self._pipe = pipe
        self._mailbox = mailbox
        self._counters = counters
        self._topics = Topics(settings.namespace, settings.run)
        self._acknowledged: list[int] = []
        self._sending = threading.Lock()
        self._stopping = threading.Event()
        self._version = Version(-1, -1)
        self._epoch = -1
        self._members: tuple[Member, ...] | None = None
        self._beats = 0
        self._loop = _Loop(settings.loop_timeout_s)
        self._ledger = ActorLedger(settings.ledger) if settings.ledger else None
        self._again: list[tuple[float, _Item]] = []
        self._refusals: set[str] = set()
        # Deliveries never time out, unless the user says so: what waits is sent, in order, whenever the broker is back.
        timeout = settings.connection.broker.producer.get("message.timeout.ms", 0)
        self._producer = Producer(
            settings.connection.broker,
            on_link=self._on_link,
            message_timeout_ms=timeout,
            queue_buffering_max_kbytes=max(1024, settings.queue_bytes // 1024),
            reconnect_backoff_max_ms=2000,
        )
        _, self._heartbeats = self._threads = [
            threading.Thread(target=self._guarded, args=(task,), name=task.__name__, daemon=True)
            for task in (self._follow_weights, self._exchange_heartbeats)
        ]

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        while True:
            try:
                waiting = self._pipe.poll(0.005)
                while waiting:
                    self._send(*self._pipe.recv())
                    waiting = self._pipe.poll(0)
            except (EOFError, OSError):
                return
            self._producer.poll(0)
            self._report()
            self._send_again(time.monotonic())

    def leave(self) -> None:
        """The connector is gone: where this client took part, say that it does no longer, behind all that it sent."""
        if not self._settings.joins:
            return
        self._stopping.set()
        self._producer.flush(2.0)
        self._heartbeats.join(2.0)
        self._beat(joins=False)

    def close(self) -> None:
        self._stopping.set()
        self._producer.flush(5.0)
        self._report()
        for thread in self._threads:
            thread.join(5.0)
        if self._ledger is not None:
            self._ledger.close()

    def _send(self, index: int, topic: str, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        name = self._topics.samples if topic == "samples" else self._topics.episodes
        ledger = self._ledger if topic == "samples" else None
        noted = ledger.produced(headers) if ledger is not None else None

        def delivered(delivery: Delivery) -> None:
            if delivery.error is None:
                if ledger is not None and noted is not None:
                    ledger.acknowledged(noted, delivery.partition, delivery.offset)
                self._acknowledged.append(index)
            elif isinstance(delivery.error, DeliveryError):
                # Timed out: the log may hold it or not. Its identity lets the learner count it once.
                self._again.append((0.0, (index, topic, value, headers)))
            elif isinstance(delivery.error, BrokerAuthenticationError | UnknownTopicError):
                # A right may be given, a topic made; until then the record waits, as it does without a broker.
                self._again.append((time.monotonic() + _REFUSED_PAUSE_S, (index, topic, value, headers)))
                self._say_refusal(delivery.error)
            else:
                # Such as one that the broker's topic does not take: it never will.
                self._tell("refused", index, str(delivery.error))

        while True:
            try:
                self._producer.send(name, value, key=self._settings.actor, headers=headers, on_delivery=delivered)
                return
            except QueueFullError:
                # librdkafka's queue is full; not reading the pipe leaves the rest with the connector's policy.
                self._producer.poll(0.05)
                self._report()
            except BrokerError as error:
                # Such as a record above the broker's bound: trying again would stop all that follow.
                self._tell("refused", index, str(error))
                return

    def _send_again(self, now: float) -> None:
        """Send what was not delivered and is due."""
        due = [item for when, item in self._again if when <= now]
        self._again = [(when, item) for when, item in self._again if when > now]
        for item in due:
            self._send(*item)

    def _say_refusal(self, error: PipelineError) -> None:
        """Once for each sentence: it comes back with every try."""
        if str(error) not in self._refusals and len(self._refusals) < _REFUSALS_SAID:
            self._refusals.add(str(error))
            self._tell("link", False, f"{error}.")

    def _report(self) -> None:
        if self._acknowledged:
            indices, self._acknowledged = self._acknowledged, []
            self._tell("acknowledged", indices)

    def _tell(self, *message: Any) -> None:
        with self._sending:
            try:
                self._pipe.send(message)
            except (BrokenPipeError, OSError):
                self._stopping.set()

    def _on_link(self, state: LinkState) -> None:
        self._counters[LINK_UP] = int(state.up)
        self._tell("link", state.up, state.sentence)

    def _guarded(self, task: Callable[[], None]) -> None:
        """Run a thread's task again after an error, with growing pauses, until the uplink stops."""
        pause = 0.2
        while not self._stopping.is_set():
            try:
                task()
                return
            except (BrokerAuthenticationError, UnknownTopicError) as error:
                self._say_refusal(error)
            except PipelineError as error:
                log.debug("%s: %s", task.__name__, error)
            self._stopping.wait(pause)
            pause = min(5.0, pause * 2)

    def _follow_weights(self) -> None:
        store = ObjectStore(self._settings.connection.store)
        follower = Follower(self._settings.connection.broker, store, self._topics)
        try:
            while not self._stopping.is_set():
                followed = follower.poll(0.1)
                if followed is None:
                    continue
                record = followed.record
                try:
                    self._mailbox.write(unpack(followed.data), record.version, record.exploration)
                except (ValueError, PipelineError) as error:
                    log.warning("version %d.%d cannot be used: %s", record.epoch, record.number, error)
                    continue
                self._version = record.version
                self._tell("version", record.version)
        finally:
            follower.close()

    def _exchange_heartbeats(self) -> None:
        settings = self._settings
        reader = LogReader(settings.connection.broker, self._topics.progress, start="latest")
        manifests = LogReader(settings.connection.broker, self._topics.runs, start="earliest")
        due, joined = 0.0, False
        try:
            while not self._stopping.is_set():
                for record in reader.poll(1000, 0.05):
                    self._note_learner(record)
                self._note_runs(manifests)
                joins = settings.joins and self._loop.lives(self._counters[ALIVE], time.monotonic())
                if joins != joined or time.monotonic() >= due:
                    due, joined = time.monotonic() + settings.heartbeat_s, joins
                    self._beat(joins)
        finally:
            reader.close()
            manifests.close()

    def _beat(self, joins: bool) -> None:
        settings = self._settings
        beat = Heartbeat(
            run=settings.run,
            node=settings.actor,
            role="actor",
            session=settings.session,
            sequence=self._beats,
            sent_ms=int(time.time() * 1000),
            version_epoch=max(0, self._version.epoch),
            version_number=max(0, self._version.number),
            transitions=self._counters[PUSHED],
            dropped=self._counters[DROPPED],
            joins=joins,
        )
        version = Version(beat.version_epoch, beat.version_number)
        headers = RecordHeaders(
            settings.run, settings.actor, settings.session, self._beats, version, fingerprint("heartbeat"), 1
        )
        self._beats += 1
        try:
            signed = settings.signer.sign(headers).to_kafka()
            self._producer.send(self._topics.heartbeats, beat.encode(), key=settings.actor, headers=signed)
        except QueueFullError:
            log.debug("no heartbeat: the producer's queue is full of samples")

    def _note_learner(self, record: Record) -> None:
        try:
            beat = Heartbeat.decode(record.value or b"")
        except InvalidRecordError:
            return
        if beat.role != "learner" or beat.run != self._settings.run or beat.version_epoch < self._epoch:
            return  # of an older epoch: a learner that was replaced and does not know it yet
        self._epoch = beat.version_epoch
        for position in beat.positions:
            if position.session == self._settings.session:
                self._counters[LEARNER_SEQUENCE] = position.sequence
                self._counters[JUDGED] = position.transitions
                self._counters[STALE] = position.stale
        if self._settings.joins and beat.members != self._members:
            self._members = beat.members
            self._tell("members", beat.members)
        self._counters[LEARNER_BEATS] += 1

    def _note_runs(self, manifests: LogReader) -> None:
        """What the newest manifest says; older ones, of a run that was gone on with, are passed over at once."""
        newest: RunManifest | None = None
        while records := manifests.poll(100, 0.0):
            for record in records:
                try:
                    manifest = RunManifest.decode(record.value or b"")
                except InvalidRecordError:
                    continue
                newest = manifest if manifest.run == self._settings.run else newest
        if newest is not None:
            self._counters[RUN_ENDED] = int(newest.state != "running")


class _Loop:
    """Whether the environment loop lives, by a counter that it moves.

    Args:
        timeout: seconds without a move after which it counts as standing still.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._moves = -1
        self._moved = 0.0

    def lives(self, moves: int, now: float) -> bool:
        """Tell how far the counter is at a time in seconds; whether it moved lately."""
        if moves != self._moves:
            self._moves, self._moved = moves, now
        return now - self._moved < self._timeout
