"""A recorded run's samples, in the order in which its learner applied them, and judged as it did."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from pipeline.broker import Record
from pipeline.errors import InvalidRecordError, ReplayError
from pipeline.experience import Version
from pipeline.learner.intake.arrival import Arrival, Examiner
from pipeline.learner.intake.judge import Judge
from pipeline.offline.difference import counters_that_differ
from pipeline.offline.spans import journal_of
from pipeline.weights import Lineage
from pipeline.wire import COMMANDS, EVENTS, JournalCounters, JournalEvent, ModelVersionRecord


class OrderedSamples(Protocol):
    """The samples topic, read in a prescribed order: an `OrderedReader`."""

    missing: int

    def take(self, partition: int, next_offset: int) -> Iterator[tuple[Record, int]]:
        """The records up to before ``next_offset``, each with the number of offsets missing before it."""
        ...

    def seek(self, partition: int, offset: int) -> None:
        """Go on with another offset of a partition."""
        ...


@dataclass(frozen=True, slots=True)
class Judged:
    """One record of the samples topic and what became of it.

    Attributes:
        made: the version whose journal it is in.
        arrival: the record, decoded if it could be.
        verdict: as `Judge.judge` gives it.
    """

    made: ModelVersionRecord
    arrival: Arrival
    verdict: str


@dataclass(frozen=True)
class Difference:
    """The first version whose counters are not those of its journal.

    Attributes:
        version: the version.
        figures: those that differ, in a clause.
        gone: offsets that the log no longer held when it was read now, beyond those that the learner missed.
        broken: why a learner before it could not reach its predecessor's state, so that it judged with another
            memory; empty: none of them.
    """

    version: Version
    figures: str
    gone: int
    broken: str = ""

    def __str__(self) -> str:
        gone = f"; {self.gone:,} records have gone from the log since then" if self.gone else ""
        broken = f"; a learner had to go on without its predecessor's state ({self.broken})" if self.broken else ""
        return f"version {self.version}: {self.figures}{gone}{broken}"


class Walk:
    """Goes through the journals of a run's versions and judges their records again.

    Args:
        lineage: of the run.
        versions: consecutive ones of it.
        samples: positioned where the first of them begins.
        examiner: decodes and validates.
        judge: in the state that the learner's was in there.
    """

    def __init__(
        self,
        lineage: Lineage,
        versions: list[ModelVersionRecord],
        samples: OrderedSamples,
        examiner: Examiner,
        judge: Judge,
    ) -> None:
        self._lineage = lineage
        self._versions = versions
        self._samples = samples
        self._examiner = examiner
        self.judge = judge
        self.difference: Difference | None = None
        """The first version whose journal has other sums; None: there is none so far."""
        self._gone = 0
        self._broken = ""

    def records(self) -> Iterator[Judged]:
        """Every record that was applied, in order.

        Raises:
            ReplayError: a version has no readable journal, or one with an event that cannot be.
            BrokerError: the samples cannot be read.
        """
        for made in self._versions:
            yield from self._version(made)

    def _version(self, made: ModelVersionRecord) -> Iterator[Judged]:
        journal = journal_of(self._lineage, made)
        # What is in force while a version is in the making: its parent's number, its learner's epoch.
        parent = -1 if journal.parent is None else journal.parent.number
        in_force = Version(made.epoch, parent)
        self._broken = journal.broken or self._broken
        if journal.positions:
            for partition, offset in journal.positions.items():
                if partition != COMMANDS:
                    self._samples.seek(partition, offset)
        events = iter(journal.events)
        for step in journal.steps:
            if step.source == COMMANDS:
                continue
            if step.source == EVENTS:
                self._note_event(made, next(events))
                continue
            for record, skipped in self._samples.take(step.source, step.next_offset):
                arrival = self._examiner.examine(record, skipped)
                yield Judged(made, arrival, self.judge.judge(arrival, in_force))
            self._gone += self._samples.missing
        self.judge.cut(made.number)
        self._compare(made, journal.counters)

    def _note_event(self, made: ModelVersionRecord, event: JournalEvent) -> None:
        try:
            self.judge.note_event(event)
        except InvalidRecordError as error:
            raise ReplayError(f"The journal of version {made.version} cannot be followed: {error}") from error

    def _compare(self, made: ModelVersionRecord, then: JournalCounters) -> None:
        now = self.judge.accounting.counters()
        if self.difference is not None or now == then:
            return
        figures = counters_that_differ(then, now)
        gone = self._gone + max(0, now.expired - then.expired)
        self.difference = Difference(made.version, figures, gone, self._broken)
