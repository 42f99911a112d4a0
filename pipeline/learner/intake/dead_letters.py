"""A dead letter for a refused record: where it lies, why, and how it begins. A flood of them is cut off."""

import hashlib
import logging
import time
from collections.abc import Callable

from pipeline.broker import Producer, Record, Topics
from pipeline.errors import InvalidRecordError, PipelineError, RejectReason
from pipeline.learner.reports.metrics import LearnerMetrics
from pipeline.wire import DeadLetter

log = logging.getLogger(__name__)

HEAD_BYTES = 1024
BURST = 256
"""Letters that may be written at once."""
_SAY_EVERY_S = 60.0


class DeadLetters:
    """Writes refused records' coordinates, reason, sha256 and first KiB to the dead-letters topic.

    Whoever floods the samples topic with rubbish gets ``per_s`` letters a second, and the first of each reason; the
    others are counted. So a flood fills neither the topic nor the learner's time.

    Args:
        producer: shared with the learner's heartbeats.
        topics: the run's.
        run: its name.
        per_s: letters a second in the long run.
        metrics: count what is written and what is withheld.
        clock: seconds, monotonic.

    Attributes:
        written: letters handed to the producer.
        withheld: letters that were only counted.
    """

    def __init__(
        self,
        producer: Producer,
        topics: Topics,
        run: str,
        per_s: float,
        metrics: LearnerMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._producer = producer
        self._topics = topics
        self._run = run
        self._per_s = per_s
        self._metrics = metrics
        self._clock = clock
        self._allowed = float(BURST)
        self._counted_at = clock()
        self._reasons: set[RejectReason] = set()
        self._say_at = float("-inf")
        self.written = 0
        self.withheld = 0

    def write(self, record: Record, actor: str, error: InvalidRecordError) -> None:
        """Queue one dead letter, or count it; never raises for the broker's sake."""
        if not self._may(error.reason):
            self._withhold()
            return
        value = record.value or b""
        letter = DeadLetter(
            run=self._run,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=max(0, record.timestamp_ms),
            reason=error.reason.value,
            detail=error.detail[:500],
            actor=actor,
            sha256=hashlib.sha256(value).hexdigest(),
            head=bytes(value[:HEAD_BYTES]),
        )
        try:
            self._producer.send(self._topics.dead_letters, letter.encode())
            self.written += 1
            self._metrics.letters.inc()
        except PipelineError as failure:
            log.warning("A dead letter could not be written: %s", failure)

    def _may(self, reason: RejectReason) -> bool:
        """Whether a letter is within the rate; the first of a reason always is."""
        now = self._clock()
        self._allowed = min(float(BURST), self._allowed + (now - self._counted_at) * self._per_s)
        self._counted_at = now
        if self._allowed >= 1.0:
            self._allowed -= 1.0
        elif reason in self._reasons:
            return False
        self._reasons.add(reason)
        return True

    def _withhold(self) -> None:
        self.withheld += 1
        self._metrics.withheld.inc()
        now = self._clock()
        if now >= self._say_at:
            self._say_at = now + _SAY_EVERY_S
            log.warning(
                "Records of run %s are refused faster than learner.dead_letters_per_s=%g: %d dead letters were not "
                "written so far; the records are counted by reason as before.",
                self._run,
                self._per_s,
                self.withheld,
            )
