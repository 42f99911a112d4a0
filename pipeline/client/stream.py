"""Experience as an endless stream: chunks end where they are full, have become old, or the version changes."""

import time
from collections import deque
from typing import Any

from pipeline.client.builder import ChunkBuilder
from pipeline.client.counters import JUDGED, LEARNER_SEQUENCE, PUSHED, STALE
from pipeline.client.freshness import Freshness
from pipeline.client.outbox import Outbox
from pipeline.client.sender import Sender, Sending
from pipeline.client.transition import Transition
from pipeline.experience import Version


class StreamSender(Sender):
    """Sends for asynchronous training, and knows how far ahead of the learner it is.

    Args:
        sending, builder, outbox, counters: see `Sender`.
        freshness: how large and how old chunks may get.
    """

    def __init__(
        self, sending: Sending, builder: ChunkBuilder, outbox: Outbox, counters: Any, freshness: Freshness
    ) -> None:
        super().__init__(sending, builder, outbox, counters)
        self._freshness = freshness
        self._begun = 0.0
        self._ahead: deque[tuple[int, int]] = deque()
        self._ahead_transitions = 0

    @property
    def lead(self) -> int:
        """Transitions that were pushed and that the learner has not come to; dropped or lost ones do not count."""
        with self._lock:
            self._forget_judged()
            return self._ahead_transitions + self._builder.steps

    def push(self, transition: Transition, version: Version) -> None:
        """See `Sender.push`; returns at once unless the outbox's policy is to wait."""
        with self._lock:
            if not self._make_room(transition, version):
                self._cut()
                self._make_room(transition, version)
            if not self._builder.steps:
                self._begun = time.monotonic()
            self._add(transition, version)
            if self._builder.full:
                self._cut()

    def push_encoded(self, data: bytes, version: Version) -> None:
        """See `Sender.push_encoded`; the chunk may be of any version."""
        chunk = self._decode(data)
        with self._lock:
            self._cut()
            self._counters[PUSHED] += chunk.steps
            self._send(data, chunk.version, chunk.steps)

    def cut(self) -> None:
        """See `Sender.cut`."""
        with self._lock:
            self._cut()

    def cut_if_old(self) -> float:
        """Cut what has waited long enough; the seconds after which to ask again."""
        age = self._freshness.age_s
        if self._builder.steps and time.monotonic() - self._begun >= age:
            self.cut()
        return age / 2

    def _cut(self) -> None:
        chunk = self._builder.cut()
        if chunk is not None:
            self._send(self._encode(chunk), chunk.version, chunk.steps)

    def _send(self, value: bytes, version: Version, steps: int) -> None:
        sequence = self._queue(value, version, steps)
        self._forget_judged()
        if sequence is not None:
            self._ahead.append((sequence, steps))
            self._ahead_transitions += steps
        counters, freshness = self._counters, self._freshness
        freshness.note(self._sequence, counters[LEARNER_SEQUENCE], counters[JUDGED], counters[STALE])
        self._builder.limit(freshness.steps)

    def _forget_judged(self) -> None:
        judged = self._counters[LEARNER_SEQUENCE]
        while self._ahead and self._ahead[0][0] <= judged:
            self._ahead_transitions -= self._ahead.popleft()[1]
