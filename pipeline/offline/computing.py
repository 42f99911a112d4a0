"""Computing published versions again: from which state, and what comes out.

The learner's own fold makes the steps that the journal names, on the samples of the log (or of a copy).
"""

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from pipeline.broker import OrderedReader
from pipeline.errors import CheckpointError, RecoveryError
from pipeline.experience import Version
from pipeline.learner.durable.checkpoint import Saved, load_checkpoint, saved_checkpoints
from pipeline.learner.durable.following import Computed, follow, read_journal
from pipeline.learner.durable.recovery import begin, usable
from pipeline.learner.durable.run_folder import RunFolder
from pipeline.learner.fold import Fold
from pipeline.offline.bounded import Extent
from pipeline.offline.progress import Advance, silent
from pipeline.offline.spans import Positions, lost_before
from pipeline.weights import Lineage
from pipeline.wire import JournalCounters, ModelVersionRecord

log = logging.getLogger(__name__)

Versions = list[ModelVersionRecord]


@dataclass(frozen=True)
class Identical:
    """Versions ``first`` to ``last`` came out as they were announced."""

    first: Version
    last: Version


@dataclass(frozen=True)
class Unreachable:
    """Versions ``first`` to ``last`` cannot be computed again, and why."""

    first: Version
    last: Version
    why: str


@dataclass(frozen=True)
class Different:
    """The first version that came out otherwise.

    Attributes:
        computed: what came out.
        counters: the sums that did, too.
        lost: records that its journal, or one before it, names, and that the log no longer holds.
    """

    computed: Computed
    counters: JournalCounters
    lost: int


@dataclass(frozen=True)
class Altered:
    """The first version that was made of other samples than the log holds, though its weights come out the same.

    Attributes:
        announced: the version.
        counters: the sums as they came out.
    """

    announced: ModelVersionRecord
    counters: JournalCounters


Finding = Identical | Unreachable | Different | Altered


@dataclass(frozen=True)
class Verifier:
    """Computes versions of one run again.

    Attributes:
        lineage: of the run.
        new_fold: makes a fold in its initial state, with the settings of an epoch.
        open_samples: opens the samples at these positions; commands are passed over.
        folder: of the run, with its checkpoints.
        held: what the samples' partitions hold.
    """

    lineage: Lineage
    new_fold: Callable[[int], Fold]
    open_samples: Callable[[Positions], OrderedReader]
    folder: RunFolder
    held: Mapping[int, Extent]

    def check(self, wanted: Sequence[ModelVersionRecord], advance: Advance = silent) -> list[Finding]:
        """Compute consecutive versions, up to the first that differs.

        Where a restarted learner could not reach its predecessor's state, that one version cannot be computed again;
        what follows it can, from a checkpoint behind it.

        Raises:
            RecoveryError: a journal cannot be read.
            BrokerError: the samples cannot be read.
        """
        findings: list[Finding] = []
        for stretch in _stretches(wanted):
            broken = read_journal(stretch[0]).broken
            if broken:
                findings.append(Unreachable(stretch[0].version, stretch[0].version, broken))
            findings += self._stretch(stretch[1:] if broken else stretch, advance)
            if findings and isinstance(findings[-1], Different):
                break
        return findings

    def _stretch(self, stretch: Versions, advance: Advance) -> list[Finding]:
        """Versions of which each follows from the one before."""
        if not stretch:
            return []
        fold, why = self._start(stretch)
        if fold is None:
            return [Unreachable(stretch[0].version, stretch[-1].version, why)]
        passed = [record for record in stretch if record.number <= fold.version.number]
        findings: list[Finding] = [Unreachable(passed[0].version, passed[-1].version, why)] if passed else []
        return findings + self._follow(fold, stretch[len(passed) :], advance)

    def _follow(self, fold: Fold, wanted: Versions, advance: Advance) -> list[Finding]:
        """Compute the versions after the fold's, those before the wanted ones included."""
        ahead = [r for r in self.lineage.after(fold.version.number) if r.number <= wanted[-1].number]
        reached: list[Computed] = []
        altered: list[Finding] = []

        def note(computed: Computed) -> bool:
            reached.append(computed if not computed.same_weights else dataclasses.replace(computed, tensors={}))
            counters = fold.accounting.counters()
            other = not computed.same_samples or counters != read_journal(computed.announced).counters
            if computed.same_weights and other and not altered:
                altered.append(Altered(computed.announced, counters))
            if computed.announced.number >= wanted[0].number:
                advance(1, f"version {computed.announced.version}")
            return computed.same_weights

        trouble, lost = "", 0
        if ahead:
            with closing(self.open_samples(fold.positions)) as samples:
                try:
                    follow(fold, ahead, samples, note)
                except RecoveryError as error:
                    trouble = str(error)
                lost = samples.lost
        same = [c.announced for c in reached if c.same_weights and c.announced.number >= wanted[0].number]
        findings: list[Finding] = [Identical(same[0].version, same[-1].version)] if same else []
        findings += altered
        if reached and not reached[-1].same_weights:
            findings.append(Different(reached[-1], fold.accounting.counters(), lost))
        elif trouble:
            findings.append(Unreachable(ahead[len(reached)].version, wanted[-1].version, trouble))
        return findings

    # -- where to begin -----------------------------------------------------------------------------------------------

    def _start(self, stretch: Versions) -> tuple[Fold | None, str]:
        """A fold from which the stretch's versions follow, or as many of them as can be.

        Returns:
            The fold, if there is any, and why none from which all of them follow.
        """
        first, last, epoch = stretch[0].number, stretch[-1].number, stretch[0].epoch
        breaks = [r.number for r in self.lineage.versions if r.number <= first and read_journal(r).broken]
        earliest = breaks[-1] if breaks else -1
        found = [s for s in saved_checkpoints(self.folder.checkpoints) if earliest <= s.version.number < last]
        before = [saved for saved in found if saved.version.number < first]
        why = f"there is no checkpoint of an earlier version in {self.folder.checkpoints}"
        for saved in before:
            fold, trouble = self._at_checkpoint(saved, epoch)
            if fold is not None:
                return fold, ""
            why = f"checkpoint {saved.path.name} cannot be used: {trouble}"
        if earliest < 0:
            fold, trouble = self._at_beginning()
            if fold is not None:
                return fold, ""
            why = f"{why}, and {trouble}"
        for saved in reversed(found[: len(found) - len(before)]):
            fold, _ = self._at_checkpoint(saved, epoch)
            if fold is not None:
                return fold, why
        return None, why

    def _at_beginning(self) -> tuple[Fold | None, str]:
        first = self.lineage.versions[0]
        # Settings that were changed since, by hand or live, are in the journals.
        fold = self.new_fold(first.epoch)
        try:
            begin(fold, first, self.folder)
        except RecoveryError as error:
            return None, str(error)
        gone = lost_before(fold.positions, self.held)
        if first.number != 0 or gone:
            return None, f"the log no longer holds the run's beginning ({gone:,} records are gone)"
        return fold, ""

    def _at_checkpoint(self, saved: Saved, epoch: int) -> tuple[Fold | None, str]:
        fold = self.new_fold(epoch)
        try:
            snapshot = load_checkpoint(saved.path)
            # What was done after its version is in no journal, unless that was the newest: no use here.
            if fold.journal_of(snapshot).steps:
                return None, "it was made between two versions"
            if not usable(saved, self.lineage, str(snapshot.state.get("sha256")), in_midst=False):
                return None, "its version was not announced with its weights"
            fold.restore(snapshot)
        except CheckpointError as error:
            return None, str(error)
        gone = lost_before(fold.positions, self.held)
        if gone:
            return None, f"{gone:,} records after it are no longer on the log"
        with closing(self.open_samples(fold.positions)) as samples:
            refill = fold.refill(samples)
        return (fold, "") if refill is None or refill.exact else (None, f"the replay buffer is lost: {refill.trouble}")


def _stretches(wanted: Sequence[ModelVersionRecord]) -> Iterator[Versions]:
    """The versions, cut before each that does not follow from the one before."""
    stretch: Versions = []
    for record in wanted:
        if stretch and read_journal(record).broken:
            yield stretch
            stretch = []
        stretch.append(record)
    yield stretch
