"""The checker passes sound ledgers and fails on every kind of unsound ones."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline.wire import JournalCounters
from tests.recovery.checker import Actors, Entry, troubles

SESSION = "a" * 32
COUNTERS = JournalCounters(offsets_advanced=5, accepted=2, rejected=1, duplicates=1, expired=1)


def sound() -> tuple[Actors, list[Entry]]:
    """Four chunks, the second one twice in the log, the third one stale; offset 3 expired; then one more version."""
    actors = Actors()
    actors.produced = {(SESSION, sequence): 10 for sequence in range(4)}
    for sequence, offset in [(0, 0), (1, 1), (1, 2), (2, 4), (3, 5)]:
        actors.acknowledged[SESSION, sequence].add((0, offset))
    entries = [
        Entry(0, 0, 0, (SESSION, 0), 10, "accepted"),
        Entry(0, 0, 1, (SESSION, 1), 10, "accepted"),
        Entry(1, 0, 2, (SESSION, 1), 10, "duplicate"),
        Entry(1, 0, 4, (SESSION, 2), 10, "stale"),
        Entry(2, 0, 5, (SESSION, 3), 10, "accepted"),
    ]
    return actors, entries


def test_sound_ledgers_pass():
    actors, entries = sound()
    assert troubles(actors, entries, {2: (COUNTERS, 20)}) == []


def lose(entries: list[Entry]) -> None:
    del entries[0]


def twice(entries: list[Entry]) -> None:
    entries[2] = replace(entries[2], verdict="accepted")


def rejected_as_well(entries: list[Entry]) -> None:
    entries[2] = replace(entries[2], verdict="stale")


def judged_again(entries: list[Entry]) -> None:
    entries.insert(1, replace(entries[0], verdict="duplicate"))


def another(entries: list[Entry]) -> None:
    entries[0] = replace(entries[0], identity=("b" * 32, 0))


def smaller(entries: list[Entry]) -> None:
    entries[0] = replace(entries[0], count=9)


def back(entries: list[Entry]) -> None:
    entries[4] = replace(entries[4], number=0)


@pytest.mark.parametrize("fault", [lose, twice, rejected_as_well, judged_again, another, smaller, back])
def test_every_fault_is_found(fault: Callable[[list[Entry]], None]):
    actors, entries = sound()
    fault(entries)
    assert troubles(actors, entries)


def test_counters_that_do_not_add_up_are_found():
    """Neither in themselves nor against the ledger."""
    actors, entries = sound()
    assert troubles(actors, entries, {2: (replace(COUNTERS, expired=0), 20)})
    assert troubles(actors, entries, {2: (replace(COUNTERS, accepted=3, rejected=0), 20)})
    assert troubles(actors, entries, {2: (COUNTERS, 21)})
