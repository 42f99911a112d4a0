"""What can be said of a record before its turn in the fold: decoded, validated, with no state but the layout."""

from dataclasses import dataclass

from pipeline.broker import Record
from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.experience import Chunk, Layout
from pipeline.wire import Limits, RecordHeaders, Voucher, decode_chunk


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


class Examiner:
    """Decodes and validates records of one run.

    Args:
        layout: the run's columns.
        run: records of other runs are refused.
        limits: bounds on a record.
        voucher: tells in whose name a record was written; None: nobody does, and every name is taken as it is.
    """

    def __init__(self, layout: Layout, run: str, limits: Limits, voucher: Voucher | None = None) -> None:
        self._layout = layout
        self._run = run
        self._limits = limits
        self._voucher = voucher

    def examine(self, record: Record, skipped: int = 0, oldest: int = 0) -> Arrival:
        """Judge a record by its bytes; never raises.

        Args:
            record: of the samples topic.
            skipped: offsets before it that the log did not show.
            oldest: chunks of a version number below it are not decoded: they will be stale in their turn, too.
        """
        headers: RecordHeaders | None = None
        try:
            found = RecordHeaders.from_kafka(record.headers)
            if self._voucher is not None:
                # A forged name is none: nothing may be counted under it.
                self._voucher.check(found)
            headers = found
            if headers.run != self._run:
                raise InvalidRecordError(RejectReason.WRONG_RUN, f"it is of run {headers.run!r}, this is {self._run!r}")
            if headers.version.number < oldest:
                return Arrival(record, headers, None, None, skipped)
            chunk = decode_chunk(record.value or b"", self._layout, self._limits)
            _compare(headers, chunk)
            return Arrival(record, headers, chunk, None, skipped)
        except InvalidRecordError as error:
            return Arrival(record, headers, None, error, skipped)


def _compare(headers: RecordHeaders, chunk: Chunk) -> None:
    if headers.version != chunk.version or headers.count != chunk.steps:
        raise InvalidRecordError(
            RejectReason.HEADER_MISMATCH,
            f"the header says version {headers.version} and {headers.count} transitions, the chunk "
            f"{chunk.version} and {chunk.steps}",
        )
