"""De-duplication by identity, in bounded memory."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import CheckpointError
from pipeline.experience import Identity
from pipeline.learner.intake.identities import Identities
from pipeline.wire import Position

FAR = 10**15


def session(index: int) -> str:
    """The name of a session."""
    return f"{index:032x}"


def chunk(number: int, index: int = 0, actor: str = "a") -> Identity:
    """An identity."""
    return Identity(actor, session(index), number)


@given(st.lists(st.one_of(st.integers(0, 60), st.integers(0, 10**18)), max_size=200))
def test_within_the_bounds_it_is_a_set(numbers: list[int]) -> None:
    """Any order, any repetition, however far apart: new exactly the first time."""
    identities = Identities(window=200)
    seen: set[int] = set()
    for number in numbers:
        assert identities.seen(chunk(number)) == (number in seen)
        seen.add(number)
    gaps = sum(number + 1 not in seen for number in seen)
    assert identities.runs == gaps
    assert identities.forgotten == 0


@given(
    st.permutations(list(range(80))),
    st.lists(st.tuples(st.integers(0, 79), st.one_of(st.integers(0, 80), st.just(FAR), st.integers(FAR, 2 * FAR)))),
)
def test_forged_numbers_swallow_no_honest_one(honest: list[int], forged: list[tuple[int, int]]) -> None:
    """Whatever else is claimed in the session's name, only a number that was forged itself is taken for seen."""
    identities = Identities()
    claimed = {number for _, number in forged}
    for index, number in enumerate(honest):
        for at, false in forged:
            if at == index:
                identities.seen(chunk(false))
        swallowed = identities.seen(chunk(number))
        assert not swallowed or number in claimed


def test_far_numbers_from_outside_leave_the_honest_run_alone() -> None:
    """A flood of forged numbers beyond all bounds: the run that honest chunks touch is the last to go."""
    identities = Identities(window=8)
    for number in range(100):
        assert not identities.seen(chunk(number))
        for forged in range(5):
            identities.seen(chunk(FAR + 2 * (5 * number + forged)))
    assert all(identities.seen(chunk(number)) for number in range(100))
    assert identities.runs == 8
    assert identities.forgotten == 1 + 500 - 8


def test_numbers_in_order_are_one_run() -> None:
    identities = Identities(window=1)
    for number in range(1000):
        assert not identities.seen(chunk(number))
    assert (identities.runs, identities.forgotten) == (1, 0)


def test_a_gap_that_is_filled_joins_two_runs() -> None:
    identities = Identities()
    for number in (0, 1, 3, 4):
        identities.seen(chunk(number))
    assert identities.runs == 2
    assert not identities.seen(chunk(2))
    assert identities.runs == 1
    assert all(identities.seen(chunk(number)) for number in range(5))


def test_the_run_touched_longest_ago_is_forgotten_and_counted() -> None:
    identities = Identities(window=2)
    identities.seen(chunk(10))
    identities.seen(chunk(20))
    assert identities.seen(chunk(10))
    identities.seen(chunk(30))
    assert identities.forgotten == 1
    assert identities.seen(chunk(10)) and identities.seen(chunk(30))
    assert not identities.seen(chunk(20))


def test_sessions_are_apart() -> None:
    identities = Identities()
    assert not identities.seen(chunk(0, 0, "a"))
    assert not identities.seen(chunk(0, 1, "a"))
    assert not identities.seen(chunk(0, 0, "b"))
    assert identities.seen(chunk(0, 0, "a"))


def test_an_actor_s_session_heard_of_longest_ago_goes() -> None:
    """Restarts of one actor do not push others out."""
    identities = Identities(max_sessions_of_actor=3)
    identities.seen(chunk(0, 0, "other"))
    for index in range(3):
        identities.seen(chunk(0, index))
    identities.seen(chunk(0, 0))
    for index in range(3, 5):
        identities.seen(chunk(0, index))
    assert identities.evicted == 2
    assert identities.seen(chunk(0, 0, "other"))
    assert identities.seen(chunk(0, 0))
    assert identities.seen(chunk(0, 4))


def test_sessions_in_all_are_bounded() -> None:
    identities = Identities(max_sessions=3)
    for index in range(5):
        identities.seen(chunk(0, 0, f"actor-{index}"))
    assert (len(identities), identities.evicted) == (3, 2)
    assert identities.seen(chunk(0, 0, "actor-4"))
    assert not identities.seen(chunk(0, 0, "actor-0"))


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 40)), max_size=300),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 12),
    st.integers(1, 20),
)
def test_memory_is_bounded(
    calls: list[tuple[int, int, int]], window: int, of_actor: int, sessions: int, runs: int
) -> None:
    """No bound is ever passed, except that a session alone may have its own runs."""
    identities = Identities(window, of_actor, sessions, runs)
    for actor, index, number in calls:
        identities.seen(chunk(number, index, str(actor)))
        state = identities.state()
        kept = state["sessions"]
        assert len(kept) == len(identities) <= sessions
        assert max(sum(item[0] == str(actor) for item in kept) for actor in range(6)) <= of_actor
        assert all(len(item[5]) <= 2 * window for item in kept)
        assert identities.runs == sum(len(item[5]) // 2 for item in kept) <= max(runs, window)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 30)), max_size=120),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 30)), max_size=120),
)
def test_after_a_round_trip_all_goes_on_alike(
    before: list[tuple[int, int, int]], after: list[tuple[int, int, int]]
) -> None:
    """Verdicts, counters and what is forgotten next: through JSON, with tight bounds."""
    bounds = (3, 3, 8, 15)
    original, restored = Identities(*bounds), Identities(*bounds)
    for actor, index, number in before:
        identity = chunk(number, index, str(actor))
        original.seen(identity)
        original.count(identity, 7)
    restored.load_state(json.loads(json.dumps(original.state())))
    for actor, index, number in after:
        identity = chunk(number, index, str(actor))
        assert restored.seen(identity) == original.seen(identity)
        original.count(identity, 7)
        restored.count(identity, 7)
    assert restored.state() == original.state()
    assert restored.positions() == original.positions()
    assert (restored.evicted, restored.forgotten, restored.runs) == (
        original.evicted,
        original.forgotten,
        original.runs,
    )


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"evicted": 0, "forgotten": 0, "sessions": [["a", "b", 0, 0, 0]]},
        {"evicted": 0, "forgotten": 0, "sessions": [["a", "b", 0, 0, 0, [1]]]},
        {"evicted": 0, "forgotten": 0, "sessions": [["a", "b", 0, 0, 0, [5, 4]]]},
        {"evicted": 0, "forgotten": 0, "sessions": [["a", "b", 0, 0, 0, [1, 5, 4, 8]]]},
        {"evicted": 0, "forgotten": 0, "sessions": [["a", "b", 0, 0, 0, [1, 5, 6, 8]]]},
    ],
)
def test_a_damaged_state_is_refused(state: dict[str, object]) -> None:
    identities = Identities()
    identities.seen(chunk(3))
    with pytest.raises(CheckpointError, match="damaged"):
        identities.load_state(state)
    assert identities.seen(chunk(3))


def test_positions_tell_what_was_judged() -> None:
    """Sequence and transitions per session, the one heard of last at the end."""
    identities = Identities()
    for number in (0, 2, 1):
        identity = chunk(number)
        identities.seen(identity)
        identities.count(identity, 10)
    identities.seen(chunk(5, 1))
    identities.count(chunk(5, 1), 4, stale=True)
    assert identities.positions() == (Position(session(0), 2, 30), Position(session(1), 5, 4, stale=4))
    restored = Identities()
    restored.load_state(json.loads(json.dumps(identities.state())))
    assert restored.positions() == identities.positions()
    assert identities.positions(most=1) == (Position(session(1), 5, 4, stale=4),)
