"""The best window: which version is named, and how often the learner is told."""

import json

from pipeline.experience import Version
from pipeline.telemetry.best import BestWindow, Candidate
from pipeline.telemetry.statistics import Statistics
from pipeline.wire import Command
from tests.telemetry.made import episode


def note(best: BestWindow, score: float, number: int) -> None:
    if best.improves(score):
        best.note(score, Version(1, number))


def sent(number: int, score: object, kind: str = "save_best") -> Command:
    return Command(f"best-run-1.{number}", kind, json.dumps({"epoch": 1, "number": number, "score": score}))


def test_the_version_that_scored_is_named_not_the_newest():
    """Half of the window's episodes are older than it."""
    statistics, best = Statistics(4), BestWindow("run", 4)
    for number, version in enumerate([7, 3, 4, 5]):
        statistics.add(episode(number, 10.0, version))
        if best.improves(statistics.mean_return) and statistics.full:
            best.note(statistics.mean_return, statistics.median_version)
    assert best.due == Candidate(Version(1, 5), 10.0)
    assert best.command_id(Candidate(Version(1, 5), 10.0)) == "best-run-1.5"


def test_nothing_is_said_of_what_is_not_better():
    best = BestWindow("run", 2)
    note(best, 10.0, 1)
    best.told(Candidate(Version(1, 1), 10.0))
    for score in (9.0, 10.0, float("inf"), float("nan"), -1.0):
        note(best, score, 2)
        assert best.left is None
    assert best.score == 10.0


def test_a_rising_average_is_told_once_a_window():
    best, told = BestWindow("run", 10), []
    for number in range(35):
        note(best, float(number), number)
        if (candidate := best.due) is not None:
            best.told(candidate)
            told.append(candidate.version.number)
    assert told == [0, 10, 20, 30]
    assert best.left == Candidate(Version(1, 34), 34.0)


def test_a_version_is_told_once():
    """A better window of the same version changes nothing but what is to be beaten."""
    best = BestWindow("run", 1)
    note(best, 10.0, 1)
    best.told(Candidate(Version(1, 1), 10.0))
    note(best, 11.0, 2)
    note(best, 12.0, 1)
    assert best.left is None
    note(best, 11.5, 3)
    assert best.left is None


def test_what_an_earlier_process_told_counts():
    best = BestWindow("run", 1)
    for command in (sent(4, 10.0), sent(5, 12.0), sent(6, 99.0, "quicksave"), sent(7, "high"), sent(8, float("inf"))):
        best.known(command)
    best.known(Command("x", "save_best", "[]"))
    best.known(Command("x", "save_best", "{"))
    assert best.score == 12.0
    note(best, 12.0, 6)
    assert best.left is None
    note(best, 13.0, 5)
    assert best.left is None
    note(best, 14.0, 6)
    assert best.left == Candidate(Version(1, 6), 14.0)


def test_a_better_window_that_comes_while_one_is_sent_is_not_lost():
    best = BestWindow("run", 1)
    note(best, 10.0, 1)
    first = best.due
    assert first is not None
    note(best, 11.0, 2)
    best.told(first)
    assert best.left == Candidate(Version(1, 2), 11.0)
