"""One dead letter for every refused record: where it lies, why, and how it begins."""

import hashlib
import logging

from pipeline.broker import Producer, Record, Topics
from pipeline.errors import InvalidRecordError, PipelineError
from pipeline.wire import DeadLetter

log = logging.getLogger(__name__)

HEAD_BYTES = 1024


class DeadLetters:
    """Writes refused records' coordinates, reason, sha256 and first KiB to the dead-letters topic.

    Args:
        producer: shared with the learner's heartbeats.
        topics: the run's.
        run: its name.
    """

    def __init__(self, producer: Producer, topics: Topics, run: str) -> None:
        self._producer = producer
        self._topics = topics
        self._run = run
        self.written = 0

    def write(self, record: Record, actor: str, error: InvalidRecordError) -> None:
        """Queue one dead letter; never raises for the broker's sake: the count remains."""
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
        except PipelineError as failure:
            log.warning("A dead letter could not be written: %s", failure)
