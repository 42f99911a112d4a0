"""Moving averages as a pure fold."""

import itertools

from pipeline.experience import Version
from pipeline.telemetry.statistics import MOST_POINTS, Statistics
from tests.telemetry.made import episode


def test_averages_are_over_the_newest_episodes():
    statistics = Statistics(window=3)
    assert (statistics.mean_return, statistics.mean_steps, statistics.full) == (0.0, 0.0, False)
    for number, total in enumerate([1.0, 2.0, 6.0, 4.0]):
        statistics.add(episode(number, total, version=number, steps=number))
        assert statistics.full == (number >= 2)
    assert statistics.mean_return == 4.0
    assert statistics.mean_steps == 2.0
    assert statistics.mean_info() == {"score": 2.0}
    assert (statistics.episodes, statistics.transitions, statistics.best_return) == (4, 6, 6.0)
    assert (statistics.first_ms, statistics.last_ms) == (500, 3500)
    assert statistics.median_version == Version(1, 2)


def test_one_outlandish_return_leaves_no_trace():
    statistics = Statistics(window=2)
    for number, total in enumerate([1e300, 1.0, 2.0]):
        statistics.add(episode(number, total))
    assert statistics.mean_return == 1.5


def test_the_history_is_bounded_and_follows_from_the_episodes():
    statistics = Statistics(window=5)
    for number in range(3 * MOST_POINTS):
        statistics.add(episode(number, float(number)))
    points = statistics.history
    assert MOST_POINTS // 2 <= len(points) <= MOST_POINTS
    assert {later.episodes - earlier.episodes for earlier, later in itertools.pairwise(points)} == {4}
    assert points[-1].mean_return == points[-1].episodes - 3
