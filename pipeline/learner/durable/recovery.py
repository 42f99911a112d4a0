"""From a crash to where the learner was: checkpoint, buffer, journal.

(1) The newest checkpoint that is whole and whose version was announced with the same sha256; without one, the
beginning. (2) What the checkpoint left to the log, the replay buffer, is read back. (3) The journal is followed up to
the newest announced version, which must come out with its announced sha256. What the old learner did after it was
seen by nobody and is done anew, from the same records.
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pipeline.broker import OrderedReader
from pipeline.errors import CheckpointError, ConfigError, RecoveryError
from pipeline.experience import Version
from pipeline.files import replace_folder
from pipeline.learner.durable.checkpoint import Saved, load_checkpoint, manifest_sha256, saved_checkpoints
from pipeline.learner.durable.decisive import launched_with
from pipeline.learner.durable.following import Computed, follow, judge_on, read_journal
from pipeline.learner.durable.run_folder import RunFolder
from pipeline.learner.fold import Fold
from pipeline.learner.intake.accounting import Accounting
from pipeline.weights import Lineage
from pipeline.wire import ModelVersionRecord

log = logging.getLogger(__name__)

OpenSamples = Callable[[Mapping[int, int]], OrderedReader]
"""Opens the samples topic at these positions, to be read in a prescribed order; whoever recovers closes it."""


@dataclass(frozen=True)
class Recovered:
    """Where the learner stands.

    Attributes:
        began_at: the version of the checkpoint that was used; None: the beginning of the run.
        versions: how many were computed again.
        transitions: read back into the buffer.
        trouble: why the newest version's very state could not be reached; empty: it was.
    """

    began_at: Version | None
    versions: int
    transitions: int
    trouble: str = ""


def recover(
    fold: Fold,
    lineage: Lineage,
    folder: RunFolder,
    open_samples: OpenSamples,
    fetch: Callable[[ModelVersionRecord], dict[str, NDArray[Any]]],
) -> Recovered:
    """Bring a new fold to the newest announced version.

    Args:
        fold: in its initial state.
        lineage: with at least one version.
        folder: the run's, with its checkpoints.
        open_samples: see there.
        fetch: an announced version's tensors from the store.

    Returns:
        What was done. With a ``trouble``, the fold holds the nearest state that could be reached, under the newest
        version's number.

    Raises:
        RecoveryError: that, where ``learner.require_exact`` is on.
        BrokerError, StoreError: broker or store failed.
    """
    newest = lineage.newest
    if newest is None:
        raise AssertionError("there is nothing to recover to")
    began = time.monotonic()
    saved = _newest_good(fold, lineage, folder)
    if saved is None:
        trouble, transitions = _begin_anew(fold, lineage, folder), 0
    else:
        log.info("Recovering from checkpoint %s.", saved.path.name)
        trouble, transitions = _refill(fold, open_samples)
    found = Recovered(saved.version if saved else None, 0, transitions, trouble)
    if not found.trouble:
        found = _follow(fold, lineage, open_samples, found)
    if found.trouble:
        _settle(fold, lineage, newest, found, open_samples, fetch)
    log.info(
        "Run %s goes on after version %s: %s, %d transitions read back, %d versions computed again%s, in %.1f s.",
        fold.run_name,
        newest.version,
        f"checkpoint {found.began_at}" if found.began_at is not None else "from its beginning",
        found.transitions,
        found.versions,
        " and identical" if found.versions and not found.trouble else "",
        time.monotonic() - began,
    )
    return found


def start_from(fold: Fold, origin: Path, folder: RunFolder) -> tuple[str, str]:
    """Let a new run start from another run's checkpoint; a copy of it is kept in the run's folder.

    Returns:
        Run and version that it is of, and the sha256 of its manifest: what the journal says of it.

    Raises:
        CheckpointError: it is missing, damaged, or of another network.
    """
    snapshot = load_checkpoint(origin)
    fold.restore_origin(snapshot)
    identity = manifest_sha256(origin)
    copy = folder.origin(identity)
    if not copy.is_dir():
        replace_folder(copy, {path.name: path.read_bytes() for path in origin.iterdir()})
    state = snapshot.state
    return f"{state['run']}@{Version(state['epoch'], state['number'])}", identity


def begin(fold: Fold, first: ModelVersionRecord, folder: RunFolder) -> None:
    """Bring a new fold to where a run's first version was made.

    Raises:
        RecoveryError: the run began with another seed, or from a checkpoint that is gone.
    """
    journal = read_journal(first)
    if journal.seed != fold.config.learner.seed:
        raise RecoveryError(f"the run began with seed {journal.seed}, the settings say {fold.config.learner.seed}")
    if journal.origin:
        try:
            start_from(fold, folder.origin(journal.origin_sha256), folder)
        except CheckpointError as error:
            raise RecoveryError(f"the run began with checkpoint {journal.origin}, which is gone: {error}") from error
    fold.positions = dict(journal.positions)
    fold.forget_ledger()


def usable(saved: Saved, lineage: Lineage, sha256: str, *, in_midst: bool) -> bool:
    """Whether a checkpoint lies on the lineage: its version was announced, with its weights.

    Args:
        saved: where it lies.
        lineage: of its run.
        sha256: of the version in force, as the checkpoint says.
        in_midst: whether steps were made since that version: then only the newest version's will do, as the journal
            leads on from versions alone.
    """
    announced = lineage.find(saved.version.number)
    if announced is None or announced.version != saved.version or announced.sha256 != sha256:
        return False
    return not in_midst or announced is lineage.newest


def _newest_good(fold: Fold, lineage: Lineage, folder: RunFolder) -> Saved | None:
    for saved in saved_checkpoints(folder.checkpoints):
        if lineage.find(saved.version.number) is None:
            continue
        try:
            snapshot = load_checkpoint(saved.path)
            journal = fold.journal_of(snapshot)
            if not usable(saved, lineage, str(snapshot.state.get("sha256")), in_midst=bool(journal.steps)):
                log.info("Checkpoint %s is not on the run's line of versions and is passed over.", saved.path.name)
                continue
            fold.restore(snapshot)
            return saved
        except CheckpointError as error:
            log.warning("Checkpoint %s cannot be used, the one before is: %s", saved.path.name, error)
    return None


def _begin_anew(fold: Fold, lineage: Lineage, folder: RunFolder) -> str:
    first = lineage.versions[0]
    try:
        claim = lineage.claims.get(first.epoch)
        settings = launched_with(claim.config_json) if claim is not None else None
        if settings is not None:
            fold.launched_with(settings)
        if first.number != 0:
            raise RecoveryError(f"the versions topic begins with version {first.version}")
        begin(fold, first, folder)
    except (RecoveryError, ConfigError) as error:
        return f"there is no checkpoint, and the run cannot be computed from its beginning: {error}"
    return ""


def _refill(fold: Fold, open_samples: OpenSamples) -> tuple[str, int]:
    with closing(open_samples(fold.positions)) as samples:
        refill = fold.refill(samples)
    if refill is None:
        return "", 0
    if not refill.exact:
        return (
            f"{refill.lost} records of those that the replay buffer was made of are no longer on the samples topic "
            f"({refill.trouble}); lengthen its retention, or set learner.checkpoint_buffer=true"
        ), refill.transitions
    return "", refill.transitions


def _follow(fold: Fold, lineage: Lineage, open_samples: OpenSamples, found: Recovered) -> Recovered:
    versions = lineage.after(fold.version.number)
    if not versions:
        return found
    done = 0

    def note(computed: Computed) -> bool:
        nonlocal done
        done += computed.identical
        return computed.identical

    with closing(open_samples(fold.positions)) as samples:
        try:
            trouble = _difference(follow(fold, versions, samples, note), samples.lost)
        except RecoveryError as error:
            trouble = str(error)
    return Recovered(found.began_at, done, found.transitions, trouble)


def _difference(reached: Computed | None, lost: int) -> str:
    if reached is None or reached.identical:
        return ""
    if lost:
        return f"{lost} records that the journal names are no longer on the samples topic; lengthen its retention"
    if not reached.same_samples:
        return f"the records that version {reached.announced.version} was made of are not those on the log any more"
    return reached.trouble or (
        f"version {reached.announced.version} came out with sha256 {reached.sha256}, announced was "
        f"{reached.announced.sha256}; other library versions or another device than before do this"
    )


def _settle(
    fold: Fold,
    lineage: Lineage,
    newest: ModelVersionRecord,
    found: Recovered,
    open_samples: OpenSamples,
    fetch: Callable[[ModelVersionRecord], dict[str, NDArray[Any]]],
) -> None:
    """Go on from the newest published weights, with what experience there is."""
    if fold.config.learner.require_exact:
        raise RecoveryError(
            f"The state of version {newest.version} cannot be reached: {found.trouble}. To go on from its published "
            "weights instead, set learner.require_exact=false."
        )
    log.error(
        "The exact state of version %s cannot be reached: %s. The run goes on from its published weights.",
        newest.version,
        found.trouble,
    )
    if not _judge_on(fold, lineage, open_samples):
        fold.positions = lineage.positions(newest.number)
        fold.judge.accounting = Accounting.from_counters(read_journal(newest).counters, newest.transitions)
    fold.updates = newest.updates
    fold.load_weights(fetch(newest))
    fold.cut(newest.version, fold.weights())
    fold.journal.begin(fold.positions, broken=found.trouble)


def _judge_on(fold: Fold, lineage: Lineage, open_samples: OpenSamples) -> bool:
    """Whether every record up to the newest version was there: then the fold's positions and accounts are right."""
    versions = lineage.after(fold.version.number)
    if not versions:
        return True
    with closing(open_samples(fold.positions)) as samples:
        try:
            judge_on(fold, versions, samples)
        except RecoveryError:
            return False
        return samples.lost == 0
