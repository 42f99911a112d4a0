"""Where judging begins: at the run's beginning, or at a checkpoint where the log does not reach back so far."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import CheckpointError, InvalidRecordError, ReplayError
from pipeline.experience import Version
from pipeline.learner.durable.checkpoint import load_checkpoint, saved_checkpoints
from pipeline.learner.durable.recovery import usable
from pipeline.learner.durable.run_folder import RunFolder
from pipeline.learner.intake.accounting import Accounting
from pipeline.learner.intake.judge import Judge, new_judge
from pipeline.offline.bounded import Extent
from pipeline.offline.recorded import RecordedRun
from pipeline.offline.spans import Positions, beginning_of, lost_before, samples_only
from pipeline.weights import Lineage
from pipeline.wire import Journal

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """The beginning of a run, or a version of it, where the state of the learner's judge is known.

    Attributes:
        judge: in the state that it was in there.
        positions: the next offset of each samples partition.
        first: number of the first version made after it.
        folder: the checkpoint; None at the beginning of the run.
    """

    judge: Judge
    positions: Positions
    first: int
    folder: Path | None = None


def find_start(run: RecordedRun, lineage: Lineage, extents: dict[int, Extent], first: int | None) -> Start:
    """The run's beginning if the log still holds it, else a checkpoint from which on all records are there.

    Args:
        run: the recorded run; checkpoints are looked for in its folder below ``saves``.
        lineage: of the run, with a version at least.
        extents: what the samples' partitions hold.
        first: number of the first version that is wanted; None: as early as can be.

    Raises:
        ReplayError: what is wanted lies before all that is left.
    """
    oldest = lineage.versions[0]
    begin = beginning_of(lineage, oldest)
    lost = lost_before(begin, extents)
    if not lost:
        return Start(new_judge(run.config), samples_only(begin), oldest.number)
    checkpoints = RunFolder(run.asked.saves, run.name).checkpoints
    starts = [start for start in _starts(run, lineage, checkpoints) if not lost_before(start.positions, extents)]
    gone = f"The log no longer holds the first {lost:,} records of run {run.name}"
    if not starts:
        raise ReplayError(
            f"{gone}, and {checkpoints} has no checkpoint after which all are there. What the learner accepted cannot "
            "be told without either; keep samples longer by kafka.retention_ms."
        )
    fitting = [start for start in starts if first is None or start.first <= first]
    if not fitting:
        raise ReplayError(
            f"{gone}: versions before {starts[0].first} cannot be gone through any more. The oldest checkpoint that "
            f"helps is {starts[0].folder}; ask for replay.versions={starts[0].first}.."
        )
    chosen = fitting[0] if first is None else fitting[-1]
    log.warning("%s; beginning at version %d, with %s.", gone, chosen.first, chosen.folder)
    return chosen


def _starts(run: RecordedRun, lineage: Lineage, checkpoints: Path) -> list[Start]:
    """A start for every good checkpoint that was made at a version of this lineage, the oldest first."""
    starts: list[Start] = []
    for saved in reversed(saved_checkpoints(checkpoints)):
        try:
            state = load_checkpoint(saved.path).state
            # Between two versions the journal does not tell which steps of the next one it has behind it.
            in_midst = bool(Journal.decode(bytes.fromhex(state["journal"])).steps)
            if not in_midst and usable(saved, lineage, str(state["sha256"]), in_midst=False):
                starts.append(_start(state, saved.version, saved.path, new_judge(run.config)))
        except (CheckpointError, InvalidRecordError, KeyError, TypeError, ValueError) as error:
            log.warning("The checkpoint %s is passed over: %s", saved.path, error)
    return starts


def _start(state: Any, version: Version, folder: Path, judge: Judge) -> Start:
    judge.accounting = Accounting.from_json(state["accounting"])
    judge.identities.load_state(state["identities"])
    if judge.roster is not None:
        judge.roster.load_state(state["roster"])
    positions = {int(source): offset for source, offset in state["positions"].items()}
    return Start(judge, samples_only(positions), version.number + 1, folder)
