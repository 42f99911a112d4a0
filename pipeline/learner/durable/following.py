"""Following the journal: the steps that made a version, made again.

After a restart this brings the learner to the newest announced version; offline it computes published versions again.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from pipeline.broker import OrderedReader, Record
from pipeline.errors import InvalidRecordError, RecoveryError
from pipeline.experience import Version
from pipeline.learner.fold import Fold
from pipeline.weights import pack, sha256
from pipeline.wire import COMMANDS, EVENTS, Journal, JournalEvent, ModelVersionRecord

log = logging.getLogger(__name__)


class Samples(Protocol):
    """The samples topic, read partition by partition in a prescribed order: an ``OrderedReader``."""

    def take(self, partition: int, next_offset: int) -> Iterator[tuple[Record, int]]:
        """The records up to before ``next_offset``, each with the number of offsets missing before it."""
        ...


@dataclass(frozen=True)
class Computed:
    """A version, computed again.

    Attributes:
        announced: its announcement.
        tensors: the weights that came out.
        sha256: of these weights, packed.
        trouble: why the journal could not be followed to its end; empty: it was.
        same_samples: whether the log holds, byte for byte, the records that the learner applied.
    """

    announced: ModelVersionRecord
    tensors: dict[str, NDArray[Any]]
    sha256: str
    trouble: str = ""
    same_samples: bool = True

    @property
    def same_weights(self) -> bool:
        """Whether the weights are the announced ones to the last bit."""
        return not self.trouble and self.sha256 == self.announced.sha256

    @property
    def identical(self) -> bool:
        """Whether weights and samples are those of the announcement, to the last bit."""
        return self.same_weights and self.same_samples


def follow(
    fold: Fold,
    versions: Sequence[ModelVersionRecord],
    samples: Samples,
    on_version: Callable[[Computed], bool] = lambda computed: computed.identical,
) -> Computed | None:
    """Make the steps of these versions, one after the other.

    Args:
        fold: at the version before the first of them.
        versions: announcements of consecutive versions of one lineage.
        samples: positioned where the fold is.
        on_version: told of each; False ends the following there.

    Returns:
        The version reached last; None if there were none to follow.

    Raises:
        RecoveryError: a version has no journal, or one that cannot be, or does not follow the one before.
        BrokerError: the samples cannot be read.
    """
    computed = None
    for announced in versions:
        journal = read_journal(announced)
        _check_parent(fold.version, announced, journal)
        trouble = _make_steps(fold, announced, journal, samples)
        same = fold.next_journal().samples == journal.samples
        tensors = fold.weights()
        fold.cut(announced.version, tensors)
        computed = Computed(announced, tensors, sha256(pack(tensors)), trouble, same)
        if not on_version(computed):
            break
    return computed


def judge_on(fold: Fold, versions: Sequence[ModelVersionRecord], samples: OrderedReader) -> None:
    """Apply the records of these versions without training: for when their weights cannot be computed any more.

    So their chunks are experience, and do not count again when they are sent again.

    Args:
        fold: at the version before the first of them, or before the beginning.
        versions: announcements of consecutive versions of one lineage.
        samples: positioned where the fold is.

    Raises:
        RecoveryError: a version has no journal, or one that cannot be.
        BrokerError: the samples cannot be read.
    """
    for announced in versions:
        journal = read_journal(announced)
        for source, offset in journal.positions.items():
            fold.positions[source] = offset
            if source >= 0:
                samples.seek(source, offset)
        for _ in _applied(fold, announced, journal, samples):
            continue
        fold.cut(announced.version, {})


def read_journal(announced: ModelVersionRecord) -> Journal:
    """The journal in a version's announcement.

    Raises:
        RecoveryError: there is none that can be read.
    """
    try:
        if announced.journal is not None:
            return Journal.decode(announced.journal)
        why = "its announcement carries none"
    except InvalidRecordError as error:
        why = str(error)
    raise RecoveryError(f"The journal of version {announced.version} cannot be followed: {why}.")


def _make_steps(fold: Fold, announced: ModelVersionRecord, journal: Journal, samples: Samples) -> str:
    """What went wrong, or nothing."""
    if not journal.free_running:
        _train_until(fold, announced.updates)
    for updates in _applied(fold, announced, journal, samples):
        if not journal.free_running:
            _train_until(fold, announced.updates)
        for _ in range(updates):
            if not fold.train_due():
                return f"there is nothing to train on at update {fold.updates + 1}"
            fold.train()
    if fold.updates != announced.updates:
        return f"its journal leads to {fold.updates} updates, announced were {announced.updates}"
    return ""


def _applied(fold: Fold, announced: ModelVersionRecord, journal: Journal, samples: Samples) -> Iterator[int]:
    """Apply a journal's records, commands and events; after each, how many train steps are written down for here."""
    fold.enter(announced.version.epoch)
    examiner = fold.examiner()
    oldest = fold.version.number - fold.judge.window + 1
    commands, events = iter(journal.commands), iter(journal.events)
    for step in journal.steps:
        if step.source == COMMANDS:
            fold.note_command(next(commands))
            fold.positions[COMMANDS] = step.next_offset
        elif step.source == EVENTS:
            _note_event(fold, announced, next(events))
        else:
            for record, skipped in samples.take(step.source, step.next_offset):
                fold.apply(examiner.examine(record, skipped, oldest))
                yield 0
        yield step.updates


def _note_event(fold: Fold, announced: ModelVersionRecord, event: JournalEvent) -> None:
    try:
        fold.note_event(event)
    except InvalidRecordError as error:
        raise RecoveryError(f"The journal of version {announced.version} cannot be followed: {error}") from error


def _train_until(fold: Fold, updates: int) -> None:
    """Train as far as counts ask for it, but not beyond the version's cut."""
    while fold.updates < updates and fold.train_due():
        fold.train()


def _check_parent(version: Version, announced: ModelVersionRecord, journal: Journal) -> None:
    if journal.broken:
        raise RecoveryError(f"version {announced.version} does not follow from the one before: {journal.broken}")
    parent = journal.parent.number if journal.parent is not None else -1
    if parent != version.number:
        raise RecoveryError(
            f"Version {announced.version} was made of {journal.parent}, not of {version}: versions are missing between "
            "them on the versions topic."
        )
