"""What the table of results is made of: thresholds, steps counted on the log, and the page."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.results import records, report
from benchmarks.results.machine import cores
from benchmarks.results.ours import StepCount
from benchmarks.results.progress import ALL, FIRST, Clock, Point, Progress
from benchmarks.results.rows import BY_NAME, ROWS
from pipeline.broker import Record, Topics
from pipeline.config import load_config
from pipeline.experience import Version, new_session
from pipeline.wire import RecordHeaders

TOPICS = Topics("rl", "test")


def test_solved_when_all_episodes_reach_the_threshold() -> None:
    progress = Progress(threshold=50.0, budget=10**6, every=1000)
    assert not progress.due(999) and progress.due(1000)
    progress.add(1010, 3.0, 49.0, FIRST)
    progress.add(2050, 4.0, 49.9, ALL)
    assert progress.solved is None, "the first episodes were lucky"
    progress.add(3000, 5.0, 50.0, ALL)
    assert progress.solved == Point(3000, 5.0, 50.0) and progress.ended
    assert not progress.due(10_000), "what is solved is not evaluated again"


def test_the_others_are_played_only_where_the_first_ones_ask_for_it() -> None:
    progress = Progress(threshold=50.0, budget=10**6, every=1000)
    assert progress.evaluate(1000, 1.0, lambda: 49.0, lambda: pytest.fail("not asked for")) == FIRST
    assert progress.evaluate(2000, 2.0, lambda: 60.0, lambda: 40.0) == ALL
    assert progress.last == Point(2000, 2.0, 44.0) and progress.solved is None
    assert progress.evaluate(3000, 3.0, lambda: 60.0, lambda: 50.0) == ALL
    assert progress.solved == Point(3000, 3.0, 52.0)


def test_marks_that_were_passed_over_are_not_made_up_for() -> None:
    progress = Progress(threshold=None, budget=10**6, every=1000)
    progress.add(3500, 1.0, 0.0, FIRST)
    assert not progress.due(3999) and progress.due(4000)


def test_ends_unsolved_with_the_budget() -> None:
    progress = Progress(threshold=10.0, budget=1000, every=100)
    for steps in range(100, 1001, 100):
        assert not progress.ended
        progress.add(steps, 0.0, 1.0, FIRST)
    assert progress.ended and progress.solved is None
    assert progress.last == progress.curve[-1] == Point(1000, 0.0, 1.0)


def test_the_clock_stands_still_while_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("benchmarks.results.progress.time.time", lambda: now[0])
    clock = Clock()
    now[0] += 5.0
    with pytest.raises(RuntimeError), clock.held():
        now[0] += 30.0
        raise RuntimeError
    now[0] += 2.0
    assert clock.seconds == 7.0


def chunk(actor: str, session: str, sequence: int, count: int) -> Record:
    headers = RecordHeaders("test", actor, session, sequence, Version(1, 0), "0" * 16, count)
    return Record(TOPICS.samples, 0, 0, 5000, None, b"", headers.to_kafka())


def test_steps_of_all_actors_count_once() -> None:
    count, one, two = StepCount(), new_session(), new_session()
    first = [chunk("one", one, 0, 32), chunk("two", two, 0, 100)]
    count.note([*first, chunk("one", one, 1, 20)])
    assert count.total == 152
    count.note([*first, chunk("two", new_session(), 0, 8)])
    assert count.total == 160


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_has_its_experiment(row) -> None:
    config = load_config([f"experiment={row.name}"])
    assert config.environment.id.endswith(row.environment)
    assert row.title.lower() == config.algorithm.name
    assert row.threshold in (None, config.environment.solved_return)


def test_the_page_shows_what_was_run_and_names_what_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "DOCS", tmp_path)
    log = tmp_path / "results.jsonl"
    row = BY_NAME["cartpole-dqn"]
    for seed, steps in enumerate((60_000, 80_000, None)):
        progress = Progress(row.threshold, row.budget, row.every)
        progress.add(1000, 10.0, 20.0, FIRST)
        progress.add(steps or row.budget, 30.0 + seed, 500.0 if steps else 20.0, ALL)
        records.append(records.record(row, records.OURS, seed, progress), log)
    stale = records.record(row, records.PEER, 0, progress) | {"settings": "of before"}
    records.append(stale, log)
    runs = records.read(BY_NAME, log)
    assert len(runs) == 3, "what was run with other settings does not count"
    report.write(ROWS, runs)
    page = (tmp_path / "results.md").read_text()
    assert (
        f"| CartPole-v1 | 475 | DQN | {cores()} | 2 of 3 | **80,000** (60,000 – > 200,000) | **31** (30 – > 32) |"
        in page
    )
    assert "cartpole-dqn with pipeline, seeds 3, 4" in page and "lunarlander-ppo with stable-baselines3" in page
    assert (tmp_path / "results" / "cartpole-dqn.png").stat().st_size > 1000


def test_other_settings_have_another_digest() -> None:
    row = BY_NAME["acrobot-dqn"]
    other = replace(row, budget=row.budget + 1)
    for system in (records.OURS, records.PEER):
        digests = {records.digest(records.settings_of(each, system)) for each in (row, other)}
        assert len(digests) == 2
    assert json.dumps(records.settings_of(row, records.OURS))
