"""The versions topic, read as what it is: the run's one line of descent, without what fenced learners left there."""

import logging
from collections.abc import Callable

from pipeline.broker import BrokerSettings, LogReader, Topics
from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.experience import Version
from pipeline.wire import EVENTS, Journal, ModelVersionRecord

logger = logging.getLogger("pipeline.weights")

Progress = Callable[[int, int], None]
"""Told how many offsets of the topic are read, and how many there are."""


class Lineage:
    """What the versions topic says, fed with its records in the order of the log.

    A record of an epoch below the newest one before it comes from a learner that was replaced, and counts for
    nothing. So does an announcement whose number is not above the newest: a repetition after a lost answer. What
    remains has strictly growing numbers and never-falling epochs. Pins name a version of any epoch, and never
    change what the newest is.

    Args:
        run: records of other runs are passed over.
    """

    def __init__(self, run: str) -> None:
        self.run = run
        self.epoch = -1
        """The newest epoch, claimed or announced; −1 before the first."""
        self.versions: list[ModelVersionRecord] = []
        """The announced versions, by growing number."""
        self.claims: dict[int, ModelVersionRecord] = {}
        """Each epoch's claim."""
        self.pins: dict[Version, str] = {}
        """Versions that stay through clean-ups, each with the note of its newest pin."""
        self.fenced = 0
        """Records that came too late, from a replaced learner."""
        self.repeated = 0
        """Announcements and claims that said nothing new."""
        self.newer = 0
        """Records of a schema that only a newer release knows."""
        self._index: dict[int, int] = {}
        self._positions: list[dict[int, int]] = []

    @property
    def newest(self) -> ModelVersionRecord | None:
        """The newest announced version; None before the first."""
        return self.versions[-1] if self.versions else None

    @property
    def number(self) -> int:
        """The newest announced number; −1 before the first. The next version gets the one after it."""
        return self.versions[-1].number if self.versions else -1

    @property
    def transitions(self) -> int:
        """Transitions accepted up to the newest version, over all epochs."""
        return self.versions[-1].transitions if self.versions else 0

    @property
    def updates(self) -> int:
        """Train steps up to the newest version, over all epochs."""
        return self.versions[-1].updates if self.versions else 0

    def __len__(self) -> int:
        return len(self.versions)

    def note(self, record: ModelVersionRecord) -> bool:
        """Take in the log's next record; whether it counts."""
        if record.run != self.run:
            return False
        if record.kind == "pin":
            self.pins[record.version] = record.note
            return True
        if record.epoch < self.epoch:
            self.fenced += 1
            return False
        if record.kind == "claim":
            return self._claimed(record)
        self.epoch = record.epoch
        if record.number <= self.number:
            self.repeated += 1
            return False
        self._index[record.number] = len(self.versions)
        self.versions.append(record)
        return True

    def find(self, number: int) -> ModelVersionRecord | None:
        """The announced version of that number, if there is one."""
        index = self._index.get(number)
        return None if index is None else self.versions[index]

    def after(self, number: int) -> list[ModelVersionRecord]:
        """The announced versions above that number, in order: what recovery follows from a checkpoint of it."""
        index = self._index.get(number)
        if index is not None:
            return self.versions[index + 1 :]
        return [record for record in self.versions if record.number > number]

    def journal(self, number: int) -> Journal | None:
        """The journal of an announced version; None if it was published without one.

        Raises:
            KeyError: no such version was announced.
            InvalidRecordError: its journal is not one.
        """
        return _journal(self.versions[self._index[number]])

    def positions(self, number: int) -> dict[int, int]:
        """The next offset of each source after a version's steps: partitions of samples, and `COMMANDS`.

        Raises:
            KeyError: no such version was announced.
            InvalidRecordError: a journal up to it is not one.
        """
        index = self._index[number]
        while len(self._positions) <= index:
            at = dict(self._positions[-1]) if self._positions else {}
            self._positions.append(_advanced(at, _journal(self.versions[len(self._positions)])))
        return dict(self._positions[index])

    def _claimed(self, record: ModelVersionRecord) -> bool:
        if record.epoch in self.claims or record.epoch == self.epoch:
            self.repeated += 1
            return False
        self.epoch = record.epoch
        self.claims[record.epoch] = record
        return True


def read_lineage(
    settings: BrokerSettings, topics: Topics, timeout: float = 30.0, progress: Progress | None = None
) -> Lineage:
    """The lineage as the log holds it at the time of the call. What is no version record is passed over and said.

    Args:
        settings: the broker.
        topics: of the run.
        timeout: seconds without any progress after which the broker counts as away.
        progress: told after each batch.

    Raises:
        UnknownTopicError: the run has no versions topic.
        BrokerUnreachableError, BrokerAuthenticationError: the broker did not answer or refused.
    """
    lineage = Lineage(topics.run)
    place = (topics.versions, 0)
    with LogReader(settings, topics.versions, partitions=[0], open_timeout=timeout) as reader:
        end = reader.end_offsets(timeout)[place]
        for records in reader.batches_to_end(timeout):
            for record in records:
                try:
                    lineage.note(ModelVersionRecord.decode(record.value))
                except InvalidRecordError as exc:
                    lineage.newer += exc.reason is RejectReason.UNKNOWN_SCHEMA
                    logger.warning("%s@%d is no version: %s", record.topic, record.offset, exc)
            if progress is not None:
                progress(min(end, reader.positions()[place]), end)
    return lineage


def _journal(record: ModelVersionRecord) -> Journal | None:
    return None if record.journal is None else Journal.decode(record.journal)


def _advanced(at: dict[int, int], journal: Journal | None) -> dict[int, int]:
    if journal is None:
        return at
    if journal.positions:
        at = dict(journal.positions)
    for step in journal.steps:
        if step.source == EVENTS:
            continue  # they lie on no topic
        # A step that only carries train steps may name an older position.
        at[step.source] = max(step.next_offset, at.get(step.source, 0))
    return at
