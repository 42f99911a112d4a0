"""Removing old weights: what may go is decided from the log alone, and only then is anything removed."""

from collections.abc import Callable, Collection

from pipeline.broker import BrokerSettings, Topics
from pipeline.experience import Version
from pipeline.weights.keys import version_of, weights_prefix
from pipeline.weights.lineage import Lineage, read_lineage
from pipeline.weights.store import ObjectStore
from pipeline.wire import ModelVersionRecord


def removable(
    lineage: Lineage, keep_last: int, keep_every: int, needed: Collection[Version] = ()
) -> list[ModelVersionRecord]:
    """The announced versions whose weights may go, oldest first.

    Args:
        lineage: of the run.
        keep_last: this many newest versions stay; the newest one always does.
        keep_every: versions whose number is a multiple of this stay; 0: none for that reason.
        needed: versions that something else refers to, such as a checkpoint; they stay, as pinned ones do.
    """
    kept = {*lineage.pins, *needed}
    return [
        record
        for record in lineage.versions[: -max(1, keep_last)]
        if record.version not in kept and not (keep_every and record.number % keep_every == 0)
    ]


def clean_up(
    store: ObjectStore,
    lineage: Lineage,
    keep_last: int,
    keep_every: int,
    needed: Collection[Version] = (),
    progress: Callable[[int, int], None] | None = None,
) -> list[Version]:
    """Remove weights that `removable` names, and those that were uploaded but never announced.

    The latter are what fenced or killed learners left: objects of a number below the newest that no version of the
    lineage names. Of a number above it is what a living learner uploads at this moment. Interrupted at any point,
    another call does the rest.

    Args:
        store: holds the weights.
        lineage, keep_last, keep_every, needed: as for `removable`.
        progress: told after each removal how many are removed, and how many are to be.

    Returns:
        The versions whose weights were there and are gone, oldest first.

    Raises:
        StoreError: the store did not answer or refused; what was removed until then is gone.
    """
    going = {record.key: record.version for record in removable(lineage, keep_last, keep_every, needed)}
    found = store.list(weights_prefix(lineage.run))
    chosen = {key: going[key] for key in found if key in going}
    chosen.update(_leftovers(lineage, found, needed))
    removed: list[Version] = []
    for key, version in sorted(chosen.items(), key=lambda item: item[1]):
        store.remove(key)
        removed.append(version)
        if progress is not None:
            progress(len(removed), len(chosen))
    return removed


def run_clean_up(
    store: ObjectStore,
    settings: BrokerSettings,
    topics: Topics,
    keep_last: int,
    keep_every: int,
    needed: Collection[Version] = (),
    timeout: float = 30.0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Version]:
    """Read the run's lineage and `clean_up`; safe while the run goes on.

    Raises:
        BrokerError: the lineage could not be read; nothing was removed.
        StoreError: see `clean_up`.
    """
    return clean_up(store, read_lineage(settings, topics, timeout), keep_last, keep_every, needed, progress)


def _leftovers(lineage: Lineage, keys: Collection[str], needed: Collection[Version]) -> dict[str, Version]:
    announced = {record.key for record in lineage.versions}
    kept = {*lineage.pins, *needed}
    found = {key: version_of(lineage.run, key) for key in keys if key not in announced}
    return {
        key: version
        for key, version in found.items()
        if version is not None and version.number < lineage.number and version not in kept
    }
