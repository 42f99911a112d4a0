"""What an environment loop holds: experience goes out, weights come in, and the loop never waits on the network.

The semantics are those of SoulsAI's ``client.connector.DQNConnector`` (reference 000): messages are uploaded, weights
followed and heartbeats sent beside the loop, and agent and ``model_id`` are used inside ``with con:``.
"""

import atexit
import gc
import json
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from multiprocessing import get_context
from types import TracebackType
from typing import Any, Self

from pipeline.algorithms import Agent
from pipeline.algorithms.spec import network_spec
from pipeline.broker import Topics, find_run
from pipeline.client.builder import ChunkBuilder
from pipeline.client.ledger import ActorLedger
from pipeline.client.mailbox import Mailbox
from pipeline.client.outbox import Item, Outbox, QueuePolicy
from pipeline.client.transition import Transition
from pipeline.client.uplink import (
    COUNTERS,
    DROPPED,
    LEARNER_SEQUENCE,
    LINK_UP,
    PUSHED,
    RUN_ENDED,
    UplinkSettings,
    run_uplink,
)
from pipeline.config import PipelineConfig, from_dict
from pipeline.connect import connect, signer_of
from pipeline.errors import ClientError, ConnectorClosedError, ServerTimeoutError
from pipeline.experience import EpisodeInfo, Layout, Version
from pipeline.wire import (
    RecordHeaders,
    RunManifest,
    decode_chunk,
    encode_chunk,
    encode_episode,
    fingerprint,
)

log = logging.getLogger(__name__)


class DQNConnector:
    """Connects an environment loop to a run.

    Example:
        >>> con = DQNConnector(load_config(["kafka.bootstrap_servers=broker:9092"]))
        >>> with con:
        ...     action = con.agent.act(observation, con.epsilon)
        >>> con.push_sample(Transition(observation, action, reward, following, terminated, truncated))

    Inside ``with con:`` the agent's weights, ``model_id`` and ``epsilon`` belong together and do not change; a newer
    version is taken over on entry. Entering never waits: while the uplink writes new weights, the old ones stay.

    The uplink is a process of its own, started by ``spawn``; scripts guard their start with
    ``if __name__ == "__main__":``. If it dies it is started again, and what the broker had not acknowledged is sent
    again with the same identity, so that the learner counts it once.

    Args:
        config: see :class:`pipeline.config.PipelineConfig`. ``run`` empty takes the newest run.

    Raises:
        RunNotFoundError: there is no such run on the broker.
        BrokerUnreachableError: nobody answers at the address.
        ServerTimeoutError: no weights came within ``client.first_weights_timeout_s``.
        ClientError: the file of ``client.ledger`` cannot be opened.
    """

    def __init__(self, config: PipelineConfig) -> None:
        settings = config.client
        connection = connect(config)
        self.manifest: RunManifest = find_run(
            connection.broker, config.namespace, config.run or None, timeout=config.kafka.timeout_s
        )
        self.run = self.manifest.run
        self.run_config: PipelineConfig = from_dict(json.loads(self.manifest.config_json))
        self.layout = Layout.from_json(json.loads(self.manifest.layout_json))
        self._signer = signer_of(config)
        self.actor = self._signer.actor(settings.actor or f"{socket.gethostname()}-{os.getpid()}")
        self.session = self._signer.new_session()
        if settings.ledger:
            # What cannot be opened is said here, not by an uplink that dies again and again.
            ActorLedger(settings.ledger).close()
        self.agent = Agent(self.layout, network_spec(self.run_config.algorithm), seed=settings.seed)

        self._settings = settings
        self._topics = Topics(config.namespace, self.run)
        self._exploration = self.run_config.algorithm.exploration
        self._builder = ChunkBuilder(self.layout, settings.chunk_steps, settings.chunk_bytes)
        self._outbox = Outbox(settings.queue_bytes, QueuePolicy(settings.queue_policy))
        self._context = get_context("spawn")
        self._counters: Any = self._context.RawArray("q", COUNTERS)
        self._counters[LINK_UP] = 1
        self._uplink_settings = UplinkSettings(
            connection=connection.with_manifest(self.manifest),
            namespace=config.namespace,
            run=self.run,
            actor=self.actor,
            session=self.session,
            queue_bytes=settings.queue_bytes,
            heartbeat_s=settings.heartbeat_s,
            log_level=config.log_level,
            ledger=settings.ledger,
        )
        self._counters[LEARNER_SEQUENCE] = -1
        self._sequence = 0
        self._queued: deque[tuple[int, int]] = deque()
        self._queued_transitions = 0
        self._oldest_pushed = 0.0
        self._version = Version(-1, -1)
        self._transitions = 0
        self._stamp = 0
        self._acting = threading.RLock()
        self._acting_depth = 0
        self._building = threading.Lock()
        self._closed = threading.Event()
        self._chunk_fingerprint = fingerprint("chunk")
        self._episode_fingerprint = fingerprint("episode")
        self.uplink_restarts = 0

        self._start_uplink()
        self._supervisor = threading.Thread(target=self._supervise, name="supervise", daemon=True)
        self._supervisor.start()
        self._feeder = threading.Thread(target=self._feed, name="feed", daemon=True)
        self._feeder.start()
        atexit.register(self.close)
        self._wait_for_weights(settings.first_weights_timeout_s)
        # A full collection over the hundred thousands of objects that torch and Gymnasium bring would hold the loop for
        # a quarter of a second; what is there by now stays for good.
        gc.collect()
        gc.freeze()

    # -- acting -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._acting.acquire()
        self._acting_depth += 1
        if self._acting_depth == 1 and self._mailbox.stamp != self._stamp:
            self._take_over()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._acting_depth -= 1
        self._acting.release()

    @property
    def model_id(self) -> int:
        """The version number of the agent's weights. Use it inside ``with con:``."""
        return self._version.number

    @property
    def version(self) -> Version:
        """Epoch and number of the agent's weights. Use it inside ``with con:``."""
        return self._version

    @property
    def epsilon(self) -> float:
        """ε of the run's schedule at the agent's version."""
        schedule = self._exploration
        progress = min(1.0, self._transitions / max(1, schedule.transitions))
        return schedule.start + progress * (schedule.end - schedule.start)

    # -- sending ------------------------------------------------------------------------------------------------------

    def push_sample(self, sample: Transition | Mapping[str, Any] | bytes) -> None:
        """Send experience: one transition, one of each sub-environment, or a chunk that is already encoded.

        Returns at once; only with the queue policy ``block`` it waits while the queue is full.

        Args:
            sample: a :class:`Transition` or a mapping with its fields, or the bytes of a chunk in the wire format.

        Raises:
            InvalidSampleError: it does not fit the run's spaces; nothing of it is sent.
            InvalidRecordError: the bytes are no valid chunk of this run.
            ConnectorClosedError: after :meth:`close`.
        """
        self._check_open()
        if isinstance(sample, bytes):
            with self._building:
                self._cut()
                self._queue_chunk(sample, *_measure(sample, self.layout))
            return
        transition = sample if isinstance(sample, Transition) else Transition(**sample)
        with self._building:
            builder = self._builder
            if builder.steps and (builder.full or builder.version != self._version):
                self._cut()
            if not builder.reserve(_environments(transition)):
                self._cut()
                builder.reserve(_environments(transition))
            if not builder.steps:
                self._oldest_pushed = time.monotonic()
            self._counters[PUSHED] += builder.add(transition, self._version)
            if builder.full:
                self._cut()

    def push_episode_info(self, episode_info: EpisodeInfo | Mapping[str, Any] | bytes) -> None:
        """Send the summary of a finished episode; returns at once.

        Args:
            episode_info: an :class:`EpisodeInfo`, its encoding, or a mapping with at least ``steps`` and
                ``total_return``; actor, session, version and times are filled in.

        Raises:
            ConnectorClosedError: after :meth:`close`.
        """
        self._check_open()
        if isinstance(episode_info, bytes):
            value = episode_info
        else:
            info = episode_info if isinstance(episode_info, EpisodeInfo) else self._complete(episode_info)
            value = encode_episode(info)
        headers = self._headers(self._episode_fingerprint, self._version, 1, self._sequence)
        self._outbox.put(Item("episodes", value, headers.to_kafka(), 0))

    def flush(self, timeout: float = 10.0) -> bool:
        """Cut what has been pushed and wait until the broker has everything; False after ``timeout`` seconds."""
        with self._building:
            self._cut()
        return self._outbox.wait_empty(timeout)

    # -- pacing -------------------------------------------------------------------------------------------------------

    @property
    def lead(self) -> int:
        """Transitions that were pushed here and that the learner has not come to; dropped or lost ones do not count."""
        judged = self._counters[LEARNER_SEQUENCE]
        with self._building:
            while self._queued and self._queued[0][0] <= judged:
                self._queued_transitions -= self._queued.popleft()[1]
            return self._queued_transitions + self._builder.steps

    @property
    def run_ended(self) -> bool:
        """Whether the learner has said that the run is over."""
        return bool(self._counters[RUN_ENDED])

    @property
    def connected(self) -> bool:
        """Whether the broker answers."""
        return bool(self._counters[LINK_UP])

    def pace(self, timeout: float = 60.0) -> bool:
        """Wait while this client is more than ``client.max_lead`` transitions ahead of the learner.

        So the ratio of updates to samples holds and the broker's memory stays bounded. It does not wait while the
        broker is away (the queue's policy rules then), after the run has ended, or with ``max_lead`` 0.

        Returns:
            False if the learner did not come near within ``timeout`` seconds.
        """
        limit = self._settings.max_lead
        if limit == 0 or self.lead <= limit:
            return True
        with self._building:
            self._cut()
        deadline = time.monotonic() + timeout
        while self.lead > limit and self.connected and not self.run_ended and not self._closed.is_set():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    # -- ending -------------------------------------------------------------------------------------------------------

    @property
    def dropped(self) -> int:
        """Transitions that the bounded queue has dropped so far."""
        return self._outbox.dropped_transitions

    def close(self, timeout: float = 10.0) -> None:
        """Send what is queued for up to ``timeout`` seconds, then stop the uplink. What is left is counted and said."""
        if self._closed.is_set():
            return
        with self._building:
            self._cut()
        if not self._outbox.wait_empty(timeout if self.connected else min(timeout, 1.0)):
            log.warning("%d records were not acknowledged and are lost with this process", len(self._outbox))
        self._closed.set()
        self._outbox.close()
        self._pipe.close()
        self._supervisor.join(2.0)
        self._feeder.join(2.0)
        self._process.join(10.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(5.0)
        atexit.unregister(self.close)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _start_uplink(self) -> None:
        """A fresh process with a fresh pipe and mailbox: the old ones may have been left half-used."""
        mailbox = Mailbox(self._context, self.agent.weights())
        pipe, theirs = self._context.Pipe()
        process = self._context.Process(
            target=run_uplink,
            args=(self._uplink_settings, theirs, mailbox, self._counters),
            name=f"uplink-{self.actor}",
            daemon=True,
        )
        process.start()
        theirs.close()
        # Only the exchange holds the environment loop up, not the start of a process.
        with self._acting:
            self._mailbox, self._stamp = mailbox, 0
            self._pipe, self._process = pipe, process

    def _take_over(self) -> None:
        letter = self._mailbox.try_read()
        if letter is None:
            return
        with letter:
            # Never back: a fresh mailbox may hold what this agent has had already.
            if letter.version > self._version:
                self.agent.load(letter.tensors)
                self._version = letter.version
                self._transitions = letter.transitions
            self._stamp = letter.stamp

    def _wait_for_weights(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self._version.number < 0:
            with self:
                pass
            if self._version.number >= 0:
                return
            if time.monotonic() > deadline:
                self.close(timeout=0.0)
                raise ServerTimeoutError(
                    f"No weights of run {self.run!r} came within {timeout:g} s. Is its learner running, and does the "
                    f"object store at {self._uplink_settings.connection.store.endpoint} answer?"
                )
            time.sleep(0.005)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ConnectorClosedError("This connector has been closed; make a new one to go on.")

    def _headers(self, schema: str, version: Version, count: int, sequence: int) -> RecordHeaders:
        headers = RecordHeaders(
            run=self.run,
            actor=self.actor,
            session=self.session,
            sequence=sequence,
            version=version,
            schema=schema,
            count=count,
        )
        return self._signer.sign(headers)

    def _cut(self) -> None:
        """Queue what the builder holds; the caller holds ``_building``."""
        chunk = self._builder.cut()
        if chunk is not None:
            self._queue_chunk(encode_chunk(chunk, self.layout), chunk.version, chunk.steps, False)

    def _queue_chunk(self, value: bytes, version: Version, steps: int, count_pushed: bool = True) -> None:
        if count_pushed:
            self._counters[PUSHED] += steps
        headers = self._headers(self._chunk_fingerprint, version, steps, self._sequence)
        self._sequence += 1
        before = self._outbox.dropped_transitions
        if self._outbox.put(Item("samples", value, headers.to_kafka(), steps)):
            self._queued.append((headers.sequence, steps))
            self._queued_transitions += steps
        if self._outbox.dropped_transitions != before:
            self._counters[DROPPED] = self._outbox.dropped_transitions
            if before == 0:
                log.warning(
                    "The queue of %d bytes is full: transitions are dropped (%s).",
                    self._settings.queue_bytes,
                    self._settings.queue_policy,
                )

    def _complete(self, info: Mapping[str, Any]) -> EpisodeInfo:
        now = int(time.time() * 1000)
        values: dict[str, Any] = {
            "actor": self.actor,
            "session": self.session,
            "episode": 0,
            "environment": 0,
            "version": self._version,
            "started_ms": now,
            "ended_ms": now,
            **info,
        }
        try:
            return EpisodeInfo(**values)
        except TypeError as error:
            raise ClientError(f"The episode info is not complete: {error}") from error

    def _feed(self) -> None:
        """Thread: hand queued items to whatever uplink there is."""
        while not self._closed.is_set():
            taken = self._outbox.take(0.2)
            if taken is None:
                continue
            index, item = taken
            pipe = self._pipe
            try:
                pipe.send((index, item.topic, item.value, item.headers))
            except (BrokenPipeError, OSError):
                # The supervisor sees the same and starts another; rewind() gives this item out again.
                while self._pipe is pipe and not self._closed.wait(0.01):
                    continue

    def _supervise(self) -> None:
        """Thread: take the uplink's reports, replace it when it dies, cut chunks that have become old."""
        while not self._closed.is_set():
            try:
                if self._pipe.poll(min(0.05, self._settings.chunk_age_s / 2)):
                    self._note(*self._pipe.recv())
            except (EOFError, OSError):
                if self._closed.is_set():
                    return
                self._replace_uplink()
            self._cut_if_old()

    def _note(self, kind: str, *rest: Any) -> None:
        if kind == "acknowledged":
            self._outbox.acknowledge(rest[0])
        elif kind == "refused":
            self._outbox.refuse(rest[0])
            self._counters[DROPPED] = self._outbox.dropped_transitions
            log.error("A record cannot be sent and is dropped: %s", rest[1])
        elif rest[0]:
            log.info("%s", rest[1])
        else:
            log.warning("%s Acting goes on; what is queued is sent when the broker is back.", rest[1])

    def _replace_uplink(self) -> None:
        self._process.join(1.0)
        log.warning(
            "The uplink process ended (exit code %s); another one is started.",
            self._process.exitcode,
        )
        self.uplink_restarts += 1
        self._closed.wait(min(5.0, 0.1 * 2 ** min(self.uplink_restarts, 6)))
        old = self._pipe
        # Order matters: the outbox is rewound before the feeder sees the new pipe.
        self._outbox.rewind()
        self._start_uplink()
        old.close()

    def _cut_if_old(self) -> None:
        if not self._builder.steps or time.monotonic() - self._oldest_pushed < self._settings.chunk_age_s:
            return
        with self._building:
            self._cut()


def _environments(transition: Transition) -> int:
    """How many sub-environments the builder needs for this transition."""
    environment = transition.environment
    if environment is None:
        return len(transition.reward) if hasattr(transition.reward, "__len__") else 1
    return int(max(environment)) + 1 if hasattr(environment, "__len__") else int(environment) + 1


def _measure(data: bytes, layout: Layout) -> tuple[Version, int]:
    """Version and transitions of an encoded chunk, which is checked as the learner will check it."""
    chunk = decode_chunk(data, layout)
    return chunk.version, chunk.steps
