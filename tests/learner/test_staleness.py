"""Whose work is lost because it comes too late, and that everybody can know of it."""

import logging

import pytest
from prometheus_client import generate_latest

from pipeline.learner.intake.accounting import STALE
from pipeline.learner.intake.judge import ACCEPTED, DUPLICATE
from pipeline.learner.reports.metrics import LearnerMetrics
from pipeline.learner.reports.staleness import Staleness
from tests.learner.made import feed, node_in, record_of


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics() -> LearnerMetrics:
    return LearnerMetrics(0)


@pytest.fixture
def staleness(metrics: LearnerMetrics, clock: Clock) -> Staleness:
    return Staleness(metrics, 0.2, clock)


def note(staleness: Staleness, verdicts: str, actor: str = "a") -> None:
    """Ten transitions for each letter: accepted, stale (5 versions behind), or refused otherwise."""
    for letter in verdicts:
        verdict = {"a": ACCEPTED, "s": STALE, "r": "not-finite", "d": DUPLICATE}[letter]
        staleness.note(actor, 10, 5 if letter == "s" else 0, verdict)


def test_one_warning_for_each_episode_of_trouble(staleness: Staleness, clock: Clock, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    note(staleness, "aaaaaaaass")
    assert not caplog.messages
    note(staleness, "s")
    [said] = caplog.messages
    assert "Actor a loses 27 %" in said and "5.0 versions" in said
    clock.now += 20
    note(staleness, "ss")
    assert len(caplog.messages) == 1
    # Back below half of the share, then in trouble again.
    clock.now += 100
    note(staleness, "a" * 20)
    note(staleness, "s" * 8)
    assert len(caplog.messages) == 2


def test_neither_few_chunks_nor_duplicates_nor_refusals_are_trouble(
    staleness: Staleness, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING)
    note(staleness, "s" * 9)
    note(staleness, "d" * 9)
    note(staleness, "r" * 20, "b")
    assert not caplog.messages
    assert staleness.worst() == 1.0


def test_two_actors_in_trouble_are_both_named(staleness: Staleness, clock: Clock, caplog: pytest.LogCaptureFixture):
    """Not at once: hostile actors could fill the log."""
    caplog.set_level(logging.WARNING)
    for actor in ("a", "b"):
        note(staleness, "s" * 10, actor)
    assert len(caplog.messages) == 1
    clock.now += 11
    note(staleness, "s", "b")
    assert len(caplog.messages) == 2 and "Actor b loses 100 %" in caplog.messages[1]


def test_names_without_number_do_not_fill_the_memory(staleness: Staleness, metrics: LearnerMetrics):
    for index in range(1_000):
        note(staleness, "asr", f"actor-{index}")
    assert len(staleness) == 256
    text = generate_latest(metrics.registry).decode()
    assert text.count("pipeline_actor_stale_share{") == 256
    assert text.count("pipeline_actor_transitions_total{") == 3 * 256
    assert 'actor="actor-999"' in text and 'actor="actor-0"' not in text


def test_an_actor_that_went_silent_is_none_of_the_worst(staleness: Staleness, clock: Clock):
    note(staleness, "ss", "gone")
    clock.now += 61
    note(staleness, "aaas", "here")
    assert staleness.worst() == 0.25


def test_the_learner_keeps_it_of_what_it_judges(tmp_path):
    """The lag of every accepted chunk, each actor's share, and each session's stale transitions for its pacing."""
    node = node_in(tmp_path, "learner.version_window=2")
    node.publish()
    # Versions 1, 2 and 3 are cut with the fourth, the sixth and the eighth chunk; all are of version 0.
    feed(node, [record_of(node, sequence, sequence) for sequence in range(9)])
    text = generate_latest(node.metrics.registry).decode()
    assert 'pipeline_policy_lag_versions_bucket{le="0.0"} 4.0' in text
    assert "pipeline_policy_lag_versions_count 6.0" in text
    assert 'pipeline_actor_transitions_total{actor="a",verdict="stale"} 30.0' in text
    assert node.accounting.stale_transitions == 30
    [position] = node.identities.positions()
    assert (position.transitions, position.stale) == (90, 30)
