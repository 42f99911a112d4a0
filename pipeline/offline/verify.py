"""`pipeline replay verify`: are the published versions what checkpoint, journal and samples make?"""

import dataclasses

from pipeline.broker import OrderedReader
from pipeline.config import PipelineConfig
from pipeline.environment import check_module
from pipeline.errors import ReplayError, StoreError
from pipeline.learner import new_node
from pipeline.learner.durable.following import Computed, read_journal
from pipeline.learner.durable.run_folder import RunFolder
from pipeline.learner.fold import Fold
from pipeline.learner.links import this_platform
from pipeline.offline.bounded import extents
from pipeline.offline.computing import Altered, Different, Finding, Identical, Unreachable, Verifier
from pipeline.offline.difference import counters_that_differ, first_tensor_that_differs
from pipeline.offline.progress import progress
from pipeline.offline.ranges import Selection
from pipeline.offline.recorded import RecordedRun, find_recorded
from pipeline.offline.spans import Positions, announced, samples_only
from pipeline.weights import Lineage, ObjectStore, read_lineage, unpack


def verify(config: PipelineConfig) -> int:
    """Compute the versions that ``replay.versions`` asks for again; 0 if all are identical, otherwise 1."""
    selection = Selection.of(config.replay)
    if selection != Selection(versions=selection.versions):
        raise ReplayError("Versions are what is verified: choose them by replay.versions, and nothing else.")
    run = find_recorded(config)
    lineage = read_lineage(run.broker, run.topics, run.timeout)
    wanted = announced(lineage, selection.versions)
    verifier = Verifier(
        lineage=lineage,
        new_fold=lambda epoch: fold_of(run, lineage, epoch),
        open_samples=lambda positions: ordered(run, positions),
        folder=RunFolder(config.saves, run.name),
        held=extents(run.broker, run.samples, run.timeout),
    )
    with progress("computing again", len(wanted), "versions") as advance:
        findings = verifier.check(wanted, advance)
    for finding in findings:
        print(_said(finding, lineage, run))
    return 0 if all(isinstance(finding, Identical) for finding in findings) else 1


def fold_of(run: RecordedRun, lineage: Lineage, epoch: int) -> Fold:
    """The run's fold in its initial state, with the settings of an epoch's learner and nothing of its surroundings."""
    config = run.config_of(lineage, epoch)
    check_module(config.environment, run.asked.environment)
    learner = dataclasses.replace(config.learner, metrics_port=0, ledger="", load="")
    surroundings = {"saves": run.asked.saves, "secret": run.asked.secret}
    return new_node(dataclasses.replace(config, run=run.name, learner=learner, **surroundings))


def ordered(run: RecordedRun, positions: Positions) -> OrderedReader:
    """The run's samples, to be read in a prescribed order."""
    return OrderedReader(run.broker, run.samples, samples_only(positions), timeout=run.timeout)


def _said(finding: Finding, lineage: Lineage, run: RecordedRun) -> str:
    match finding:
        case Identical(first, last):
            numbers = f"version {first.number}" if first == last else f"versions {first.number} … {last.number}"
            return f"{numbers}: identical"
        case Unreachable(first, last, why):
            numbers = f"version {first.number}" if first == last else f"versions {first.number} … {last.number}"
            return f"{numbers}: cannot be computed again: {why}"
        case Altered(announced, counters):
            figures = counters_that_differ(read_journal(announced).counters, counters) or "byte for byte"
            return f"version {announced.number}: the log holds other samples than it was made of: {figures}"
        case Different(computed):
            lines = [f"version {computed.announced.number} differs: {_how(computed, run)}"]
            return "\n".join([*lines, *(f"  {reason}" for reason in _reasons(finding, lineage))])


def _how(computed: Computed, run: RecordedRun) -> str:
    """Which tensor is the first that differs."""
    record = computed.announced
    if computed.trouble:
        return computed.trouble
    try:
        data = ObjectStore(run.connection.store).get(record.key, record.size, record.sha256)
    except StoreError as error:
        return f"sha256 {computed.sha256} came out, {record.sha256} was announced; tensors cannot be compared: {error}"
    return first_tensor_that_differs(unpack(data), computed.tensors)


def _reasons(finding: Different, lineage: Lineage) -> list[str]:
    """What may have made the difference."""
    record = finding.computed.announced
    reasons: list[str] = []
    if finding.lost:
        reasons.append(f"{finding.lost:,} records that the journal names are no longer on the log")
    figures = counters_that_differ(read_journal(record).counters, finding.counters)
    if not finding.computed.same_samples:
        reasons.append("the samples on the log are not those that the learner applied, byte for byte")
    if figures:
        reasons.append(f"other samples than the learner saw: {figures}")
    claim = lineage.claims.get(record.epoch)
    if claim is not None and claim.platform != this_platform():
        reasons.append(f"made on {claim.platform}; computed again on {this_platform()}")
    return reasons
