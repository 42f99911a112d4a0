"""Where judging begins when the log has forgotten the run's beginning."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.errors import ReplayError
from pipeline.offline.bounded import Extent
from pipeline.offline.export import Sums, journal_sums
from pipeline.offline.start import Start, find_start
from pipeline.offline.walk import Walk
from tests.learner.made import RUN, lineage_of
from tests.offline.recording import Recording


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path)


def start(recording: Recording, first: int | None = None) -> Start:
    node = recording.node
    run = SimpleNamespace(name=RUN, config=node.config, asked=SimpleNamespace(saves=node.config.saves))
    held = {p: Extent(recording.low[p], len(records)) for p, records in recording.log.partitions.items()}
    return find_start(run, lineage_of(node), held, first)  # type: ignore[arg-type]


def test_at_the_beginning_while_the_log_holds_it(recording: Recording):
    found = start(recording)
    assert (found.first, found.folder, dict(found.positions)) == (0, None, {0: 0, 1: 0})
    assert start(recording, first=7).folder is None


def test_at_the_oldest_checkpoint_that_is_followed_by_all(recording: Recording):
    """From there the sums come out as the learner's."""
    recording.forget(0, 4)
    found = start(recording)
    assert found.folder is not None and found.positions[0] >= 4
    assert found.judge.accounting.accepted > 0
    lineage = lineage_of(recording.node)
    versions = lineage.after(found.first - 1)
    expected = journal_sums(lineage, versions, found.judge, found.first)
    walk = Walk(
        lineage,
        versions,
        Samples(recording, found),
        recording.node.examiner(),
        found.judge,  # type: ignore[arg-type]
    )
    accepted = [judged.arrival.chunk for judged in walk.records() if judged.verdict == "accepted"]
    rewards = sum(float(chunk.columns["reward"].sum(dtype="float64")) for chunk in accepted if chunk is not None)
    assert walk.difference is None
    assert Sums(len(accepted), 10 * len(accepted), rewards).equals(expected)


def test_a_later_version_begins_at_a_later_checkpoint(recording: Recording):
    recording.forget(0, 4)
    early, late = start(recording), start(recording, first=recording.node.version.number)
    assert early.first < late.first <= recording.node.version.number


def test_what_lies_before_all_that_is_left(recording: Recording):
    recording.forget(0, 4)
    oldest = start(recording).first
    with pytest.raises(ReplayError, match=rf"versions before {oldest} .* replay\.versions={oldest}\.\."):
        start(recording, first=oldest - 1)
    recording.forget(0, 19)
    with pytest.raises(ReplayError, match="no checkpoint after which all are there"):
        start(recording)


def test_a_damaged_checkpoint_and_a_foreign_one_are_passed_over(recording: Recording):
    recording.forget(0, 4)
    first = start(recording)
    assert first.folder is not None
    (first.folder / "tensors.safetensors").write_bytes(b"")
    second = start(recording)
    assert second.first > first.first


class Samples:
    """The recording's log as an ``OrderedReader`` at a start's positions."""

    missing = 0

    def __init__(self, recording: Recording, start: Start) -> None:
        log = recording.log.at(start.positions)
        self.take, self.seek = log.take, log.seek
