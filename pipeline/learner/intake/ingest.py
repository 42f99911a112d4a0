"""Ahead of the fold, in a thread of its own: poll, decode, validate."""

import logging
import queue
import threading
from collections.abc import Callable

from pipeline.broker import LogReader, Record
from pipeline.errors import PipelineError
from pipeline.learner.intake.arrival import Arrival, Examiner

log = logging.getLogger(__name__)


class Ingest:
    """Reads samples and commands ahead of the learner, at most ``prefetch`` records.

    Args:
        reader: the samples topic, and the commands topic.
        samples: the samples topic's name.
        examiner: judges each record.
        prefetch: chunks that may wait.
        oldest: gives the oldest version number that is still accepted; older chunks are not decoded.
    """

    def __init__(
        self,
        reader: LogReader,
        samples: str,
        examiner: Examiner,
        prefetch: int,
        oldest: Callable[[], int],
    ) -> None:
        self._reader = reader
        self._samples = samples
        self._examiner = examiner
        self._oldest = oldest
        self._queue: queue.Queue[Arrival | Record] = queue.Queue(prefetch)
        self._stopping = threading.Event()
        self._error: PipelineError | None = None
        self._next: dict[int, int] = {}
        self._thread = threading.Thread(target=self._run_thread, name="ingest", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def take(self, timeout: float) -> Arrival | Record | None:
        """The next record in reading order, one of the commands topic as it is; None after ``timeout`` seconds.

        Raises:
            PipelineError: what ended the reading.
        """
        try:
            return self._queue.get(timeout=timeout) if timeout > 0 else self._queue.get_nowait()
        except queue.Empty:
            if self._error is not None:
                raise self._error from None
            return None

    def close(self) -> None:
        """Stop reading."""
        self._stopping.set()
        self._thread.join(10.0)
        self._reader.close()

    def _run_thread(self) -> None:
        try:
            self._reader.open()
            self._next = {
                partition: offset
                for (topic, partition), offset in self._reader.positions().items()
                if topic == self._samples
            }
            while not self._stopping.is_set():
                for record in self._reader.poll(256, 0.1):
                    self._put(self._judge(record) if record.topic == self._samples else record)
        except PipelineError as error:
            self._error = error

    def _put(self, arrival: Arrival | Record) -> None:
        while not self._stopping.is_set():
            try:
                self._queue.put(arrival, timeout=0.1)
                return
            except queue.Full:
                continue

    def _judge(self, record: Record) -> Arrival:
        skipped = max(0, record.offset - self._next.get(record.partition, record.offset))
        self._next[record.partition] = record.offset + 1
        return self._examiner.examine(record, skipped, self._oldest())
