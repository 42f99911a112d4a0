"""The checker fails where it should: on learners that are wrong on purpose, and not on the right one.

On the fold with a log in memory: a crash is a new fold that takes over what was saved.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.broker import Record
from pipeline.config import PipelineConfig, load_config
from pipeline.experience import Identity, Version
from pipeline.learner import DQNTrainingNode
from pipeline.learner.durable.checkpoint import Snapshot
from pipeline.learner.intake.arrival import Arrival
from pipeline.learner.intake.identities import Identities
from tests.recovery.checker import Actors, read_learner, troubles
from tests.recovery.recorded import SETTINGS, records

CHUNKS = 200


class Log:
    """One partition in memory, and the ledger of its actors."""

    def __init__(self, config: PipelineConfig, node: DQNTrainingNode) -> None:
        self.actors = Actors()
        self.records: list[Record] = []
        for offset, (headers, value, _) in enumerate(records(config, node.layout, CHUNKS, seed=0)):
            identity = (headers.session, headers.sequence)
            self.actors.produced[identity] = headers.count
            self.actors.acknowledged[identity].add((0, offset))
            self.records.append(Record("s", 0, offset, 0, b"", value, headers.to_kafka()))
        self._at = 0

    def take(self, partition: int, next_offset: int) -> Iterator[tuple[Record, int]]:
        while self._at < next_offset:
            self._at += 1
            yield self.records[self._at - 1], 0

    def seek(self, partition: int, offset: int) -> None:
        self._at = offset

    def position(self, partition: int) -> int:
        return self._at

    def close(self) -> None:
        pass


class Crash(Exception):
    """The process ends here; what was saved is all that is left."""

    def __init__(self, saved: Snapshot) -> None:
        super().__init__()
        self.saved = saved


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    return load_config(["run=mutant", f"saves={tmp_path}", f"learner.ledger={tmp_path / 'ledger'}", *SETTINGS])


def fold_over(node: DQNTrainingNode, log: Log, crash_at: int = CHUNKS, before: Callable[[Arrival], None] | None = None):
    """Apply the log from where the node stands; crash with a checkpoint after the record at this offset."""
    examiner = node.examiner()
    for record in log.records[node.positions.get(0, 0) :]:
        arrival = examiner.examine(record)
        if before is not None:
            before(arrival)
        node.apply(arrival)
        while node.train_due():
            if node.train():
                node.cut(Version(1, node.version.number + 1), node.weights())
        if record.offset == crash_at:
            raise Crash(node.snapshot())


def found(config: PipelineConfig, log: Log) -> list[str]:
    return troubles(log.actors, read_learner(Path(config.learner.ledger)))


def crash_and_go_on(
    config: PipelineConfig, before: Callable[[DQNTrainingNode], Callable[[Arrival], None]] | None
) -> Log:
    node = DQNTrainingNode(config)
    node.cut(Version(1, 0), node.weights())
    log = Log(config, node)
    with pytest.raises(Crash) as crash:
        fold_over(node, log, CHUNKS // 2, before(node) if before is not None else None)
    node = DQNTrainingNode(config)
    node.restore(crash.value.saved)
    node.refill(log)
    fold_over(node, log)
    return log


def test_the_learner_as_it_is_passes(config: PipelineConfig):
    assert found(config, crash_and_go_on(config, None)) == []


def test_without_removing_duplicates_it_fails(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch):
    seen = Identities.seen

    def never(self: Identities, identity: Identity) -> bool:
        seen(self, identity)
        return False

    monkeypatch.setattr(Identities, "seen", never)
    assert any("accepted more than once" in each for each in found(config, crash_and_go_on(config, None)))


def test_with_the_offset_advanced_before_insertion_it_fails(config: PipelineConfig):
    """A crash in between: the checkpoint says that the record was read, and it was not inserted."""

    def advance_first(node: DQNTrainingNode) -> Callable[[Arrival], None]:
        def before(arrival: Arrival) -> None:
            node.positions[0] = arrival.record.offset + 1
            if arrival.record.offset == CHUNKS // 2:
                raise Crash(node.snapshot())

        return before

    assert any("have no verdict" in each for each in found(config, crash_and_go_on(config, advance_first)))
