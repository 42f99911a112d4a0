"""Which offsets made which versions, as the journals say."""

from collections.abc import Mapping

from pipeline.errors import InvalidRecordError, ReplayError
from pipeline.offline.bounded import Extent
from pipeline.offline.ranges import Range
from pipeline.weights import Lineage
from pipeline.wire import COMMANDS, Journal, ModelVersionRecord

Positions = Mapping[int, int]
"""The next offset of each source: a partition of the samples, or `COMMANDS`."""


def samples_only(positions: Positions) -> dict[int, int]:
    """The positions of the samples' partitions."""
    return {source: offset for source, offset in positions.items() if source != COMMANDS}


def lost_before(positions: Positions, held: Mapping[int, Extent]) -> int:
    """Records at or after these positions that the samples topic no longer holds."""
    begins = samples_only(positions)
    return sum(max(0, extent.low - begins.get(partition, 0)) for partition, extent in held.items())


def announced(lineage: Lineage, wanted: Range) -> list[ModelVersionRecord]:
    """The announced versions within a range of numbers, in order.

    Raises:
        ReplayError: there are none; says which there are.
    """
    found = [record for record in lineage.versions if record.number in wanted]
    if not found:
        there = f"{lineage.versions[0].number}..{lineage.number}" if lineage.versions else "none yet"
        raise ReplayError(f"Run {lineage.run} has no version in {wanted}; announced are {there}.")
    return found


def journal_of(lineage: Lineage, record: ModelVersionRecord) -> Journal:
    """A version's journal.

    Raises:
        ReplayError: it was published without one, or with one that cannot be read.
    """
    try:
        journal = lineage.journal(record.number)
    except InvalidRecordError as error:
        raise ReplayError(f"The journal of version {record.version} cannot be read: {error}") from error
    if journal is None:
        raise ReplayError(f"Version {record.version} was published without a journal, by an older release.")
    return journal


def beginning_of(lineage: Lineage, record: ModelVersionRecord) -> Positions:
    """Where the steps of a version begin.

    Raises:
        ReplayError: a journal up to it cannot be read.
    """
    journal = journal_of(lineage, record)
    before = [known.number for known in lineage.versions if known.number < record.number]
    if journal.positions or not before:
        return journal.positions
    return lineage.positions(before[-1])


def of_versions(lineage: Lineage, wanted: Range, kind: str) -> dict[int, tuple[int, int]]:
    """First and next offset, by partition, of the samples or commands that some versions were made of.

    Raises:
        ReplayError: there is no such version, or a journal cannot be read.
    """
    spans: dict[int, tuple[int, int]] = {}
    for record in announced(lineage, wanted):
        begin, end = beginning_of(lineage, record), lineage.positions(record.number)
        for source, next_offset in end.items():
            if (source == COMMANDS) != (kind == "commands"):
                continue
            partition = 0 if source == COMMANDS else source
            first = begin.get(source, 0)
            known = spans.get(partition, (first, next_offset))
            spans[partition] = (min(first, known[0]), max(next_offset, known[1]))
    return spans
