"""The learner's fold, record by record, without services."""

from collections.abc import Iterator

import numpy as np
import pytest

from pipeline.broker import Record
from pipeline.config import load_config
from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.experience import Chunk, Segments, Version
from pipeline.learner import DQNTrainingNode
from pipeline.learner.ingest import Arrival
from pipeline.wire import ModelVersionRecord, RecordHeaders

STEPS = 10
SESSION = "a" * 32


class Published:
    """Takes what the node publishes."""

    def __init__(self) -> None:
        self.versions: list[ModelVersionRecord] = []

    def submit(self, record: ModelVersionRecord, tensors: dict[str, np.ndarray]) -> None:
        assert all(np.isfinite(tensor).all() for tensor in tensors.values())
        self.versions.append(record)


class Letters:
    """Takes the dead letters."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def write(self, record: Record, actor: str, error: InvalidRecordError) -> None:
        self.reasons.append(error.reason.value)


@pytest.fixture
def node(tmp_path) -> Iterator[DQNTrainingNode]:
    """A node at version 1.4, with nothing behind it."""
    config = load_config(
        [
            f"saves={tmp_path}",
            "run=fold",
            "algorithm.learning_starts=20",
            "algorithm.batch_size=8",
            "algorithm.transitions_per_update=5",
            "algorithm.updates_per_version=4",
            "learner.heartbeat_s=1000000",
            "learner.checkpoint_every=0",
        ]
    )
    node = DQNTrainingNode(config)
    node._publisher = Published()  # type: ignore[assignment]
    node._dead_letters = Letters()  # type: ignore[assignment]
    node._heartbeat_due = float("inf")
    node.version = Version(1, 4)
    yield node


def arrival(
    offset: int, sequence: int, number: int = 4, skipped: int = 0, error: RejectReason | None = None
) -> Arrival:
    headers = RecordHeaders("fold", "a", SESSION, sequence, Version(1, number), "0" * 16, STEPS)
    random = np.random.default_rng(sequence)
    chunk = Chunk(
        version=Version(1, number),
        segments=Segments(
            environment=np.zeros(1, np.int32),
            episode=np.array([sequence], np.int64),
            first_step=np.zeros(1, np.int32),
            length=np.array([STEPS], np.int32),
            ending=np.ones(1, np.uint8),
        ),
        columns={
            "observation": random.standard_normal((STEPS + 1, 4)).astype(np.float32),
            "action": random.integers(0, 2, STEPS),
            "reward": np.ones(STEPS, np.float32),
        },
    )
    record = Record("s", 0, offset, 0, b"a", b"", None)
    if error is not None:
        return Arrival(record, headers, None, InvalidRecordError(error, "as the test says"), skipped)
    return Arrival(record, headers, chunk, None, skipped)


def test_the_window_of_three_versions(node: DQNTrainingNode):
    """The current version and two before it are accepted; older and unheard-of ones are not."""
    for sequence, number in enumerate([4, 3, 2, 1, 0, 5]):
        node.apply(arrival(sequence, sequence, number))
    accounting = node.accounting
    assert accounting.accepted == 3
    assert dict(accounting.lag) == {0: 1, 1: 1, 2: 1}
    assert dict(accounting.rejected) == {"stale": 2, "unknown-version": 1}
    assert dict(accounting.by_actor) == {("a", 3): 1, ("a", 4): 1}
    assert accounting.holds()


def test_everything_is_accounted_for(node: DQNTrainingNode):
    """Offsets advanced = accepted + rejected + duplicates + expired."""
    node.apply(arrival(0, 0))
    node.apply(arrival(1, 0))
    node.apply(arrival(5, 1, skipped=3))
    node.apply(arrival(6, 2, error=RejectReason.NOT_FINITE))
    accounting = node.accounting
    assert (accounting.accepted, accounting.duplicates, accounting.expired) == (2, 1, 3)
    assert accounting.offsets_advanced == 7
    assert accounting.holds()
    assert node._dead_letters.reasons == ["not-finite"]  # type: ignore[attr-defined]
    assert accounting.to_json()["rejected"] == {"not-finite": 1}


def test_training_is_triggered_by_counts(node: DQNTrainingNode):
    """One update per five transitions after the first twenty, a version every four updates."""
    for sequence in range(8):
        node.apply(arrival(sequence, sequence))
        node._train_while_due()
    assert node.accounting.accepted_transitions == 80
    assert node.updates == (80 - 20) // 5
    numbers = [record.number for record in node._publisher.versions]  # type: ignore[attr-defined]
    assert numbers == [5, 6, 7]
    assert [record.transitions for record in node._publisher.versions] == [40, 60, 80]  # type: ignore[attr-defined]


def test_the_same_records_give_the_same_weights(node: DQNTrainingNode, tmp_path):
    """Bit for bit, in another node; and after a checkpoint's round trip the state is the same."""
    other = DQNTrainingNode(node.config)
    other._publisher, other._dead_letters = Published(), Letters()  # type: ignore[assignment]
    other._heartbeat_due, other.version = float("inf"), Version(1, 4)
    for sequence in range(8):
        for each in (node, other):
            each.apply(arrival(sequence, sequence))
            each._train_while_due()
    one, two = node.weights(), other.weights()
    assert all(one[name].tobytes() == two[name].tobytes() for name in one)
    node.checkpoint(tmp_path / "checkpoint")
    third = DQNTrainingNode(node.config)
    third.load_checkpoint(tmp_path / "checkpoint")
    assert all(one[name].tobytes() == third.weights()[name].tobytes() for name in one)
    assert third.updates == node.updates
