"""What the journal tells is enough to compute every version again, bit for bit."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.broker import Record
from pipeline.errors import RecoveryError
from pipeline.experience import Version
from pipeline.learner import DQNTrainingNode
from pipeline.learner.durable.checkpoint import checkpoint_name
from pipeline.learner.durable.following import follow, read_journal
from pipeline.learner.durable.recovery import begin, recover
from pipeline.learner.intake.arrival import Arrival
from pipeline.wire import Command
from tests.learner import made
from tests.learner.made import Log, chunk_of, feed, follow_all, lead, lineage_of, published, record_of

ALGORITHMS = {
    "dqn": ["algorithm=dqn"],
    "rainbow": ["algorithm=rainbow", "algorithm.normalise_observations=true", "algorithm.reward_clip=0.5"],
}
_algorithm: list[str] = []


@pytest.fixture(params=ALGORITHMS, scope="module", autouse=True)
def _each_algorithm(request: pytest.FixtureRequest) -> None:
    """Every test here holds for each of them."""
    global _algorithm
    _algorithm = ALGORITHMS[request.param]


def node_in(folder: Path, *overrides: str) -> DQNTrainingNode:
    return made.node_in(folder, *_algorithm, *overrides)


def interleaved(node, order: list[int]) -> list[Record]:
    """One record of that partition after the other; each partition has an actor of its own."""
    counts = {partition: 0 for partition in order}
    records: list[Record] = []
    for partition in order:
        counts[partition] += 1
        offset = counts[partition] - 1
        records.append(record_of(node, offset, offset, partition, actor=f"a{partition}"))
    return records


def log_of(records: list[Record]) -> Log:
    partitions: dict[int, list[Record]] = {}
    for record in records:
        partitions.setdefault(record.partition, []).append(record)
    return Log(partitions)


def live(folder: Path, order: list[int], *overrides: str):
    """A node that lived through these records, and its log."""
    node = node_in(folder, *overrides)
    node.positions = dict.fromkeys(order, 0)
    node.journal.begin(node.positions)
    node.publish()
    records = interleaved(node, order)
    feed(node, records)
    return node, log_of(records)


@settings(max_examples=10, deadline=None)
@given(order=st.lists(st.integers(0, 3), min_size=20, max_size=60))
def test_every_version_comes_out_again(tmp_path_factory, order: list[int]):
    folder = tmp_path_factory.mktemp("run")
    node, log = live(folder, order)
    lineage = lineage_of(node)
    other = node_in(folder)
    assert follow_all(other, lineage, log) == [True] * len(lineage)
    assert other.accounting.counters() == read_journal(lineage.versions[-1]).counters
    assert len(lineage) >= 3


def test_neighbouring_records_are_one_step(tmp_path: Path):
    node, _ = live(tmp_path, [0] * 20 + [1] * 20)
    steps = [[(s.source, s.next_offset) for s in read_journal(v).steps] for v in published(node)]
    assert steps[0] == []
    assert all(len(each) <= 2 for each in steps)
    assert steps[-1][-1][0] == 1


def test_an_altered_sample_shows_in_the_first_version_that_it_made(tmp_path: Path):
    node, log = live(tmp_path, [0] * 40)
    lineage = lineage_of(node)
    altered = 12
    record = log.partitions[0][altered]
    reward = chunk_of(altered, Version(1, 0)).columns["reward"].tobytes()
    place = record.value.index(reward) + 9  # the third reward's mantissa
    value = bytearray(record.value)
    value[place] ^= 1
    log.partitions[0][altered] = Record(*record.place, altered, 0, record.key, bytes(value), record.headers)
    seen = follow_all(node_in(tmp_path), lineage, log)
    first = seen.index(False)
    boundary = next(v.number for v in lineage.versions if lineage.positions(v.number)[0] > altered)
    assert all(seen[:first])
    assert boundary <= first <= boundary + 2


def test_free_running_training_is_written_down(tmp_path: Path):
    free = "algorithm.transitions_per_update=0"
    node = node_in(tmp_path, free)
    node.positions = {0: 0, 1: 0, -1: 0}
    node.journal.begin(node.positions)
    node.publish()
    random = np.random.default_rng(0)
    records = interleaved(node, random.integers(0, 2, 40).tolist())
    for index, record in enumerate(records):
        feed(node, [record])
        if index % 9 == 8:
            command = Command(f"c{index}", "nothing-known")
            node._command(Record(node.topics.commands, 0, index // 9, 0, None, command.encode(), None))
        for _ in range(random.integers(0, 4)):
            if node.train_due():
                node._train_once()
    lineage = lineage_of(node)
    assert len(lineage) > 5
    journals = [read_journal(version) for version in lineage.versions]
    assert all(journal.free_running for journal in journals)
    assert sum(step.updates for journal in journals for step in journal.steps) == lineage.updates
    assert follow_all(node_in(tmp_path, free), lineage, log_of(records)) == [True] * len(lineage)


def test_a_version_put_off_while_the_store_is_away_is_computed_again(tmp_path: Path):
    node = node_in(tmp_path)
    node.positions = {0: 0}
    node.journal.begin(node.positions)
    node.publish()
    records = interleaved(node, [0] * 50)
    feed(node, records[:15])
    node._publisher.failing = True  # type: ignore[union-attr]
    before = node.version
    feed(node, records[15:32])
    assert node.version == before
    assert node.updates > published(node)[-1].updates + 4
    node._publisher.failing = False  # type: ignore[union-attr]
    feed(node, records[32:])
    lineage = lineage_of(node)
    assert [v.number for v in lineage.versions] == list(range(len(lineage)))
    assert follow_all(node_in(tmp_path), lineage, log_of(records)) == [True] * len(lineage)


def test_commands_stand_in_the_journal(tmp_path: Path):
    node = node_in(tmp_path)
    node.positions = {0: 0, -1: 0}
    node.journal.begin(node.positions)
    node.publish()
    records = interleaved(node, [0] * 20)
    feed(node, records[:8])
    command = Command("c1", "nothing-known")
    node._command(Record(node.topics.commands, 0, 0, 0, None, command.encode(), None))
    feed(node, records[8:])
    lineage = lineage_of(node)
    other = node_in(tmp_path)
    assert follow_all(other, lineage, log_of(records)) == [True] * len(lineage)
    assert other.positions[-1] == 1
    assert "c1" in other.commands.state()["ids"]


@pytest.mark.parametrize("buffer", ["false", "true"])
@pytest.mark.parametrize("midst", [False, True])
def test_recovery_from_a_checkpoint_gives_the_undisturbed_run(tmp_path: Path, buffer: str, midst: bool):
    """The same versions with the same hashes as if nothing had happened, under the next epoch."""
    order = [0, 0, 1, 0, 1, 1, 1, 0] * 8
    undisturbed, log = live(tmp_path / "undisturbed", order)
    stored = f"learner.checkpoint_buffer={buffer}"
    killed = node_in(tmp_path / "killed", stored)
    killed.positions = {0: 0, 1: 0}
    killed.journal.begin(killed.positions)
    killed.publish()
    records = interleaved(killed, order)
    for index, record in enumerate(records[:45]):
        before = killed.version.number
        feed(killed, [record])
        if index == 30 or (midst and index == 44) or (killed.version.number > before and index < 30):
            assert killed.parent is not None
            name = checkpoint_name(killed.parent, killed.accounting.offsets_advanced)
            killed.checkpoint(killed.folder.checkpoints / name)
    lineage = lineage_of(killed)
    restarted = node_in(tmp_path / "killed", stored)
    recovered = recover(restarted, lineage, restarted.folder, log.at, lambda record: {})
    lead(restarted, 2)
    assert recovered.trouble == ""
    assert recovered.began_at is not None
    assert restarted.parent == lineage.newest.version  # type: ignore[union-attr]
    position = {partition: offset for partition, offset in restarted.positions.items() if partition >= 0}
    rest = records[sum(position.values()) :]
    # Of the interleaving, what the newest version was not made of comes again in the same order.
    restarted._train_while_due()
    feed(restarted, rest)
    whole = lineage_of(killed, restarted)
    expected = [(v.number, v.sha256) for v in published(undisturbed)]
    assert [(v.number, v.sha256) for v in whole.versions] == expected
    assert restarted.accounting == undisturbed.accounting
    assert max(v.epoch for v in whole.versions) == 2


def saved_now(node: DQNTrainingNode) -> Path:
    assert node.parent is not None
    folder = node.folder.checkpoints / checkpoint_name(node.parent, node.accounting.offsets_advanced)
    node.checkpoint(folder)
    return folder


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_flipped_bit_in_the_newest_checkpoint_makes_recovery_use_the_one_before(tmp_path: Path, name: str):
    node = node_in(tmp_path)
    node.positions = {0: 0}
    node.journal.begin(node.positions)
    node.publish()
    records = interleaved(node, [0] * 40)
    folders: list[Path] = []
    for record in records:
        before = node.version
        feed(node, [record])
        if node.version != before and not node.train_due() and node.updates == published(node)[-1].updates:
            folders.append(saved_now(node))
    assert len(folders) > 2
    damaged = bytearray((folders[-1] / name).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (folders[-1] / name).write_bytes(bytes(damaged))
    lineage = lineage_of(node)
    other = node_in(tmp_path)
    recovered = recover(other, lineage, other.folder, log_of(records).at, lambda record: {})
    assert recovered.trouble == ""
    assert recovered.began_at is not None
    assert folders[-2].name.startswith(f"000001-{recovered.began_at.number:09d}")


def test_loading_an_old_checkpoint_never_takes_numbers_back(tmp_path: Path):
    """The run goes on from it under its own numbers, and says that the next version does not follow."""
    node, log = live(tmp_path, [0] * 20)
    old = tmp_path / "old"
    node.checkpoint(old)
    feed(node, interleaved(node, [0] * 40)[20:])
    log = log_of(interleaved(node, [0] * 40))
    lineage = lineage_of(node)
    other = node_in(tmp_path)
    other.load_checkpoint(old)
    loaded = other.weights()
    links = SimpleNamespace(epoch=2, lineage=lineage, ordered=log.at)
    other._come_back(links, {})  # type: ignore[arg-type]
    other._links = links  # type: ignore[assignment]
    assert other.version == Version(2, lineage.number)
    assert all(other.weights()[name].tobytes() == array.tobytes() for name, array in loaded.items())
    checkpoints: list[str] = []
    other._checkpoints = SimpleNamespace(submit=lambda name, snapshot: checkpoints.append(name))  # type: ignore[assignment]
    other.publish()
    journal = read_journal(published(other)[-1])
    assert published(other)[-1].number == lineage.number + 1
    # Recovery cannot follow the journal over that version, so it needs a checkpoint behind it at once.
    assert len(checkpoints) == 1
    assert "loaded fold@1." in journal.broken
    assert other.folder.origin(journal.origin_sha256).is_dir()


def test_recovery_without_a_checkpoint_begins_at_the_beginning(tmp_path: Path):
    node, log = live(tmp_path, [0] * 40)
    lineage = lineage_of(node)
    other = node_in(tmp_path)
    recovered = recover(other, lineage, other.folder, log.at, lambda record: {})
    assert (recovered.trouble, recovered.began_at, recovered.versions) == ("", None, len(lineage))


class Waiting:
    """Takes the place of the ingest thread."""

    def __init__(self, node: DQNTrainingNode, records: list[Record]) -> None:
        self.arrivals = [node.examiner().examine(record) for record in records]

    def take(self, timeout: float) -> Arrival | None:
        return self.arrivals.pop(0) if self.arrivals else None


def test_a_learner_told_to_stop_while_updates_are_due_leaves_them_to_the_next(tmp_path: Path, monkeypatch):
    """No record is applied before the updates that were due; what comes later is what would have come anyway."""
    order = [0] * 40
    undisturbed, log = live(tmp_path / "undisturbed", order)
    node = node_in(tmp_path / "stopped")
    node.positions = {0: 0}
    node.journal.begin(node.positions)
    node.publish()
    records = interleaved(node, order)
    train = node.train

    def train_and_stop() -> bool:
        cut = train()
        if node.updates == 21:
            node.shutdown()
        return cut

    monkeypatch.setattr(node, "train", train_and_stop)
    ingest = Waiting(node, records)
    while not node._ended():
        node._turn(ingest)  # type: ignore[arg-type]
    assert node.updates == 21
    assert node.train_due()
    assert node.parent is not None
    node.checkpoint(node.folder.checkpoints / checkpoint_name(node.parent, node.accounting.offsets_advanced))
    lineage = lineage_of(node)
    successor = node_in(tmp_path / "stopped")
    assert recover(successor, lineage, successor.folder, log.at, lambda record: {}).trouble == ""
    lead(successor, 2)
    rest = Waiting(successor, records[successor.positions[0] :])
    while rest.arrivals or successor.train_due():
        successor._turn(rest)  # type: ignore[arg-type]
    expected = [(v.number, v.sha256) for v in published(undisturbed)]
    whole = lineage_of(node, successor)
    assert [(v.number, v.sha256) for v in whole.versions] == expected
    assert follow_all(node_in(tmp_path / "stopped"), whole, log) == [True] * len(whole)


def test_what_retention_took_is_said_and_not_fatal_unless_asked(tmp_path: Path):
    node, log = live(tmp_path, [0] * 40)
    lineage = lineage_of(node)
    del log.partitions[0][:5]
    weights = node.weights()
    other = node_in(tmp_path)
    recovered = recover(other, lineage, other.folder, log.at, lambda record: weights)
    assert "records that the journal names are no longer" in recovered.trouble
    newest = lineage.newest
    assert newest is not None
    assert other.version == newest.version
    assert other.updates == newest.updates
    assert other.positions == lineage.positions(newest.number)
    assert other.accounting.holds()
    # Its weights are lost, but not what was judged: a chunk that is sent again is a duplicate.
    again = other.examiner().examine(record_of(node, 12, 40, 0, actor="a0"))
    assert other.apply(again) == "duplicate"
    assert all(other.weights()[name].tobytes() == weights[name].tobytes() for name in weights)
    # The journal of the next version says that it does not follow.
    lead(other, 2)
    other.publish()
    assert "are no longer" in read_journal(published(other)[-1]).broken
    with pytest.raises(RecoveryError, match="require_exact"):
        strict = node_in(tmp_path, "learner.require_exact=true")
        recover(strict, lineage, strict.folder, log.at, lambda record: weights)


def test_a_missing_version_is_an_error(tmp_path: Path):
    node, log = live(tmp_path, [0] * 40)
    versions = published(node)
    other = node_in(tmp_path)
    begin(other, versions[0], other.folder)
    with pytest.raises(RecoveryError, match="missing"):
        follow(other, [versions[0], *versions[2:]], log.at(other.positions))


def test_another_seed_is_found_out(tmp_path: Path):
    node, log = live(tmp_path, [0] * 30)
    other = node_in(tmp_path, "learner.seed=5")
    recovered = recover(other, lineage_of(node), other.folder, log.at, lambda record: node.weights())
    assert "seed" in recovered.trouble
    assert other.version == Version(1, node.version.number)
