"""`pipeline replay export`: what a run learned from, as Parquet: complete transitions with their provenance.

The samples are gone through in the order of the run's journal and judged as the learner judged them, so the file holds
what was accepted, and the sums must come out as the learner's.
"""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.broker.ordered import OrderedReader
from pipeline.config import PipelineConfig
from pipeline.experience import Layout
from pipeline.learner.intake.arrival import Examiner
from pipeline.learner.intake.judge import ACCEPTED, Judge
from pipeline.offline.bounded import extents
from pipeline.offline.parquet import ParquetFile, Provenance
from pipeline.offline.progress import Advance, progress, silent
from pipeline.offline.ranges import Selection
from pipeline.offline.recorded import find_recorded
from pipeline.offline.spans import announced, journal_of
from pipeline.offline.start import Start, find_start
from pipeline.offline.steps import steps_of
from pipeline.offline.walk import Judged, Walk
from pipeline.weights import Lineage, read_lineage
from pipeline.wire import COMMANDS, ModelVersionRecord


@dataclass
class Sums:
    """Of accepted chunks.

    Attributes:
        chunks: how many.
        transitions: in them.
        reward_sum: of them.
    """

    chunks: int = 0
    transitions: int = 0
    reward_sum: float = 0.0

    def __str__(self) -> str:
        return f"{self.transitions:,} transitions, {self.chunks:,} chunks, sum of rewards {self.reward_sum:.10g}"

    def __sub__(self, other: "Sums") -> "Sums":
        return Sums(
            self.chunks - other.chunks, self.transitions - other.transitions, self.reward_sum - other.reward_sum
        )

    def equals(self, other: "Sums") -> bool:
        """The same counts; the sums of rewards but for what another order of adding does to the last digits."""
        close = math.isclose(self.reward_sum, other.reward_sum, rel_tol=1e-9, abs_tol=1e-6)
        return (self.chunks, self.transitions) == (other.chunks, other.transitions) and close


def export(config: PipelineConfig) -> int:
    """Write the Parquet file that ``replay.*`` asks for; 1 if the sums are not the learner's."""
    replay = config.replay
    selection = Selection.of(replay)
    run = find_recorded(config)
    lineage = read_lineage(run.broker, run.topics, run.timeout)
    last = announced(lineage, selection.versions)[-1]
    start = find_start(run, lineage, extents(run.broker, run.samples, run.timeout), selection.versions.first)
    first = max(start.first, selection.versions.first or 0)
    versions = [record for record in lineage.versions if start.first <= record.number <= last.number]
    expected = None if _narrowed(selection) else journal_sums(lineage, versions, start.judge, first)
    path = Path(replay.out or Path(config.saves) / run.name / "export.parquet")
    with (
        OrderedReader(run.broker, run.samples, start.positions, timeout=run.timeout) as samples,
        ParquetFile(
            path, run.layout, {"pipeline.run": run.name, "pipeline.versions": f"{first}..{last.number}"}
        ) as file,
        progress("exporting", _offsets(lineage, last, start), "records") as advance,
    ):
        walk = Walk(lineage, versions, samples, Examiner(run.layout, run.name, run.limits, run.voucher), start.judge)
        written = write(walk, file, run.layout, selection, first, everything=replay.everything, advance=advance)
        file.finish({"pipeline.accepted": json.dumps(asdict(written))})
    print(f"{path}: {file.rows:,} rows of versions {first}..{last.number}; accepted are {written}.")
    return _check(walk, written, expected, last)


def write(
    walk: Walk,
    file: ParquetFile,
    layout: Layout,
    selection: Selection,
    first: int = 0,
    *,
    everything: bool = False,
    advance: Advance = silent,
) -> Sums:
    """Write the rows of all records within a selection.

    Args:
        walk: gives the records.
        file: takes the rows.
        layout: the run's columns.
        selection: offsets, times, partition and limit are looked at.
        first: records that older versions were made with are gone through, but not written.
        everything: whether chunks that were not accepted are written as well.
        advance: told of each record.

    Returns:
        Sums over the accepted ones that were written.
    """
    sums = Sums()
    records = 0
    for judged in walk.records():
        advance(1 + judged.arrival.skipped, f"version {judged.made.version}")
        chunk, headers = judged.arrival.chunk, judged.arrival.headers
        accepted = judged.verdict == ACCEPTED
        if chunk is None or headers is None or not (accepted or everything):
            continue
        if judged.made.number < first or not _within(judged, selection):
            continue
        file.add(
            steps_of(chunk, layout), Provenance(judged.arrival.record, headers, judged.made.number, judged.verdict)
        )
        if accepted:
            reward_sum = float(chunk.columns["reward"].sum(dtype="float64"))
            sums = Sums(sums.chunks + 1, sums.transitions + chunk.steps, sums.reward_sum + reward_sum)
        records += 1
        if records == selection.limit:
            break
    return sums


def journal_sums(lineage: Lineage, versions: list[ModelVersionRecord], judge: Judge, first: int) -> Sums:
    """What the learner's own counters say that versions ``first`` and later of these accepted.

    Args:
        lineage: of the run.
        versions: consecutive ones of it.
        judge: as it was before them.
        first: a version's number.
    """
    before = [record for record in versions if record.number < first]
    counts = judge.accounting
    base = Sums(counts.accepted, counts.accepted_transitions, counts.reward_sum)
    return _sums_at(lineage, versions[-1]) - (_sums_at(lineage, before[-1]) if before else base)


def _sums_at(lineage: Lineage, record: ModelVersionRecord) -> Sums:
    counters = journal_of(lineage, record).counters
    return Sums(counters.accepted, record.transitions, counters.reward_sum)


def _check(walk: Walk, written: Sums, expected: Sums | None, last: ModelVersionRecord) -> int:
    if walk.difference is not None:
        print(f"Not as the learner judged them: {walk.difference}.")
        return 1
    if expected is None:
        return 0
    if not written.equals(expected):
        print(f"The learner's counters at version {last.version} differ: {expected}.")
        return 1
    print(f"The learner's counters at version {last.version} say the same.")
    return 0


def _within(judged: Judged, selection: Selection) -> bool:
    record = judged.arrival.record
    partition = selection.partition in (None, record.partition)
    return partition and record.offset in selection.offsets and record.timestamp_ms in selection.times


def _narrowed(selection: Selection) -> bool:
    """Whether more than versions was asked for, so that the learner's counters say nothing of it."""
    whole = selection.offsets.everything and selection.times.everything
    return not whole or selection.partition is not None or selection.limit is not None


def _offsets(lineage: Lineage, last: ModelVersionRecord, start: Start) -> int:
    end = lineage.positions(last.number)
    return sum(offset - start.positions.get(source, 0) for source, offset in end.items() if source != COMMANDS)
