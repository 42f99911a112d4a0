"""Chunks get smaller while the learner refuses some as stale, and larger again when it does not."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.client.freshness import LEAST_STEPS, Freshness


def test_a_refusal_halves_and_is_heeded_once():
    """The next one counts when chunks that were cut after the change have been judged."""
    freshness = Freshness(256, 1.0, adapt=True)
    freshness.note(cut=10, reached=5, judged=1500, stale=256)
    assert (freshness.steps, freshness.age_s, freshness.share) == (128, 0.5, 0.5)
    freshness.note(cut=12, reached=9, judged=2500, stale=512)
    assert freshness.steps == 128
    freshness.note(cut=14, reached=10, judged=2600, stale=640)
    assert freshness.steps == 64
    for number in range(20):
        freshness.note(cut=20 + number, reached=20 + number, judged=3000, stale=641 + number)
    assert freshness.steps == LEAST_STEPS


def test_it_recovers_slowly():
    """A sixteenth of the full size for every full chunk's worth that was judged, none of it stale."""
    freshness = Freshness(256, 1.0, adapt=True)
    freshness.note(cut=1, reached=1, judged=300, stale=1)
    freshness.note(cut=2, reached=2, judged=555, stale=1)
    assert freshness.steps == 128
    freshness.note(cut=3, reached=3, judged=556, stale=1)
    assert freshness.steps == 144
    # A refusal on the way begins the count anew.
    freshness.note(cut=4, reached=0, judged=800, stale=2)
    freshness.note(cut=5, reached=0, judged=1055, stale=2)
    assert freshness.steps == 144
    freshness.note(cut=6, reached=4, judged=100_000, stale=2)
    assert freshness.steps == 256


def test_a_learner_that_was_started_again_may_know_less():
    """Its figures may go back; that is no refusal, and no reason to grow."""
    freshness = Freshness(256, 1.0, adapt=True)
    freshness.note(cut=1, reached=1, judged=10_000, stale=100)
    freshness.note(cut=2, reached=1, judged=9_000, stale=50)
    freshness.note(cut=3, reached=1, judged=9_255, stale=50)
    assert freshness.steps == 128
    freshness.note(cut=4, reached=1, judged=9_256, stale=50)
    assert freshness.steps == 144


def test_without_it_nothing_changes():
    freshness = Freshness(256, 1.0, adapt=False)
    freshness.note(cut=10, reached=9, judged=1500, stale=1500)
    assert (freshness.steps, freshness.age_s, freshness.share) == (256, 1.0, 1.0)


@given(
    full=st.integers(1, 300),
    notes=st.lists(st.tuples(st.integers(0, 50), st.integers(-1, 50), st.integers(0, 9999), st.integers(0, 999))),
)
def test_the_size_stays_in_bounds(full: int, notes: list[tuple[int, int, int, int]]):
    """Whatever a learner says: between 8, or the full size where that is less, and the full size."""
    freshness = Freshness(full, 1.0, adapt=True)
    for note in notes:
        freshness.note(*note)
        assert min(LEAST_STEPS, full) <= freshness.steps <= full
        assert 0.0 < freshness.age_s <= 1.0
