"""Experience in rollouts: the last chunk of each one says so, and none is ever missing."""

from dataclasses import dataclass
from typing import Any

from pipeline.client.builder import ChunkBuilder
from pipeline.client.counters import PUSHED
from pipeline.client.outbox import Outbox
from pipeline.client.sender import Sender, Sending
from pipeline.client.transition import Transition
from pipeline.errors import ClientError
from pipeline.experience import Chunk, Version


@dataclass(frozen=True)
class _Held:
    """A chunk that may turn out to be the rollout's last; ``value`` where it came encoded."""

    chunk: Chunk
    value: bytes | None = None


class RolloutSender(Sender):
    """Sends for synchronous training.

    The learner takes a rollout as complete when its chunk marked ``final`` is there. Which chunk is the last is known
    only when the loop says so, so the newest chunk is held back until something follows it: a chunk is cut by the
    push that does not fit any more, never by age, and leaves when that push has been taken. So there always is a chunk
    to mark, whatever was pushed and however it failed.

    The outbox has to be one that waits: a chunk that it dropped would be a hole in the rollout.
    """

    def __init__(self, sending: Sending, builder: ChunkBuilder, outbox: Outbox, counters: Any) -> None:
        super().__init__(sending, builder, outbox, counters)
        self._held: _Held | None = None

    def push(self, transition: Transition, version: Version) -> None:
        """See `Sender.push`; waits while the outbox is full.

        Raises:
            ClientError: a chunk does not fit into the outbox at all.
        """
        with self._lock:
            if not self._make_room(transition, version):
                self._hold_built()
                self._make_room(transition, version)
            self._add(transition, version)
            self._release(final=False)

    def push_encoded(self, data: bytes, version: Version) -> None:
        """See `Sender.push_encoded`. Whether it is the rollout's last is decided here, not by its own mark.

        Raises:
            ClientError: it is of another version than the agent's weights, or does not fit into the outbox at all.
        """
        chunk = self._decode(data)
        if chunk.version != version:
            raise ClientError(
                f"The chunk was acted under version {chunk.version}, but this rollout is of version {version}: the "
                "learner takes no other. Encode chunks with the connector's `version`."
            )
        with self._lock:
            self._hold_built()
            self._hold(_Held(chunk, data))
            self._counters[PUSHED] += chunk.steps

    def cut(self) -> None:
        """See `Sender.cut`; the rollout stays incomplete."""
        with self._lock:
            self._hold_built()
            self._release(final=False)

    def finish(self) -> Version | None:
        """Queue the rest of the rollout and mark its end.

        Returns:
            The version that acted in it; None if nothing was pushed since the last call.
        """
        with self._lock:
            self._hold_built()
            if self._held is None:
                return None
            version = self._held.chunk.version
            self._release(final=True)
            return version

    def _hold_built(self) -> None:
        chunk = self._builder.cut()
        if chunk is not None:
            self._hold(_Held(chunk))

    def _hold(self, held: _Held) -> None:
        self._release(final=False)
        self._held = held

    def _release(self, final: bool) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        chunk = held.chunk
        value = held.value if held.value is not None and chunk.final == final else self._encode(chunk, final)
        if self._queue(value, chunk.version, chunk.steps) is None:
            raise ClientError(
                f"A chunk of {len(value)} bytes does not fit into the queue; make client.queue_bytes larger, or "
                "client.chunk_bytes smaller."
            )
