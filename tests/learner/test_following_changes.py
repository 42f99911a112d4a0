"""Settings changed live are in the journal: whoever follows it comes to the same bits, and goes on with them."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.broker import Record
from pipeline.config import to_dict
from pipeline.learner import DQNTrainingNode
from pipeline.learner.durable.checkpoint import checkpoint_name
from pipeline.learner.durable.following import read_journal
from pipeline.learner.durable.recovery import recover
from pipeline.weights import Lineage
from pipeline.wire import COMMANDS, Command, ModelVersionRecord
from tests.learner.made import Log, feed, follow_all, lead, node_in, published, record_of

CHANGES: list[dict[str, Any]] = [
    {"lr": 1e-4},
    {"lr": 5e-3, "lr_decay_transitions": 300},
    {"transitions_per_update": 2},
    {"transitions_per_update": 15, "updates_per_version": 2},
    {"batch_size": 3, "grad_clip": 0.1},
    {"target_interval": 3, "target_rate": 0.5, "double": False},
    {"prioritised.alpha": 0.9, "prioritised.beta_updates": 7, "exploration.start": 0.5},
    {"n_step": 1},  # refused
    {"lr": -1.0},  # refused
]


def command(id: str, change: dict[str, Any]) -> Command:
    return Command(id, "set", json.dumps({f"algorithm.{name}": value for name, value in change.items()}))


class Run:
    """A node that lives through records and commands, and what it left behind."""

    def __init__(self, node: DQNTrainingNode) -> None:
        self.node = node
        self.log = Log({0: []})
        self.claims = [claim_of(node, 1)]
        node.positions = {0: 0, COMMANDS: 0}
        node.journal.begin(node.positions)
        node.publish()
        self.commands = 0

    def samples(self, count: int = 1) -> None:
        for _ in range(count):
            offset = len(self.log.partitions[0])
            record = record_of(self.node, offset, offset)
            self.log.partitions[0].append(record)
            feed(self.node, [record])

    def set(self, given: Command) -> None:
        record = Record(self.node.topics.commands, 0, self.commands, 0, None, given.encode(), None)
        self.commands += 1
        self.node._command(record)
        self.node._train_while_due()

    def save(self) -> None:
        node = self.node
        assert node.parent is not None
        node.checkpoint(node.folder.checkpoints / checkpoint_name(node.parent, node.accounting.offsets_advanced))

    def lineage(self, *later: DQNTrainingNode) -> Lineage:
        lineage = Lineage(self.node.run_name)
        for claim, node in zip(self.claims, (self.node, *later), strict=True):
            for record in (claim, *published(node)):
                lineage.note(record)
        return lineage

    def restart(self, node: DQNTrainingNode, *before: DQNTrainingNode) -> None:
        """Let another node go on as a learner does that was started anew."""
        lineage = self.lineage(*before)
        epoch = len(self.claims) + 1
        self.claims.append(claim_of(node, epoch))
        links = SimpleNamespace(epoch=epoch, lineage=lineage, ordered=self.log.at)
        node._links = links  # type: ignore[assignment]
        node._come_back(links, {})  # type: ignore[arg-type]


def claim_of(node: DQNTrainingNode, epoch: int) -> ModelVersionRecord:
    config = json.dumps(to_dict(node.config))
    return ModelVersionRecord(node.run_name, epoch, 0, "", 0, "", kind="claim", config_json=config)


@pytest.mark.parametrize("algorithm", ["dqn", "rainbow"])
@settings(max_examples=5, deadline=None)
@given(steps=st.lists(st.one_of(st.just(-1), st.integers(0, len(CHANGES) - 1)), min_size=16, max_size=28))
def test_any_interleaving_of_changes_and_samples_is_followed_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory, algorithm: str, steps: list[int]
):
    """A number is a change, under an id of its own: the second time it is passed over. −1 is a record."""
    folder = tmp_path_factory.mktemp("run")
    run = Run(node_in(folder, f"algorithm={algorithm}"))
    for step in steps:
        run.samples(2) if step < 0 else run.set(command(f"c{step}", CHANGES[step]))
    # Whatever was left of the run is published too.
    run.node.publish()
    other = node_in(folder, f"algorithm={algorithm}")
    assert follow_all(other, run.lineage(), run.log) == [True] * len(run.lineage())
    assert other.settings == run.node.settings
    assert other.exploration() == run.node.exploration()
    assert other.commands.state()["ids"] == run.node.commands.state()["ids"]


@pytest.mark.parametrize(("algorithm", "saved_after"), [("dqn", False), ("rainbow", True)])
def test_a_restarted_learner_goes_on_with_what_was_set(tmp_path: Path, algorithm: str, saved_after: bool):
    """Whether checkpoint or journal knows of it; the versions are those of a run that nobody killed."""
    given = command("one", {"lr": 1e-4, "transitions_per_update": 3, "batch_size": 4})

    def lived(folder: str) -> Run:
        run = Run(node_in(tmp_path / folder, f"algorithm={algorithm}"))
        run.samples(8)
        if not saved_after:
            run.save()
        run.set(given)
        run.samples(4)
        if saved_after:
            run.save()
        run.samples(4)
        return run

    killed, undisturbed = lived("killed"), lived("undisturbed")
    successor = node_in(tmp_path / "killed", f"algorithm={algorithm}")
    killed.restart(successor)
    assert successor.settings == undisturbed.node.settings != successor.config.algorithm
    undisturbed.samples(8)
    records = undisturbed.log.partitions[0]
    successor._train_while_due()
    feed(successor, records[successor.positions[0] :])
    killed.log.partitions[0] = records
    expected = [(v.number, v.sha256) for v in published(undisturbed.node)]
    whole = killed.lineage(successor)
    assert [(v.number, v.sha256) for v in whole.versions] == expected
    # Given once more, as somebody does who heard no answer, it changes nothing and is confirmed with its outcome.
    successor.commands.resume(successor)
    told = {each.id: each for each in successor.commands.outcomes()}["one"]
    assert told.done and "algorithm.lr from 0.002 to 0.0001" in told.detail


def test_what_was_changed_by_hand_before_a_restart_is_journalled(tmp_path: Path):
    """It takes the place of what was set live, which stays otherwise; nothing is broken, and all is followed."""
    run = Run(node_in(tmp_path))
    run.samples(8)
    run.save()
    run.set(command("one", {"lr": 1e-4, "batch_size": 4}))
    run.samples(4)
    by_hand = ("algorithm.lr=0.5", "algorithm.target_rate=0.5", "algorithm.ppo.clip=0.3")
    second = node_in(tmp_path, *by_hand)
    run.restart(second)
    assert (second.settings.lr, second.settings.batch_size, second.settings.target_rate) == (0.5, 4, 0.5)
    rest = [record_of(run.node, sequence, sequence) for sequence in range(second.positions[0], 18)]
    run.log.partitions[0][second.positions[0] :] = rest
    feed(second, rest)
    [given] = read_journal(published(second)[0]).commands
    assert given.kind == "set" and json.loads(given.argument_json) == {
        "algorithm.lr": 0.5,
        "algorithm.target_rate": 0.5,
    }
    # The third is launched as the second was: nothing was changed by hand, so all stays.
    third = node_in(tmp_path, *by_hand)
    run.restart(third, second)
    assert third.settings == second.settings
    assert not third.journal.journal(None, third.accounting.counters()).commands
    lineage = run.lineage(second, third)
    assert not any(read_journal(version).broken for version in lineage.versions)
    assert follow_all(node_in(tmp_path), lineage, run.log) == [True] * len(lineage)


def test_recovery_from_the_beginning_begins_as_the_run_was_launched(tmp_path: Path):
    """Without a checkpoint, though the learner is started with another rate now."""
    run = Run(node_in(tmp_path))
    run.samples(10)
    other = node_in(tmp_path, "algorithm.lr=0.5")
    recovered = recover(other, run.lineage(), other.folder, run.log.at, lambda record: {})
    assert recovered.trouble == "" and recovered.versions == len(published(run.node))


def test_what_the_log_cannot_tell_any_more_still_has_its_settings(tmp_path: Path):
    """An inexact recovery keeps what was set, and its updates go on from where they were."""
    run = Run(node_in(tmp_path))
    run.samples(8)
    run.set(command("one", {"transitions_per_update": 20}))
    run.samples(8)
    del run.log.partitions[0][:5]
    other = node_in(tmp_path)
    recovered = recover(other, run.lineage(), other.folder, run.log.at, lambda record: run.node.weights())
    lead(other, 2)
    assert recovered.trouble and other.settings.transitions_per_update == 20
    accepted, updates = other.accounting.accepted_transitions, other.updates
    assert not other.train_due()
    feed(other, [record_of(other, sequence, sequence) for sequence in range(20, 24)])
    assert other.accounting.accepted_transitions == accepted + 40 and other.updates == updates + 2
