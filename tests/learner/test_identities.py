"""De-duplication by identity, in bounded memory."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.experience import Identity
from pipeline.learner.identities import Identities

SESSION = "0" * 32


@given(st.lists(st.integers(0, 60), max_size=200))
def test_within_the_window_it_is_a_set(numbers):
    """Any order, any repetition: new exactly the first time."""
    identities = Identities(window=100)
    seen: set[int] = set()
    for number in numbers:
        assert identities.seen(Identity("a", SESSION, number)) == (number in seen)
        seen.add(number)


def test_one_forged_number_does_not_swallow_the_honest_ones():
    """A far-away number moves the watermark by the window at most."""
    identities = Identities(window=10)
    for number in range(50):
        assert not identities.seen(Identity("a", SESSION, number))
    assert not identities.seen(Identity("a", SESSION, 10**15))
    duplicates = sum(identities.seen(Identity("a", SESSION, number)) for number in range(50, 100))
    assert duplicates <= 10


def test_sessions_are_apart_and_bounded():
    """Actors and sessions do not touch each other; the one heard of longest ago is forgotten, and counted."""
    identities = Identities(max_sessions=3)
    for number in range(5):
        assert not identities.seen(Identity("a", f"{number:032x}", 0))
    assert identities.evicted == 2
    assert identities.seen(Identity("a", f"{4:032x}", 0))
    assert not identities.seen(Identity("b", f"{4:032x}", 0))


def test_positions_tell_what_was_judged():
    """Sequence and transitions per session."""
    identities = Identities()
    for number in (0, 2, 1):
        identity = Identity("a", SESSION, number)
        identities.seen(identity)
        identities.count(identity, 10)
    assert identities.positions() == [(SESSION, 2, 30)]
