"""What the table of results is made of: thresholds, steps counted on the log, and the page."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.results import records, report
from benchmarks.results.ours import Counted
from benchmarks.results.progress import WINDOW, Progress
from benchmarks.results.rows import BY_NAME, ROWS
from pipeline.broker import Record, Topics
from pipeline.config import load_config
from pipeline.experience import Ending, EpisodeInfo, Version, new_session
from pipeline.wire import RecordHeaders, encode_episode

TOPICS = Topics("rl", "test")


def test_solved_when_the_mean_of_a_full_window_reaches_the_threshold() -> None:
    progress = Progress(threshold=50.0, budget=10**6)
    for number in range(WINDOW - 1):
        progress.add(number, number / 10, 99.0)
    assert progress.solved is None
    progress.add(WINDOW, 10.0, 0.0)
    assert progress.solved is not None
    assert (progress.solved.steps, progress.solved.seconds, progress.solved.mean) == (WINDOW, 10.0, 98.01)
    progress.add(WINDOW + 1, 11.0, 500.0)
    assert progress.episodes == WINDOW


def test_old_episodes_leave_the_window() -> None:
    progress = Progress(threshold=10.0, budget=10**6)
    for number in range(3 * WINDOW):
        progress.add(number, 0.0, 0.0 if number < WINDOW else 10.0)
    assert progress.solved is not None and progress.solved.steps == 2 * WINDOW - 1


def test_ends_unsolved_with_the_budget() -> None:
    progress = Progress(threshold=10.0, budget=1000)
    for number in range(200):
        progress.add(10 * number, 0.0, 1.0)
    assert progress.ended and progress.solved is None
    assert progress.last is not None and progress.last.steps == 1000
    assert progress.curve[-1] == progress.last


class Actor:
    """An actor's records as a connector makes them."""

    def __init__(self, name: str) -> None:
        self.name, self.session, self.sequence, self.episodes = name, new_session(), 0, 0

    def chunk(self, count: int) -> Record:
        self.sequence += 1
        return self._record(TOPICS.samples, b"", self.sequence - 1, count)

    def episode(self, total_return: float) -> Record:
        self.episodes += 1
        info = EpisodeInfo(
            actor=self.name,
            session=self.session,
            episode=self.episodes,
            environment=0,
            version=Version(1, 0),
            steps=1,
            total_return=total_return,
            ending=Ending.TERMINATED,
            started_ms=0,
            ended_ms=1,
        )
        return self._record(TOPICS.episodes, encode_episode(info), self.sequence, 1)

    def _record(self, topic: str, value: bytes, sequence: int, count: int) -> Record:
        headers = RecordHeaders("test", self.name, self.session, sequence, Version(1, 0), "0" * 16, count)
        return Record(topic, 0, 0, 5000, None, value, headers.to_kafka())


def test_steps_are_counted_up_to_the_chunk_that_was_filled() -> None:
    actor, counted = Actor("one"), Counted(TOPICS)
    first = [actor.chunk(32), actor.chunk(32), actor.episode(7.0)]
    assert list(counted.read(first)) == [], "the chunk that the episode ended in is not there yet"
    # Episodes wait for their chunks in their order, and records that come twice count once.
    second = [actor.episode(8.0), actor.chunk(20), first[2], first[0], actor.chunk(32)]
    assert list(counted.read(second)) == [(84, 5.0, 7.0), (84, 5.0, 8.0)]


def test_steps_of_all_actors_count() -> None:
    one, two, counted = Actor("one"), Actor("two"), Counted(TOPICS)
    assert list(counted.read([one.chunk(10), two.chunk(100), two.chunk(100)])) == []
    assert list(counted.read([one.episode(1.0), one.chunk(10)])) == [(220, 5.0, 1.0)]


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
        progress = Progress(row.threshold, row.budget)
        for number in range(120):
            progress.add(100 * number, 0.1 * number, 20.0)
        progress.add(steps or row.budget, 30.0 + seed, 10**6 if steps else 0.0)
        records.append(records.record(row, records.OURS, seed, progress), log)
    stale = records.record(row, records.PEER, 0, progress) | {"settings": "of before"}
    records.append(stale, log)
    runs = records.read(BY_NAME, log)
    assert len(runs) == 3, "what was run with other settings does not count"
    report.write(ROWS, runs)
    page = (tmp_path / "results.md").read_text()
    assert "| CartPole-v1 | 475 | DQN | 2 of 3 | **80,000** (60,000 – > 200,000) |" in page
    assert "cartpole-dqn with pipeline, seeds 3, 4" in page and "lunarlander-ppo with stable-baselines3" in page
    assert (tmp_path / "results" / "cartpole-dqn.png").stat().st_size > 1000


def test_other_settings_have_another_digest() -> None:
    row = BY_NAME["acrobot-dqn"]
    other = replace(row, budget=row.budget + 1)
    for system in (records.OURS, records.PEER):
        digests = {records.digest(records.settings_of(each, system)) for each in (row, other)}
        assert len(digests) == 2
    assert json.dumps(records.settings_of(row, records.OURS))
