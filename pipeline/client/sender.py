"""What is pushed, on its way into the outbox: built into chunks, numbered within the session, and counted."""

import logging
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.client.builder import ChunkBuilder
from pipeline.client.counters import DROPPED, PUSHED
from pipeline.client.outbox import Item, Outbox
from pipeline.client.transition import Transition
from pipeline.experience import Chunk, EpisodeInfo, Layout, Version
from pipeline.wire import RecordHeaders, Signer, decode_chunk, encode_chunk, encode_episode, fingerprint

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sending:
    """What every record says of its sender.

    Attributes:
        run: the run's name.
        actor, session: the client's identity.
        layout: the run's columns.
        signer: vouches for the identity.
    """

    run: str
    actor: str
    session: str
    layout: Layout
    signer: Signer = field(default_factory=Signer)


class Sender(ABC):
    """Takes transitions, decides where chunks end, and queues them under the session's next number.

    Thread-safe. Derived classes decide where chunks end.

    Args:
        sending: what every record says.
        builder: of the run's layout.
        outbox: where records go.
        counters: shared with the uplink.
    """

    def __init__(self, sending: Sending, builder: ChunkBuilder, outbox: Outbox, counters: Any) -> None:
        self._sending = sending
        self._builder = builder
        self._outbox = outbox
        self._counters = counters
        self._lock = threading.Lock()
        self._sequence = 0
        self._schemas = {"samples": fingerprint("chunk"), "episodes": fingerprint("episode")}

    @abstractmethod
    def push(self, transition: Transition, version: Version) -> None:
        """Take one transition, or one of each sub-environment, acted under ``version``.

        Raises:
            InvalidSampleError: it does not fit the run's spaces; nothing of it is sent.
        """

    @abstractmethod
    def push_encoded(self, data: bytes, version: Version) -> None:
        """Take a chunk that is encoded already; what was pushed before goes out before it.

        Args:
            data: in the wire format.
            version: that of the agent's weights.

        Raises:
            InvalidRecordError: the bytes are no valid chunk of this run.
        """

    @abstractmethod
    def cut(self) -> None:
        """Queue everything that has been pushed."""

    def push_episode(self, episode: EpisodeInfo | bytes, version: Version) -> None:
        """Queue the summary of an episode, or its encoding."""
        value = episode if isinstance(episode, bytes) else encode_episode(episode)
        self._outbox.put(Item("episodes", value, self._headers("episodes", version, 1), 0))

    # -- for derived classes, which hold the lock ---------------------------------------------------------------------

    def _make_room(self, transition: Transition, version: Version) -> bool:
        """Whether the builder can take it; False if what it holds has to be cut first."""
        builder = self._builder
        if builder.steps and (builder.full or builder.version != version):
            return False
        return builder.reserve(_environments(transition))

    def _add(self, transition: Transition, version: Version) -> None:
        self._counters[PUSHED] += self._builder.add(transition, version)

    def _decode(self, data: bytes) -> Chunk:
        """An encoded chunk, checked as the learner will check it."""
        return decode_chunk(data, self._sending.layout)

    def _encode(self, chunk: Chunk, final: bool = False) -> bytes:
        chunk = replace(chunk, dropped=self._outbox.dropped_transitions, final=final)
        return encode_chunk(chunk, self._sending.layout)

    def _queue(self, value: bytes, version: Version, steps: int) -> int | None:
        """Queue a chunk; its number, or None if the outbox's policy dropped it."""
        item = Item("samples", value, self._headers("samples", version, steps), steps)
        sequence = self._sequence
        self._sequence += 1
        before = self._outbox.dropped_transitions
        queued = self._outbox.put(item)
        dropped = self._outbox.dropped_transitions
        if dropped != before:
            self._counters[DROPPED] = dropped
            if before == 0:
                log.warning("The queue (client.queue_bytes) is full: transitions are dropped (client.queue_policy).")
        return sequence if queued else None

    def _headers(self, topic: str, version: Version, count: int) -> list[tuple[str, bytes]]:
        sending = self._sending
        headers = RecordHeaders(
            run=sending.run,
            actor=sending.actor,
            session=sending.session,
            sequence=self._sequence,
            version=version,
            schema=self._schemas[topic],
            count=count,
        )
        return sending.signer.sign(headers).to_kafka()


def _environments(transition: Transition) -> int:
    """How many sub-environments the builder needs for this transition."""
    environment = transition.environment
    if environment is None:
        return len(transition.reward) if hasattr(transition.reward, "__len__") else 1
    return int(max(environment)) + 1 if hasattr(environment, "__len__") else int(environment) + 1
