"""A synchronous run is computed again from its journal, bit for bit: with events, and across restarts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import RecoveryError
from pipeline.experience import Version
from pipeline.learner import PPOTrainingNode
from pipeline.learner.durable.checkpoint import checkpoint_name
from pipeline.learner.durable.following import follow, read_journal
from pipeline.learner.durable.recovery import begin, recover
from pipeline.offline.walk import Walk
from pipeline.weights import Lineage
from pipeline.wire import EVENTS, JournalEvent, JournalStep
from tests.learner import made
from tests.learner.made import Log, follow_all, lead, lineage_of, published
from tests.learner.made_ppo import Recorder, Tape, chunk_of, feed, node_in, record_of, session_of, settle

NORMALISED = "algorithm.normalise_observations=true"
ACTORS = "abc"

_steps = st.one_of(
    st.tuples(st.sampled_from(["chunk", "chunk", "chunk", "join", "lost", "take"]), st.sampled_from("abcd")),
    st.tuples(st.just("stale"), st.sampled_from("abc")),
    st.tuples(st.just("mangled"), st.sampled_from("abc")),
)


def recorded(folder: Path, script: list[tuple[str, str]], *overrides: str) -> tuple[PPOTrainingNode, Tape]:
    """A node that lived through a script, and the tape of it."""
    node = node_in(folder, *overrides)
    recorder = Recorder(node)
    recorder.begin(*ACTORS)
    for kind, actor in script:
        if kind == "chunk":
            recorder.chunk(actor)
        elif kind == "stale":
            recorder.chunk(actor, max(0, node.version.number - 1))
        elif kind == "mangled":
            recorder.chunk(actor, mangled=True)
        else:
            recorder.event(kind, actor)
    return node, recorder.tape


def rounds(count: int) -> list[tuple[str, str]]:
    """So many complete iterations of all three clients."""
    return [("chunk", actor) for _ in range(count) for actor in "abacbc"]


@settings(max_examples=5, deadline=None)
@given(script=st.lists(_steps, min_size=30, max_size=60))
def test_every_version_comes_out_again(tmp_path_factory, script: list[tuple[str, str]]):
    """With clients lost and taken in, rollouts cut short, and chunks that do not count, in whatever order."""
    folder = tmp_path_factory.mktemp("run")
    node, tape = recorded(folder, script, NORMALISED)
    node.publish()  # so that the last events are announced as well
    lineage = lineage_of(node)
    other = node_in(folder, NORMALISED)
    assert follow_all(other, lineage, tape.log) == [True] * len(lineage)
    assert other.accounting == node.accounting
    assert other.roster.state() == node.roster.state()
    # Judging alone, without any network, comes to the same sums.
    walk = Walk(lineage, lineage.versions, _Samples(tape.log), node.examiner(), node_in(folder).judge)
    verdicts = [judged.verdict for judged in walk.records()]
    assert walk.difference is None
    assert verdicts.count("accepted") == node.accounting.accepted


class _Samples(Log):
    """What the offline walk needs of an ordered reader."""

    missing = 0

    def __init__(self, log: Log) -> None:
        super().__init__(log.partitions)


def test_the_order_in_which_partitions_are_read_changes_no_version(tmp_path: Path):
    """The same chunks, interleaved otherwise, give the same weights."""
    node, _ = recorded(tmp_path / "a", rounds(3), NORMALISED)
    other = node_in(tmp_path / "b", NORMALISED)
    recorder = Recorder(other)
    recorder.begin(*ACTORS)
    for _ in range(3):
        for actor in "ccbbaa":
            recorder.chunk(actor)
    assert [version.sha256 for version in published(other)] == [version.sha256 for version in published(node)]


@pytest.mark.parametrize("midst", [False, True], ids=["at-a-version", "in-midst"])
def test_a_killed_learner_comes_back_to_the_undisturbed_run(tmp_path: Path, midst: bool):
    """From a checkpoint at a version, or from one with chunks in hand."""
    script = [*rounds(3), ("chunk", "a"), ("lost", "c"), ("chunk", "b"), ("chunk", "a"), ("chunk", "b"), *rounds(1)]
    script += [("join", "c"), *rounds(2)]
    undisturbed, tape = recorded(tmp_path / "undisturbed", script, NORMALISED)
    killed = node_in(tmp_path / "killed", NORMALISED)
    Recorder(killed).begin(*ACTORS)
    until = tape.cut_at[4] + 3  # two chunks and an event into the rollouts of version 4
    for index in range(tape.cut_at[1], until):
        tape.play(killed, index, index + 1)
        if killed.version.number == 3 or (midst and index == until - 1):
            assert killed.parent is not None
            name = checkpoint_name(killed.parent, killed.accounting.offsets_advanced)
            killed.checkpoint(killed.folder.checkpoints / name)
    restarted = node_in(tmp_path / "killed", NORMALISED)
    recovered = recover(restarted, lineage_of(killed), restarted.folder, tape.log.at, lambda record: {})
    lead(restarted, 2)
    assert (recovered.trouble, recovered.began_at) == ("", Version(1, 4 if midst else 3))
    assert len(restarted.rollouts) == (32 if midst else 0)
    tape.play(restarted, until if midst else tape.cut_at[4])
    whole = lineage_of(killed, restarted)
    assert [(v.number, v.sha256) for v in whole.versions] == [(v.number, v.sha256) for v in published(undisturbed)]
    assert restarted.accounting == undisturbed.accounting
    other = node_in(tmp_path / "killed", NORMALISED)
    assert follow_all(other, whole, tape.log) == [True] * len(whole)


def test_without_a_checkpoint_it_begins_at_the_beginning(tmp_path: Path):
    node, tape = recorded(tmp_path, rounds(4))
    lineage = lineage_of(node)
    other = node_in(tmp_path)
    recovered = recover(other, lineage, other.folder, tape.log.at, lambda record: {})
    assert (recovered.trouble, recovered.began_at, recovered.versions) == ("", None, len(lineage))
    assert other.roster.state() == node.roster.state()


def test_a_learner_stopped_before_its_version_was_out_cuts_it_when_it_goes_on(tmp_path: Path):
    """Clients wait for that version: nothing else would ever make it."""
    undisturbed, tape = recorded(tmp_path / "undisturbed", rounds(3))
    node, _ = recorded(tmp_path / "stopped", rounds(2))
    publisher = node._publisher
    assert publisher is not None

    def stopped_while_it_waits(*arguments: object, **named: object) -> bool:
        node.shutdown()
        return False

    publisher.submit = stopped_while_it_waits  # type: ignore[method-assign]
    tape.play(node, tape.cut_at[3])
    assert node.roster.trained and node.version.number == 3
    assert node.parent is not None
    node.checkpoint(node.folder.checkpoints / checkpoint_name(node.parent, node.accounting.offsets_advanced))
    successor = node_in(tmp_path / "stopped")
    assert recover(successor, lineage_of(node), successor.folder, tape.log.at, lambda record: {}).trouble == ""
    lead(successor, 2)
    settle(successor)
    assert published(successor)[-1].sha256 == published(undisturbed)[-1].sha256
    assert successor.version == Version(2, 4)


def with_journal(lineage: Lineage, number: int, **changes: object) -> Lineage:
    """The lineage with something else in one version's journal."""
    altered = Lineage(lineage.run)
    for record in lineage.versions:
        if record.number == number:
            record = replace(record, journal=replace(read_journal(record), **changes).encode())
        altered.note(record)
    return altered


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (JournalEvent("dance"), "no such event"),
        (JournalEvent("lost", json.dumps({"session": "f" * 32})), "no such session"),
        (JournalEvent("join", "{"), "not JSON"),
    ],
)
def test_an_event_that_cannot_be_is_an_error_of_recovery(tmp_path: Path, event: JournalEvent, says: str):
    node, tape = recorded(tmp_path, rounds(2))
    steps = read_journal(published(node)[2]).steps
    lineage = with_journal(lineage_of(node), 2, events=(event,), steps=(JournalStep(EVENTS, 0), *steps))
    other = node_in(tmp_path)
    begin(other, lineage.versions[0], other.folder)
    with pytest.raises(RecoveryError, match=says):
        follow(other, lineage.versions, tape.log.at(other.positions))
    # Not fatal to a learner, unless it is asked to be.
    third = node_in(tmp_path)
    recovered = recover(third, lineage, third.folder, tape.log.at, lambda record: node.weights())
    assert says in recovered.trouble
    assert third.version == node.version


def test_events_of_a_synchronous_run_are_none_of_another(tmp_path: Path):
    node = made.node_in(tmp_path)
    node.positions = {0: 0}
    node.journal.begin(node.positions)
    node.publish()
    lineage = with_journal(lineage_of(node), 0, events=(JournalEvent("begin"),), steps=(JournalStep(EVENTS, 0),))
    other = made.node_in(tmp_path)
    with pytest.raises(RecoveryError, match="begin"):
        follow(other, lineage.versions, Log({0: []}))


def test_positions_know_no_events(tmp_path: Path):
    node, _ = recorded(tmp_path, rounds(2))
    lineage = lineage_of(node)
    assert lineage.positions(lineage.number).keys() == {0, 1}
    assert node.positions.keys() == {0, 1}


def test_what_was_judged_stays_judged_where_the_weights_are_lost(tmp_path: Path):
    """A gap in the log: the published weights are taken, and the clients of the version go on."""
    node, tape = recorded(tmp_path, rounds(3), NORMALISED)
    log = tape.log
    del log.partitions[0][0]
    other = node_in(tmp_path, NORMALISED)
    recovered = recover(other, lineage_of(node), other.folder, log.at, lambda record: node.weights())
    assert "no longer on the samples topic" in recovered.trouble
    lead(other, 2)
    assert other.version == Version(2, 4)
    assert all(array.tobytes() == node.weights()[name].tobytes() for name, array in other.weights().items())
    assert sorted(member.actor for member in other.roster.members) == list(ACTORS)
    for index, actor in enumerate(ACTORS):
        feed(other, record_of(other, actor, 90, chunk_of(actor, 4, final=True), 90 + index, 0))
    assert published(other)[-1].number == 5
    assert "no longer" in read_journal(published(other)[-1]).broken


def test_a_full_journal_takes_what_has_arrived(tmp_path: Path):
    """The version that is cut early is trained on it, and computed again."""
    node, tape = recorded(tmp_path, [*rounds(1), ("chunk", "a"), ("chunk", "b")])
    node._relieve_journal()
    settle(node)
    assert published(node)[-1].number == 3
    assert published(node)[-1].updates == 2
    node._relieve_journal()  # nothing has arrived: only a version
    assert (published(node)[-1].number, published(node)[-1].updates) == (4, 2)
    assert sum(each.events != () for each in map(read_journal, published(node))) == 2
    lineage = lineage_of(node)
    assert follow_all(node_in(tmp_path), lineage, tape.log) == [True] * len(lineage)
    assert session_of("a") in node.roster.participants
