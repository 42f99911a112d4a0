"""Transactions: all or nothing, one owner at a time, whatever the broker does meanwhile."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from pipeline.broker import BrokerSettings, LogReader, Producer, Topics, ensure_topics
from pipeline.errors import BrokerError, BrokerUnreachableError, DeliveryError, FencedError
from pipeline.services import Services, running_services
from tests.waiting import wait_until

SOAK = os.environ.get("SOAK", "") not in ("", "0")
pytestmark = pytest.mark.timeout(1800 if SOAK else 300)

Make = Callable[[], Producer]

_ANNOUNCER = """
import sys
from pipeline.broker import BrokerSettings, Producer
address, name, topic = sys.argv[1:]
producer = Producer(BrokerSettings(address), transactional_id=name, guards="run lander")
producer.init_transactions()
try:
    while True:
        producer.send_and_wait(topic, b"old")
        print("sent", flush=True)
except Exception as exc:
    sys.exit(f"{type(exc).__name__}: {exc}")
"""


@pytest.fixture
def kafka(local_services: Services) -> BrokerSettings:
    return BrokerSettings(local_services.bootstrap_servers)


@pytest.fixture
def names(kafka: BrokerSettings) -> Topics:
    made = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
    ensure_topics(kafka, made.specs(), replication=1)
    return made


@pytest.fixture
def make(kafka: BrokerSettings, names: Topics) -> Iterator[Make]:
    """Makes producers of one transactional id; each is ready and has fenced those before it."""
    made: list[Producer] = []

    def new() -> Producer:
        producer = Producer(kafka, transactional_id=names.namespace, guards="run lander")
        made.append(producer)
        producer.init_transactions()
        return producer

    yield new
    for producer in made:
        producer.close(1.0)


@pytest.fixture(scope="module")
def shaken(local_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """A Kafka of this module's own, to be paused and killed."""
    with running_services("local", tmp_path_factory.mktemp("shaken"), keep_data=False) as services:
        yield services


def values(settings: BrokerSettings, topic: str) -> list[bytes]:
    with LogReader(settings, topic) as reader:
        records = [record.value for record in reader.read_to_end()]
        assert reader.gaps == {}
    return records


def refused(action: Callable[[], object]) -> None:
    with pytest.raises(FencedError, match="another learner has taken run lander over at 127"):
        action()


def test_what_is_aborted_is_never_seen(make: Make, kafka: BrokerSettings, names: Topics):
    producer = make()
    producer.send_and_wait(names.versions, b"one")
    with pytest.raises(RuntimeError, match="mine"), producer.transaction():
        producer.send(names.versions, b"aborted")
        raise RuntimeError("mine")
    producer.send_and_wait(names.versions, b"two")
    make()  # waits until the commits are written out
    assert values(kafka, names.versions) == [b"one", b"two"]


@pytest.mark.parametrize("when", ["idle", "after sending", "in mid-transaction"])
def test_of_two_producers_the_newer_wins(make: Make, kafka: BrokerSettings, names: Topics, when: str):
    old = make()
    old.send_and_wait(names.versions, b"old")
    block = old.transaction()
    if when != "idle":
        block.__enter__()
    if when == "in mid-transaction":
        old.send(names.versions, b"too late")
        assert old.flush() == 0
    new = make()
    new.send_and_wait(names.versions, b"new")
    if when == "idle":
        refused(lambda: old.send_and_wait(names.versions, b"too late"))
    else:
        if when == "after sending":
            old.send(names.versions, b"too late")
        refused(lambda: block.__exit__(None, None, None))
    assert isinstance(old.error, FencedError)
    for action in (
        lambda: old.send(names.versions, b"again"),
        lambda: old.send_and_wait(names.versions, b"again"),
        lambda: old.transaction().__enter__(),
    ):
        refused(action)
    new.send_and_wait(names.versions, b"new")
    make()
    assert values(kafka, names.versions) == [b"old", b"new", b"new"]


def test_a_fenced_producer_says_so_even_if_nobody_waited(make: Make, names: Topics):
    """The fatal error comes up while callbacks are served, in the middle of the block."""
    old = make()
    with pytest.raises(FencedError, match="run lander"), old.transaction():
        make()
        old.send(names.versions, b"too late")
        wait_until(lambda: old.poll(0.1) < 0, "poll raises")


def test_of_two_that_start_at_once_one_goes_on(make: Make, kafka: BrokerSettings, names: Topics):
    start, outcomes = threading.Barrier(2), list[str]()

    def claim(name: str) -> None:
        start.wait()
        try:
            producer = make()
            start.wait()
            producer.send_and_wait(names.versions, name.encode())
            outcomes.append("claimed")
        except FencedError:
            start.abort()
            outcomes.append("fenced")

    threads = [threading.Thread(target=claim, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["claimed", "fenced"]
    make()
    assert len(values(kafka, names.versions)) == 1


def test_a_process_that_slept_through_a_takeover_stops(make: Make, kafka: BrokerSettings, names: Topics):
    for _ in range(20 if SOAK else 2):
        arguments = [kafka.address, names.namespace, names.versions]
        process = subprocess.Popen(
            [sys.executable, "-c", _ANNOUNCER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "sent\n"
        process.send_signal(signal.SIGSTOP)
        make().send_and_wait(names.versions, b"new")
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "FencedError: another learner has taken run lander over" in said
        make()
        assert values(kafka, names.versions)[-1] == b"new"


def test_transactions_of_two_threads_take_turns(make: Make, kafka: BrokerSettings, names: Topics):
    producer = make()

    def send(name: str) -> None:
        for number in range(10):
            with producer.transaction():
                producer.send(names.versions, f"{name}{number}".encode())

    threads = [threading.Thread(target=send, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    make()
    assert len(values(kafka, names.versions)) == 20
    with producer._transactions, pytest.raises(DeliveryError, match="has not begun"), producer.transaction(0.1):
        pass


def test_a_commit_without_an_answer_is_settled_before_the_next(shaken: Services):
    settings = BrokerSettings(shaken.bootstrap_servers)
    topics = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
    ensure_topics(settings, topics.specs(), replication=1)
    producer = Producer(settings, transactional_id=topics.namespace)
    producer.init_transactions(60.0)  # the broker makes its own topic for it first
    producer.send_and_wait(topics.versions, b"0")
    shaken.kafka.pause()
    for _ in range(2):  # the second finds the first unsettled
        with pytest.raises(DeliveryError, match="did not commit a transaction in time"):
            producer.send_and_wait(topics.versions, b"1", timeout=0.5)
    shaken.kafka.resume()
    producer.send_and_wait(topics.versions, b"2", timeout=30.0)
    assert producer.error is None
    with Producer(settings, transactional_id=topics.namespace) as after:
        after.init_transactions(60.0)
    assert values(settings, topics.versions) == [b"0", b"1", b"2"]
    producer.close(1.0)


def test_a_broker_that_is_killed_loses_and_doubles_nothing(shaken: Services):
    """Each record is sent until it is acknowledged: it is there, in order, and repeated only after an open outcome."""
    settings = BrokerSettings(shaken.bootstrap_servers)
    topics = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
    ensure_topics(settings, topics.specs(), replication=1)
    kills = 10 if SOAK else 2
    done, open_outcomes = threading.Event(), 0
    sent = 0

    def kill() -> None:
        for _ in range(kills):
            reached = sent + 20
            wait_until(lambda reached=reached: sent >= reached, "records go out", 60.0)
            shaken.kafka.kill()
            shaken.kafka.start()
        done.set()

    killer = threading.Thread(target=kill)
    producer = Producer(settings, transactional_id=topics.namespace)
    producer.init_transactions(60.0)  # the broker makes its own topic for it first
    killer.start()
    while not done.is_set() or sent < 20 * (kills + 1):
        try:
            producer.send_and_wait(topics.versions, b"%d" % sent, timeout=2.0)
            sent += 1
        except FencedError:
            raise
        except BrokerError:
            open_outcomes += 1
    killer.join()
    with Producer(settings, transactional_id=topics.namespace) as after:
        after.init_transactions(60.0)
    numbers = [int(value) for value in values(settings, topics.versions)]
    assert sorted(set(numbers)) == list(range(sent))
    assert numbers == sorted(numbers)
    assert len(numbers) - sent <= open_outcomes
    producer.close(1.0)


def test_a_dead_broker_is_named_when_a_run_is_taken_over(dead_address: str):
    producer = Producer(BrokerSettings(dead_address), transactional_id="id", guards="run lander")
    started = time.monotonic()
    with pytest.raises(BrokerUnreachableError, match=f"{dead_address}.*taking over run lander.*refused"):
        producer.init_transactions(1.5)
    assert time.monotonic() - started < 30.0
    producer.close(0.0)


def test_the_embedded_cluster_commits_and_fences_nobody(embedded_services: Services):
    """Why epochs are checked by every reader: here nothing else tells of a learner that was replaced."""
    settings = BrokerSettings(embedded_services.bootstrap_servers)
    topics = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
    ensure_topics(settings, topics.specs())
    with (
        Producer(settings, transactional_id=topics.namespace) as old,
        Producer(settings, transactional_id=topics.namespace) as new,
    ):
        old.init_transactions()
        new.init_transactions()
        new.send_and_wait(topics.versions, b"new")
        old.send_and_wait(topics.versions, b"old")
        with pytest.raises(RuntimeError), new.transaction():
            new.send(topics.versions, b"aborted")
            assert new.flush() == 0
            raise RuntimeError
    assert values(settings, topics.versions) == [b"new", b"old", b"aborted"]
