"""Compares what actors say was acknowledged with what the learner says became of it.

It knows nothing of the pipeline but the ledgers' lines and the counters that the journals carry, so a fault in the
pipeline's own accounts cannot hide itself.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.wire import JournalCounters

SHOWN = 5


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the learner's ledger."""

    number: int
    partition: int
    offset: int
    identity: tuple[str, int]
    count: int
    verdict: str


@dataclass
class Actors:
    """The actors' ledgers: by (session, sequence), transitions produced and (partition, offset) acknowledged."""

    produced: dict[tuple[str, int], int] = field(default_factory=dict)
    acknowledged: dict[tuple[str, int], set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))


def read_actors(paths: Iterable[Path]) -> Actors:
    """All of the actors' ledgers."""
    actors = Actors()
    for line in (line for path in paths for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")):
        kind, *fields = line.split()
        if kind == "P":
            _, session, sequence, count = fields
            actors.produced[session, int(sequence)] = int(count)
        else:
            session, sequence, partition, offset = fields
            actors.acknowledged[session, int(sequence)].add((int(partition), int(offset)))
    return actors


def read_learner(path: Path) -> list[Entry]:
    """The learner's ledger; a last line that a kill cut short is left out."""
    entries: list[Entry] = []
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            number, partition, offset, _, session, sequence, count, verdict = line.split()
            identity = (session, int(sequence))
            entries.append(Entry(int(number), int(partition), int(offset), identity, int(count), verdict))
    return entries


def judged_to(path: Path) -> dict[int, int]:
    """The next offset of each partition, by the learner's ledger."""
    positions: dict[int, int] = {}
    for entry in read_learner(path) if path.exists() else []:
        positions[entry.partition] = max(positions.get(entry.partition, 0), entry.offset + 1)
    return positions


def troubles(
    actors: Actors, entries: list[Entry], versions: Mapping[int, tuple[JournalCounters, int]] | None = None
) -> list[str]:
    """What is wrong, a sentence for each rule that is broken; nothing: all is accounted for.

    Args:
        actors: what was produced and acknowledged.
        entries: what the learner says of each record.
        versions: by number, each announced version's counters and accepted transitions.
    """
    found = [
        *_acknowledged_once(actors, entries),
        *_accepted_once(entries),
        *_in_order(entries),
        *_known(actors, entries),
    ]
    for number, (counters, transitions) in sorted((versions or {}).items()):
        found += _sums(number, counters, transitions, entries)
    return found


def _acknowledged_once(actors: Actors, entries: list[Entry]) -> list[str]:
    """Every acknowledged chunk has exactly one verdict, and each place that was acknowledged was judged."""
    verdicts = Counter(entry.identity for entry in entries if entry.verdict != "duplicate")
    places = {(entry.partition, entry.offset): entry.identity for entry in entries}
    lost = [identity for identity in actors.acknowledged if verdicts[identity] == 0]
    several = [identity for identity in actors.acknowledged if verdicts[identity] > 1]
    unseen = [
        place
        for identity, acknowledged in actors.acknowledged.items()
        for place in acknowledged
        if places.get(place) != identity
    ]
    return [
        *_say(lost, "acknowledged chunks have no verdict"),
        *_say(several, "acknowledged chunks have more than one verdict"),
        *_say(unseen, "acknowledged places (partition, offset) were never judged, or as another chunk"),
    ]


def _accepted_once(entries: list[Entry]) -> list[str]:
    accepted = Counter(entry.identity for entry in entries if entry.verdict == "accepted")
    return _say([identity for identity, times in accepted.items() if times > 1], "chunks were accepted more than once")


def _in_order(entries: list[Entry]) -> list[str]:
    """Each record is judged once, in its partition's order, and the version in force never goes back."""
    expected: dict[int, int] = {}
    again: list[tuple[int, int]] = []
    back: list[int] = []
    number = 0
    for entry in entries:
        if entry.offset < expected.get(entry.partition, 0):
            again.append((entry.partition, entry.offset))
        if entry.number < number:
            back.append(entry.number)
        expected[entry.partition] = entry.offset + 1
        number = entry.number
    return [
        *_say(again, "records (partition, offset) were judged again or out of order"),
        *_say(back, "version numbers in force were lower than one before"),
    ]


def _known(actors: Actors, entries: list[Entry]) -> list[str]:
    """Accepted chunks are the actors', with as many transitions as they were produced with."""
    strange = [
        entry.identity
        for entry in entries
        if entry.verdict == "accepted" and actors.produced.get(entry.identity) != entry.count
    ]
    return _say(strange, "accepted chunks were not produced so")


def _sums(number: int, counters: JournalCounters, transitions: int, entries: list[Entry]) -> list[str]:
    """The counters that a version's journal carries are those of the lines judged before it was cut."""
    found: list[str] = []
    accounted = counters.accepted + counters.rejected + counters.duplicates + counters.expired
    if counters.offsets_advanced != accounted:
        found.append(f"version {number}: {counters.offsets_advanced} offsets advanced, {accounted} accounted for")
    before = [entry for entry in entries if entry.number < number]
    verdicts = Counter(entry.verdict for entry in before)
    said = {
        "accepted": (counters.accepted, verdicts["accepted"]),
        "duplicates": (counters.duplicates, verdicts["duplicate"]),
        "rejected": (counters.rejected, len(before) - verdicts["accepted"] - verdicts["duplicate"]),
        "transitions": (transitions, sum(entry.count for entry in before if entry.verdict == "accepted")),
    }
    found += [
        f"version {number}: its record says {theirs} {name}, the ledger {ours}"
        for name, (theirs, ours) in said.items()
        if theirs != ours
    ]
    return found


def _say(examples: list[object] | list[tuple[int, int]] | list[tuple[str, int]] | list[int], what: str) -> list[str]:
    if not examples:
        return []
    more = ", …" if len(examples) > SHOWN else ""
    return [f"{len(examples)} {what}: {', '.join(map(str, examples[:SHOWN]))}{more}"]
