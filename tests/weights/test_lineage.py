"""The run's one line of descent, whatever the log of versions holds."""

import uuid

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pipeline.broker import BrokerSettings, Producer, Record, Topics, ensure_topics
from pipeline.errors import BrokerUnreachableError, UnknownTopicError
from pipeline.experience import Version
from pipeline.services import Services
from pipeline.weights import Follower, Lineage, ObjectStore, StoreSettings, read_lineage, sha256
from pipeline.wire import COMMANDS, Journal, JournalCommand, JournalStep, ModelVersionRecord
from tests.weights.made import version


def weights(number: int, epoch: int = 1, **fields: object) -> ModelVersionRecord:
    return version(number, epoch, key=f"{epoch}-{number}", size=1, sha256=sha256(b""), **fields)


def claim(epoch: int, number: int = 0) -> ModelVersionRecord:
    return version(number, epoch, kind="claim")


def lineage(*records: ModelVersionRecord) -> Lineage:
    made = Lineage("run")
    for record in records:
        made.note(record)
    return made


def test_versions_claims_and_pins_are_told_apart():
    made = lineage(
        claim(1),
        weights(0, transitions=10, updates=1),
        weights(1, transitions=20, updates=2),
        version(0, 1, kind="pin", note="best"),
        claim(2, 1),
        weights(2, 2, transitions=30, updates=3),
        version(0, 1, kind="pin", note="best still"),
    )
    assert [record.version for record in made.versions] == [Version(1, 0), Version(1, 1), Version(2, 2)]
    assert made.newest == made.versions[-1] == made.find(2)
    assert (made.epoch, made.number, made.transitions, made.updates, len(made)) == (2, 2, 30, 3, 3)
    assert sorted(made.claims) == [1, 2]
    assert made.pins == {Version(1, 0): "best still"}
    assert made.find(7) is None
    assert [record.number for record in made.after(0)] == [1, 2]
    assert [record.number for record in made.after(-1)] == [0, 1, 2]
    assert (made.fenced, made.repeated) == (0, 0)


def test_an_empty_one_has_nothing():
    made = Lineage("run")
    assert (made.epoch, made.number, made.newest, made.transitions) == (-1, -1, None, 0)
    assert made.after(-1) == []
    with pytest.raises(KeyError):
        made.positions(0)


def test_what_does_not_count_is_counted():
    made = lineage(
        claim(1),
        weights(0),
        weights(0),  # announced again after a lost answer
        claim(2),
        claim(2),
        weights(1, 1),  # of the replaced learner
        claim(1),
        weights(0, 2),  # a number that went back
        version(1, 9, run="other", kind="claim"),
    )
    assert [record.version for record in made.versions] == [Version(1, 0)]
    assert (made.epoch, made.fenced, made.repeated) == (2, 2, 3)


def test_positions_add_up_over_journals():
    first = Journal(None, positions={0: 5, 1: 0, COMMANDS: 0}, steps=(JournalStep(0, 8), JournalStep(1, 2)))
    second = Journal(
        Version(1, 0), steps=(JournalStep(0, 9), JournalStep(COMMANDS, 1)), commands=(JournalCommand("id", "stop"),)
    )
    broken = Journal(Version(1, 1), positions={0: 20, 1: 2}, steps=(JournalStep(1, 4),), broken="the log was cut")
    made = lineage(
        weights(0, journal=first.encode()),
        weights(1, journal=second.encode()),
        weights(2),  # without a journal: nothing was read
        weights(3, 2, journal=broken.encode()),
    )
    assert made.positions(1) == {0: 9, 1: 2, COMMANDS: 1}
    assert made.positions(0) == {0: 8, 1: 2, COMMANDS: 0}
    assert made.positions(2) == made.positions(1)
    assert made.positions(3) == {0: 20, 1: 4}
    assert made.journal(1) == second
    assert made.journal(2) is None
    made.positions(0).clear()  # a copy
    assert made.positions(0)[0] == 8


RECORDS = st.lists(
    st.builds(
        lambda kind, epoch, number: (
            {"weights": weights, "claim": claim}[kind](*((number, epoch) if kind == "weights" else (epoch, number)))
            if kind != "pin"
            else version(number, epoch, kind="pin")
        ),
        st.sampled_from(["weights", "weights", "weights", "claim", "pin"]),
        st.integers(0, 5),
        st.integers(0, 12),
    ),
    max_size=40,
)


@hypothesis_settings(deadline=None)
@given(RECORDS)
def test_whatever_is_written_it_is_one_line(records: list[ModelVersionRecord]):
    made = Lineage("run")
    newest_epoch, newest_number = -1, -1
    for record in records:
        counts = made.note(record)
        if record.kind == "pin":
            assert counts
            continue
        fenced = record.epoch < newest_epoch
        if record.kind == "weights":
            assert counts == (not fenced and record.number > newest_number)
            newest_number = max(newest_number, record.number) if counts else newest_number
        newest_epoch = max(newest_epoch, record.epoch)
        assert (made.epoch, made.number) == (newest_epoch, newest_number)
    versions = [record.version for record in made.versions]
    assert versions == sorted(versions)
    assert len({version.number for version in versions}) == len(versions)


@hypothesis_settings(deadline=None)
@given(st.data())
def test_learners_that_replace_each_other_leave_one_line(data: st.DataObject):
    """Learners claim, announce, repeat themselves, and those that were replaced go on unaware, in any interleaving."""
    log: list[ModelVersionRecord] = []
    wanted: list[Version] = []
    alive: list[list[int]] = []  # epoch, next number and announcements of each learner
    for action in data.draw(st.lists(st.sampled_from(["start", "publish", "repeat"]), max_size=40)):
        if action == "start":
            epoch = alive[-1][0] + 1 if alive else 1
            number = wanted[-1].number + 1 if wanted else 0
            alive.append([epoch, number, 0])
            log.append(claim(epoch, max(0, number - 1)))
        elif alive:
            learner = data.draw(st.sampled_from(alive))
            if action == "publish":
                log.append(weights(learner[1], learner[0]))
                if learner is alive[-1]:
                    wanted.append(Version(*learner[:2]))
                learner[1] += 1
                learner[2] += 1
            elif learner[2]:
                log.append(weights(learner[1] - 1, learner[0]))
    made = lineage(*log)
    assert [record.version for record in made.versions] == wanted
    assert followed(log) == (wanted[-1] if wanted else Version(-1, -1))


def followed(log: list[ModelVersionRecord]) -> Version:
    """What a follower of the same log goes for."""
    follower = Follower(
        BrokerSettings("127.0.0.1:1"), ObjectStore(StoreSettings("127.0.0.1:1", "", "", "b")), Topics("t", "run")
    )
    follower._note([Record("t", 0, at, 0, None, record.encode(), None) for at, record in enumerate(log)])
    return follower.announced


def test_it_is_read_from_the_log(settings: BrokerSettings, topics: Topics):
    with Producer(settings) as producer:
        for record in (claim(1), weights(0), weights(1)):
            producer.send(topics.versions, record.encode())
        producer.send(topics.versions, b"rubbish")
        producer.send(topics.versions, weights(2).encode())
        assert producer.flush() == 0
    told: list[tuple[int, int]] = []
    made = read_lineage(settings, topics, progress=lambda read, end: told.append((read, end)))
    assert [record.version for record in made.versions] == [Version(1, 0), Version(1, 1), Version(1, 2)]
    assert told[-1] == (5, 5)


def test_of_a_run_that_is_not_there(settings: BrokerSettings):
    with pytest.raises(UnknownTopicError, match=r"nowhere\.run\.versions"):
        read_lineage(settings, Topics("nowhere", "run"), timeout=3.0)


def test_a_dead_broker_is_named():
    with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:1 "):
        read_lineage(BrokerSettings("127.0.0.1:1"), Topics("space", "run"), timeout=1.0)


def test_all_that_was_committed_is_there_once_a_successor_is_ready(local_services: Services):
    """A commit is acknowledged before readers see it; taking over waits until they do."""
    settings = BrokerSettings(local_services.bootstrap_servers)
    for _ in range(5):
        topics = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
        ensure_topics(settings, topics.specs(), replication=1)
        with Producer(settings, transactional_id=topics.namespace) as old:
            old.init_transactions()
            for number in range(3):
                old.send_and_wait(topics.versions, weights(number).encode())
            with Producer(settings, transactional_id=topics.namespace) as new:
                new.init_transactions()
                assert read_lineage(settings, topics).number == 2
