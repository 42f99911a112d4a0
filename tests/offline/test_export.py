"""Transitions of a made-up run as Parquet, against the chunks they come from."""

from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet
import pytest

from pipeline.experience import Ending, Version
from pipeline.learner.intake.judge import Judge
from pipeline.offline.export import Sums, journal_sums, write
from pipeline.offline.parquet import ParquetFile
from pipeline.offline.ranges import Range, Selection
from pipeline.offline.steps import steps_of
from pipeline.offline.walk import Walk
from tests.offline.made import LAYOUT, FakeLearner, FakeLog, chunk_of, examiner


@pytest.fixture
def learner() -> FakeLearner:
    """Versions 0 to 3 of two epochs, with a duplicate, a refused, a stale and an unheard-of chunk."""
    log = FakeLog()
    log.add(0, 0)
    log.add(1, 1)
    log.add(0, 0)
    log.add(0, 2, value=b"hello")
    log.add(1, 3, version=Version(1, 9))
    log.add(0, 4, version=Version(1, 1))
    log.add(1, 5, version=Version(2, 2))
    log.add(0, 6, version=Version(1, 0))
    learner = FakeLearner(log)
    learner.read(0, 1)
    learner.read(1, 1)
    learner.publish()
    learner.claim()
    learner.read(0, 4)
    learner.publish()
    learner.read(1, 3)
    learner.publish()
    learner.read(0, 5)
    learner.publish()
    return learner


def exported(learner: FakeLearner, path: Path, *, selection: Selection | None = None, **options: object):
    walk = Walk(learner.lineage, learner.lineage.versions, learner.log.rewound(), examiner(), Judge(3))
    with ParquetFile(path, LAYOUT, {"pipeline.run": "made"}) as file:
        sums = write(walk, file, LAYOUT, selection or Selection(), **options)  # type: ignore[arg-type]
        file.finish({"pipeline.accepted": "said at the end"})
    return walk, sums


def test_what_the_learner_accepted_is_what_is_written(learner: FakeLearner, tmp_path: Path):
    path = tmp_path / "export.parquet"
    walk, sums = exported(learner, path)
    accepted = learner.judge.accounting
    assert walk.difference is None
    assert sums == Sums(accepted.accepted, accepted.accepted_transitions, accepted.reward_sum)
    assert sums == journal_sums(learner.lineage, learner.lineage.versions, Judge(3), 0)
    [found] = duckdb.sql(
        f"select count(*), sum(reward), count(distinct (partition, \"offset\")) from '{path}'"
    ).fetchall()
    assert (found[0], found[2]) == (sums.transitions, sums.chunks)
    assert found[1] == pytest.approx(sums.reward_sum)
    assert learner.verdicts == [
        "accepted",
        "accepted",
        "duplicate",
        "not-ours",
        "accepted",
        "unknown-version",
        "accepted",
        "stale",
    ]


def test_a_row_is_a_complete_transition(tmp_path: Path):
    log = FakeLog()
    chunk = chunk_of([3, 1, 2], [Ending.OPEN, Ending.TRUNCATED, Ending.TERMINATED], first_step=7)
    log.add(1, 42, chunk, actor="Ada")
    learner = FakeLearner(log)
    learner.read(1, 1)
    learner.publish()
    path = tmp_path / "deep" / "export.parquet"
    exported(learner, path)
    table = pyarrow.parquet.read_table(path)
    rows = table.to_pylist()
    at = [0, 1, 2, 4, 6, 7]
    columns = chunk.columns
    for step, (row, place) in enumerate(zip(rows, at, strict=True)):
        assert row["observation/image"] == columns["observation/image"][place].tolist()
        assert row["next_observation/image"] == columns["observation/image"][place + 1].tolist()
        assert row["observation/speed"] == columns["observation/speed"][place]
        assert row["next_observation/speed"] == columns["observation/speed"][place + 1]
        assert row["action"] == columns["action"][step]
        assert row["reward"] == columns["reward"][step]
        assert row["log_prob"] == columns["log_prob"][step]
        assert row["extras/offset"] == columns["offset"][step].tolist()
    assert [row["terminated"] for row in rows] == [False] * 5 + [True]
    assert [row["truncated"] for row in rows] == [False] * 3 + [True] + [False] * 2
    assert [row["step"] for row in rows] == [7, 8, 9, 7, 7, 8]
    assert [row["environment"] for row in rows] == [0, 0, 0, 1, 2, 2]
    assert [row["episode"] for row in rows] == [100, 100, 100, 101, 102, 102]
    one = {name: rows[-1][name] for name in ("actor", "session", "sequence", "partition", "offset", "verdict")}
    assert one == {
        "actor": "Ada",
        "session": "5e" * 16,
        "sequence": 42,
        "partition": 1,
        "offset": 0,
        "verdict": "accepted",
    }
    assert (rows[0]["version_epoch"], rows[0]["version_number"], rows[0]["made_number"]) == (1, 0, 1)
    assert rows[0]["timestamp_ms"] == log.partitions[1][0].timestamp_ms
    assert str(table.schema.field("observation/image").type).count("fixed_size_list") == 2
    metadata = pyarrow.parquet.read_metadata(path).metadata
    assert metadata[b"pipeline.run"] == b"made" and metadata[b"pipeline.accepted"] == b"said at the end"


def test_everything_has_its_verdict(learner: FakeLearner, tmp_path: Path):
    """What cannot be decoded has no rows; the rest has, and the sums are of the accepted ones still."""
    path = tmp_path / "export.parquet"
    _, sums = exported(learner, path, everything=True)
    found = dict(duckdb.sql(f"select verdict, count(*) from '{path}' group by verdict").fetchall())
    assert found == {"accepted": sums.transitions, "duplicate": 5, "unknown-version": 5, "stale": 5}


def test_a_range_of_versions(learner: FakeLearner, tmp_path: Path):
    """It is judged from the beginning, but only the range is written: the duplicate is known as one."""
    path = tmp_path / "export.parquet"
    walk, sums = exported(learner, path, first=2)
    assert walk.difference is None
    assert sums.equals(journal_sums(learner.lineage, learner.lineage.versions, Judge(3), 2))
    made = duckdb.sql(f"select distinct made_number from '{path}' order by 1").fetchall()
    assert [number for (number,) in made] == [2, 3]


@pytest.mark.parametrize(
    ("selection", "places"),
    [
        (Selection(offsets=Range(1, None)), {(0, 3), (1, 2)}),
        (Selection(partition=0), {(0, 0), (0, 3)}),
        (Selection(times=Range(None, 1_767_225_601_000)), {(0, 0), (1, 0)}),
        (Selection(limit=1), {(0, 0)}),
    ],
)
def test_other_ranges(learner: FakeLearner, tmp_path: Path, selection: Selection, places: set[tuple[int, int]]):
    path = tmp_path / "export.parquet"
    exported(learner, path, selection=selection)
    found = duckdb.sql(f"select distinct partition, \"offset\" from '{path}'").fetchall()
    assert set(found) == places


def test_a_log_that_has_lost_records_is_found_out(learner: FakeLearner, tmp_path: Path):
    learner.log.gone.add((1, 0))
    walk, _ = exported(learner, tmp_path / "export.parquet")
    assert walk.difference is not None
    assert walk.difference.version == Version(1, 1)
    assert "accepted 2 then and 1 now" in walk.difference.figures
    assert walk.difference.gone == 1
    assert "1 records have gone" in str(walk.difference)


def test_many_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pipeline.offline.parquet._GROUP_ROWS", 12)
    log = FakeLog()
    for sequence in range(10):
        log.add(0, sequence)
    learner = FakeLearner(log)
    learner.read(0, 10)
    learner.publish()
    path = tmp_path / "export.parquet"
    exported(learner, path)
    assert pyarrow.parquet.read_metadata(path).num_row_groups == 4
    assert pyarrow.parquet.read_metadata(path).num_rows == 50


def test_a_failed_export_leaves_no_file(learner: FakeLearner, tmp_path: Path):
    path = tmp_path / "export.parquet"
    path.write_text("the one before")
    with pytest.raises(RuntimeError), ParquetFile(path, LAYOUT, {}):
        raise RuntimeError
    assert [entry.name for entry in tmp_path.iterdir()] == ["export.parquet"]
    assert path.read_text() == "the one before"


def test_steps_of_one_segment_share_no_row_with_the_next():
    chunk = chunk_of([1, 1], [Ending.OPEN, Ending.OPEN])
    steps = steps_of(chunk, LAYOUT)
    speed = chunk.columns["observation/speed"]
    assert np.array_equal(steps.observation["observation/speed"], speed[[0, 2]])
    assert np.array_equal(steps.next_observation["observation/speed"], speed[[1, 3]])
    assert not steps.terminated.any() and not steps.truncated.any()
