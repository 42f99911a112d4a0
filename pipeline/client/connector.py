"""What an environment loop holds: experience goes out, weights come in, and the loop never waits on the network.

The semantics are those of SoulsAI's ``client.connector`` (reference 000): messages are uploaded, weights followed and
heartbeats sent beside the loop, and agent and ``model_id`` are used inside ``with con:``. What the algorithms ask of it
beyond that is in :mod:`pipeline.client.dqn` and :mod:`pipeline.client.ppo`.
"""

import atexit
import gc
import json
import logging
import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.broker import check_schemas, find_run
from pipeline.client.builder import ChunkBuilder
from pipeline.client.counters import ALIVE, COUNTERS, LEARNER_SEQUENCE, LINK_UP, RUN_ENDED
from pipeline.client.handle import UplinkHandle
from pipeline.client.ledger import ActorLedger
from pipeline.client.mailbox import Letter, Mailbox
from pipeline.client.outbox import Outbox, QueuePolicy
from pipeline.client.processes import uplink_processes
from pipeline.client.sender import Sender, Sending
from pipeline.client.transition import Transition
from pipeline.client.uplink import UplinkSettings
from pipeline.config import PipelineConfig, from_dict
from pipeline.connect import connect, signer_of
from pipeline.errors import ClientError, ConnectorClosedError
from pipeline.experience import EpisodeInfo, Layout, Version
from pipeline.wire import RunManifest

log = logging.getLogger(__name__)

_LOOK_S = 0.05


class Acting(Protocol):
    """An agent whose weights are exchanged while it acts."""

    def weights(self) -> dict[str, NDArray[Any]]:
        """Views into its weights, by name."""
        ...

    def load(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Copy weights in."""
        ...


AgentT = TypeVar("AgentT", bound=Acting)
SenderT = TypeVar("SenderT", bound=Sender)


class Connector(ABC, Generic[AgentT, SenderT]):
    """Connects an environment loop to a run; what every algorithm's connector has in common.

    Inside ``with con:`` the agent's weights and ``model_id`` belong together and do not change.

    The uplink is a process of its own, which imports the script that started it; scripts guard their start with
    ``if __name__ == "__main__":``. If it dies it is started again, and what the broker had not acknowledged is sent
    again with the same identity, so that the learner counts it once.

    Derived classes fill the hooks, and say when weights are taken over and where chunks end.

    Attributes:
        manifest: the run's, as it was found.
        run: the run's name.
        run_config: the settings that the run's learner was started with.
        layout: the run's columns.
        actor, session: this client's identity.
        seed: for environments and exploration: ``client.seed`` and the actor's name together, so that clients that were
            started alike do not act alike.
        agent: acts; use it inside ``with con:``.

    Args:
        config: see :class:`pipeline.config.PipelineConfig`. ``run`` empty takes the newest run.
        stop: asked while the connector waits for the learner; True ends the waiting with ConnectorClosedError.
        manifest: the run's, where it is known already; otherwise it is looked up, and waited for.

    Raises:
        RunNotFoundError: there is no such run on the broker.
        BrokerUnreachableError: nobody answers at the address.
        ServerTimeoutError: the learner did not answer, or no weights came, within ``client.first_weights_timeout_s``.
        ClientError: the run is of another algorithm, or its learner of an older release, or the file of
            ``client.ledger`` cannot be opened.
        ConnectorClosedError: ``stop()`` said so.
    """

    ALGORITHMS: ClassVar[tuple[str, ...]]
    """Names of the algorithms whose runs this connector takes part in."""
    JOINS: ClassVar[bool] = False
    """Whether training is synchronous, so that the learner has to take a client in."""

    def __init__(
        self,
        config: PipelineConfig,
        *,
        stop: Callable[[], bool] = lambda: False,
        manifest: RunManifest | None = None,
    ) -> None:
        settings = config.client
        context = uplink_processes()
        connection = connect(config)
        self.manifest: RunManifest = manifest or find_run(
            connection.broker, config.namespace, config.run or None, timeout=config.kafka.timeout_s
        )
        check_schemas(self.manifest)
        self.run = self.manifest.run
        if self.manifest.algorithm not in self.ALGORITHMS:
            raise ClientError(
                f"Run {self.run!r} trains {self.manifest.algorithm!r}, and {type(self).__name__} takes part in runs of "
                f"{' or '.join(self.ALGORITHMS)} only. Use the connector of its algorithm, or name another run with "
                "run=NAME."
            )
        self.run_config: PipelineConfig = from_dict(json.loads(self.manifest.config_json))
        self.layout = Layout.from_json(json.loads(self.manifest.layout_json))
        signer = signer_of(config)
        self.actor = signer.actor(settings.actor or f"{socket.gethostname()}-{os.getpid()}")
        self.session = signer.new_session()
        if settings.ledger:
            # What cannot be opened is said here, not by an uplink that dies again and again.
            ActorLedger(settings.ledger).close()
        self.seed = int(np.random.SeedSequence([settings.seed, *self.actor.encode()]).generate_state(1)[0] >> 1)
        self.agent = self._make_agent(self.seed)

        self._settings = settings
        self._stop = stop
        self._store = connection.with_manifest(self.manifest).store
        self._counters: Any = context.RawArray("q", COUNTERS)
        self._counters[LINK_UP] = 1
        self._counters[LEARNER_SEQUENCE] = -1
        self._outbox = Outbox(settings.queue_bytes, self._queue_policy())
        self._sender = self._make_sender(
            Sending(self.run, self.actor, self.session, self.layout, signer),
            ChunkBuilder(self.layout, settings.chunk_steps, settings.chunk_bytes),
        )
        self._version = Version(-1, -1)
        self._exploration = 0.0
        self._acting = threading.RLock()
        self._acting_depth = 0
        self._news = threading.Condition()
        self._heard = 0
        self._newest = Version(-1, -1)
        self._closed = threading.Event()
        uplink = UplinkSettings(
            connection=connection.with_manifest(self.manifest),
            namespace=config.namespace,
            run=self.run,
            actor=self.actor,
            session=self.session,
            signer=signer,
            queue_bytes=settings.queue_bytes,
            heartbeat_s=settings.heartbeat_s,
            log_level=config.log_level,
            ledger=settings.ledger,
            joins=self.JOINS,
            loop_timeout_s=self.run_config.algorithm.sync.client_timeout_s,
        )
        self._uplink = UplinkHandle(
            context, uplink, self._counters, self._outbox, self.agent.weights(), self._hear, self._tick
        )
        self._taken: tuple[Mailbox, int] = self._uplink.mailbox, 0
        atexit.register(self.close)
        try:
            self._begin(settings.first_weights_timeout_s)
        except BaseException:
            self.close(timeout=0.0)
            raise
        # A full collection over the hundred thousands of objects that torch and Gymnasium bring would hold the loop for
        # a quarter of a second; what is there by now stays for good.
        gc.collect()
        gc.freeze()

    # -- hooks --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _make_agent(self, seed: int) -> AgentT:
        """The acting side of the run's algorithm."""

    @abstractmethod
    def _make_sender(self, sending: Sending, builder: ChunkBuilder) -> SenderT:
        """What decides where chunks end."""

    @abstractmethod
    def _begin(self, timeout: float) -> None:
        """Wait until acting may begin, with the weights to begin with.

        Args:
            timeout: seconds that the learner may be silent.
        """

    def _queue_policy(self) -> QueuePolicy:
        return QueuePolicy(self._settings.queue_policy)

    def _enter(self) -> None:
        """On entry to ``with con:``, while nobody acts."""

    def _hear(self, kind: str, news: Any) -> None:
        """In the supervising thread: the uplink tells of a version or of members."""
        with self._news:
            if kind == "version":
                self._newest = news
            self._heard += 1
            self._news.notify_all()

    def _tick(self) -> float:
        """In the supervising thread, now and then; the seconds after which it is wanted again."""
        return _LOOK_S

    # -- acting -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._acting.acquire()
        self._acting_depth += 1
        if self._acting_depth == 1:
            self._enter()
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
        self._counters[ALIVE] += 1
        if isinstance(sample, bytes):
            self._sender.push_encoded(sample, self._version)
        else:
            transition = sample if isinstance(sample, Transition) else Transition(**sample)
            self._sender.push(transition, self._version)

    def push_episode_info(self, episode_info: EpisodeInfo | Mapping[str, Any] | bytes) -> None:
        """Send the summary of a finished episode; returns at once.

        Args:
            episode_info: an :class:`EpisodeInfo`, its encoding, or a mapping with at least ``steps``, ``total_return``
                and ``ending``; actor, session, version and times are filled in.

        Raises:
            ClientError: the mapping lacks something, or has something else.
            ConnectorClosedError: after :meth:`close`.
        """
        self._check_open()
        known = isinstance(episode_info, EpisodeInfo | bytes)
        self._sender.push_episode(episode_info if known else self._complete(episode_info), self._version)

    def flush(self, timeout: float = 10.0) -> bool:
        """Send what has been pushed and wait until the broker has everything; False after ``timeout`` seconds."""
        self._sender.cut()
        return self._outbox.wait_empty(timeout)

    # -- figures ------------------------------------------------------------------------------------------------------

    @property
    def run_ended(self) -> bool:
        """Whether the learner has said that the run is over."""
        return bool(self._counters[RUN_ENDED])

    @property
    def connected(self) -> bool:
        """Whether the broker answers."""
        return bool(self._counters[LINK_UP])

    @property
    def dropped(self) -> int:
        """Transitions that the bounded queue has dropped so far."""
        return self._outbox.dropped_transitions

    @property
    def uplink_restarts(self) -> int:
        """How often the uplink process has died and was replaced."""
        return self._uplink.restarts

    # -- ending -------------------------------------------------------------------------------------------------------

    def close(self, timeout: float = 10.0) -> None:
        """Send what is queued for up to ``timeout`` seconds, then stop the uplink. What is left is counted and said."""
        if self._closed.is_set():
            return
        try:
            self._sender.cut()
        except ClientError as error:
            log.warning("The last chunk is not sent: %s", error)
        if not self._outbox.wait_empty(timeout if self.connected else min(timeout, 1.0)):
            log.warning("%d records were not acknowledged and are lost with this process", len(self._outbox))
        self._closed.set()
        self._uplink.close()
        atexit.unregister(self.close)

    # -- for derived classes ------------------------------------------------------------------------------------------

    def _take_over(self, accept: Callable[[Version], bool] = lambda _: True) -> bool:
        """Load what the mailbox holds, if it is new and ``accept`` takes its version; never waits.

        The caller holds ``_acting``.
        """
        mailbox = self._uplink.mailbox
        stamp = mailbox.stamp
        if not stamp or self._taken == (mailbox, stamp):
            return False
        letter = mailbox.try_read()
        if letter is None:
            return False
        with letter:
            return self._take(letter, accept)

    def _take(self, letter: Letter, accept: Callable[[Version], bool]) -> bool:
        # Never back: a fresh mailbox may hold what this agent has had already.
        new = letter.version > self._version
        if new and not accept(letter.version):
            return False
        self._taken = letter.mailbox, letter.stamp
        if new:
            self.agent.load(letter.tensors)
            self._version, self._exploration = letter.version, letter.exploration
        return new

    def _wait_for(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Wait until the condition holds, which is asked whenever there is news; False at the deadline.

        Raises:
            ConnectorClosedError: the connector was closed meanwhile, or ``stop()`` says so.
        """
        while True:
            heard = self._heard
            if condition():
                return True
            self._check_open()
            if self._stop():
                raise ConnectorClosedError("The wait for the learner was ended from outside.")
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._counters[ALIVE] += 1
            with self._news:
                if self._heard == heard:
                    self._news.wait(min(left, _LOOK_S))

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ConnectorClosedError("This connector has been closed; make a new one to go on.")

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
