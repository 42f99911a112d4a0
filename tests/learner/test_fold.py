"""The learner's fold, record by record, without services."""

import hashlib
from collections.abc import Iterator

import pytest

from pipeline.broker import Record
from pipeline.errors import CheckpointError, InvalidRecordError, RejectReason
from pipeline.experience import Version
from pipeline.learner import DQNTrainingNode
from pipeline.learner.intake.arrival import Arrival
from pipeline.wire import RecordHeaders
from tests.learner.made import RUN, SESSION, STEPS, chunk_of, feed, node_in, published, record_of


@pytest.fixture
def node(tmp_path) -> Iterator[DQNTrainingNode]:
    """A node at version 1.4, with nothing behind it."""
    node = node_in(tmp_path, "learner.version_window=3")
    node.version = Version(1, 4)
    yield node


def arrival(
    offset: int, sequence: int, number: int = 4, skipped: int = 0, error: RejectReason | None = None, epoch: int = 1
) -> Arrival:
    headers = RecordHeaders(RUN, "a", SESSION, sequence, Version(epoch, number), "0" * 16, STEPS)
    chunk = chunk_of(sequence, Version(epoch, number))
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


def test_a_damaged_chunk_is_judged_as_a_whole_one_is(node: DQNTrainingNode):
    """Old ones may not have been decoded at all, so their age comes first; a repetition is a repetition."""
    damaged = RejectReason.NOT_FINITE
    assert node.apply(arrival(0, 0, 1, error=damaged)) == "stale"
    assert node.apply(arrival(1, 1, 4, error=damaged)) == "not-finite"
    assert node.apply(arrival(2, 1, 4, error=damaged)) == "duplicate"
    assert node.apply(arrival(3, 2, 4, epoch=2)) == "unknown-version"
    assert node._dead_letters.reasons == ["not-finite"]  # type: ignore[union-attr]
    assert node.accounting.rejected_transitions == 3 * STEPS
    assert node.accounting.holds()


def test_training_is_triggered_by_counts(tmp_path):
    """One update per five transitions after the first twenty, a version every four updates."""
    node = node_in(tmp_path)
    node.publish()
    feed(node, [record_of(node, sequence, sequence) for sequence in range(8)])
    assert node.accounting.accepted_transitions == 80
    assert node.updates == (80 - 20) // 5
    assert [record.number for record in published(node)] == [0, 1, 2, 3]
    assert [record.transitions for record in published(node)] == [0, 40, 60, 80]
    assert [record.updates for record in published(node)] == [0, 4, 8, 12]


def test_another_runs_checkpoint_is_a_starting_point(tmp_path):
    """Its networks and optimizer, in a run of its own numbers; the journal says so, and a copy is kept."""
    old = node_in(tmp_path / "old")
    old.publish()
    feed(old, [record_of(old, sequence, sequence) for sequence in range(8)])
    old.checkpoint(tmp_path / "checkpoint", {"note": "good"})
    new = node_in(tmp_path / "new")
    new.load_checkpoint(tmp_path / "checkpoint")
    assert all(new.weights()[name].tobytes() == array.tobytes() for name, array in old.weights().items())
    assert (new.version.number, new.updates, len(new.buffer)) == (-1, 0, 0)
    manifest = (tmp_path / "checkpoint/manifest.json").read_bytes()
    assert (new.folder.origin(hashlib.sha256(manifest).hexdigest()) / "manifest.json").read_bytes() == manifest
    with pytest.raises(CheckpointError, match="another network"):
        node_in(tmp_path / "other", "algorithm.hidden=[8]").load_checkpoint(tmp_path / "checkpoint")


def test_a_checkpoint_is_of_its_run_alone(tmp_path):
    """As far as recovery goes."""
    node = node_in(tmp_path)
    node.publish()
    snapshot = node.snapshot()
    other = node_in(tmp_path, "run=another")
    with pytest.raises(CheckpointError, match="another"):
        other.restore(snapshot)
