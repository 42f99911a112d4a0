"""Ahead of the fold, in a thread of its own: poll, decode, validate."""

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.broker import LogReader, Record
from pipeline.errors import InvalidRecordError, PipelineError, RejectReason
from pipeline.experience import Chunk, Layout
from pipeline.wire import Limits, RecordHeaders, decode_chunk, fingerprint

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One record of the samples topic, judged as far as that needs no state.

    Attributes:
        record: where it lies and what it holds.
        headers: its headers; None if they are refused.
        chunk: its content; None if it is refused, or so old that it was not decoded.
        error: why it is refused; None for a good or an old one.
        skipped: offsets of its partition that the log did not show before it.
    """

    record: Record
    headers: RecordHeaders | None
    chunk: Chunk | None
    error: InvalidRecordError | None
    skipped: int


class Ingest:
    """Reads the samples topic ahead of the learner, at most ``prefetch`` chunks.

    Args:
        reader: the samples topic.
        layout: the run's columns.
        run: records of other runs are refused.
        limits: bounds on a record.
        prefetch: chunks that may wait.
        oldest: gives the oldest version number that is still accepted; older chunks are not decoded.
    """

    def __init__(
        self,
        reader: LogReader,
        layout: Layout,
        run: str,
        limits: Limits,
        prefetch: int,
        oldest: Callable[[], int],
    ) -> None:
        self._reader = reader
        self._layout = layout
        self._run = run
        self._limits = limits
        self._oldest = oldest
        self._schema = fingerprint("chunk")
        self._queue: queue.Queue[Arrival] = queue.Queue(prefetch)
        self._stopping = threading.Event()
        self._error: PipelineError | None = None
        self._next: dict[int, int] = {}
        self._thread = threading.Thread(target=self._run_thread, name="ingest", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def take(self, timeout: float) -> Arrival | None:
        """The next record in reading order; None after ``timeout`` seconds.

        Raises:
            PipelineError: what ended the reading.
        """
        try:
            return self._queue.get(timeout=timeout)
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
            self._next = {partition: offset for (_, partition), offset in self._reader.positions().items()}
            while not self._stopping.is_set():
                for record in self._reader.poll(256, 0.1):
                    self._put(self._judge(record))
        except PipelineError as error:
            self._error = error

    def _put(self, arrival: Arrival) -> None:
        while not self._stopping.is_set():
            try:
                self._queue.put(arrival, timeout=0.1)
                return
            except queue.Full:
                continue

    def _judge(self, record: Record) -> Arrival:
        skipped = max(0, record.offset - self._next.get(record.partition, record.offset))
        self._next[record.partition] = record.offset + 1
        headers: RecordHeaders | None = None
        try:
            headers = RecordHeaders.from_kafka(record.headers)
            if headers.run != self._run:
                raise InvalidRecordError(RejectReason.WRONG_RUN, f"it is of run {headers.run!r}, this is {self._run!r}")
            if headers.version.number < self._oldest():
                return Arrival(record, headers, None, None, skipped)
            chunk = decode_chunk(record.value or b"", self._layout, self._limits)
            self._compare(headers, chunk)
            return Arrival(record, headers, chunk, None, skipped)
        except InvalidRecordError as error:
            return Arrival(record, headers, None, error, skipped)

    def _compare(self, headers: RecordHeaders, chunk: Chunk) -> None:
        if headers.version != chunk.version or headers.count != chunk.steps:
            raise InvalidRecordError(
                RejectReason.HEADER_MISMATCH,
                f"the header says version {headers.version} and {headers.count} transitions, the chunk "
                f"{chunk.version} and {chunk.steps}",
            )
