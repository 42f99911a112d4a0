"""From a learner's hand to an actor's: publisher, background publisher and follower together."""

import logging
import time
import uuid

import numpy as np
import pytest

from pipeline.broker import BrokerSettings, LogReader, Producer, Topics, ensure_topics
from pipeline.errors import BrokerError, DeliveryError, FencedError, StoreUnreachableError, WeightsExistError
from pipeline.experience import Version
from pipeline.services import Services
from pipeline.weights import (
    BackgroundPublisher,
    FollowedVersion,
    Follower,
    ObjectStore,
    Publisher,
    StoreSettings,
    pack,
    read_lineage,
    sha256,
    unpack,
)
from pipeline.wire import ModelVersionRecord
from tests.waiting import wait_until
from tests.weights.made import FlakyStore, tensors, version


@pytest.fixture
def producer(settings: BrokerSettings):
    with Producer(settings) as made:
        yield made


@pytest.fixture
def publisher(store: ObjectStore, producer: Producer, topics: Topics) -> Publisher:
    return Publisher(store, producer, topics)


@pytest.fixture
def follower(settings: BrokerSettings, flaky: FlakyStore, topics: Topics):
    with Follower(settings, flaky, topics) as made:
        yield made


def follow(follower: Follower, timeout: float = 20.0) -> FollowedVersion:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = follower.poll(0.2)
        if found is not None:
            return found
    raise AssertionError("no version came")


def announced(settings: BrokerSettings, topics: Topics) -> list[ModelVersionRecord]:
    with LogReader(settings, topics.versions) as reader:
        return [ModelVersionRecord.decode(record.value) for record in reader.read_to_end()]


def test_a_published_version_is_followed(publisher: Publisher, follower: Follower):
    assert follower.poll(0.0) is None
    assert follower.held == Version(-1, -1)
    record = publisher.publish(version(0, transitions=7, note="first"), tensors(0))
    assert (record.size, record.sha256) == (len(pack(tensors(0))), sha256(pack(tensors(0))))
    found = follow(follower)
    assert found.record == record
    assert found.version == follower.held == Version(1, 0)
    np.testing.assert_array_equal(unpack(found.data)["w"], tensors(0)["w"])
    assert follower.poll(0.0) is None


def test_only_the_newest_is_fetched(publisher: Publisher, follower: Follower, flaky: FlakyStore):
    flaky.away(True)  # so that announcements pile up
    for number in range(6):
        publisher.publish(version(number), tensors(number))
    wait_until(lambda: follower.poll(0.1) is None and follower.announced.number == 5, "all are announced")
    flaky.away(False)
    assert follow(follower).version == Version(1, 5)
    assert follower.skipped == 5
    assert follower.poll(0.0) is None


def test_a_late_follower_starts_with_the_newest(
    publisher: Publisher,
    producer: Producer,
    topics: Topics,
    settings: BrokerSettings,
    store: ObjectStore,
):
    publisher.publish(version(3), tensors(3))
    for _ in range(40):  # more than the first look at the end of the topic
        producer.send(topics.versions, version(3, kind="claim").encode())
    producer.flush()
    with Follower(settings, store, topics) as follower:
        assert follow(follower).version == Version(1, 3)


def test_it_never_goes_back(publisher: Publisher, producer: Producer, topics: Topics, follower: Follower):
    publisher.publish(version(5), tensors(5))
    assert follow(follower).version == Version(1, 5)
    publisher.publish(version(4), tensors(4))
    assert follower.poll(0.5) is None
    # A claim makes the older epoch's learner a thing of the past, whatever it announces.
    producer.send_and_wait(topics.versions, version(5, epoch=2, kind="claim").encode())
    publisher.publish(version(9), tensors(9))
    assert follower.poll(0.5) is None
    publisher.publish(version(6, epoch=2), tensors(6))
    assert follow(follower).version == Version(2, 6)
    assert follower.announced == Version(2, 6)


def test_what_is_no_version_of_the_run_is_passed_over(
    publisher: Publisher, producer: Producer, topics: Topics, follower: Follower
):
    digest = sha256(b"")
    producer.send_and_wait(topics.versions, b"rubbish")
    producer.send_and_wait(topics.versions, version(8, run="other", key="k", size=1, sha256=digest).encode())
    producer.send_and_wait(topics.versions, version(9, key="k", size=2**40, sha256=digest).encode())
    publisher.publish(version(1), tensors(1))
    assert follow(follower).version == Version(1, 1)


def test_a_store_that_is_away_is_said_once_and_tried_again(
    publisher: Publisher, follower: Follower, flaky: FlakyStore, caplog: pytest.LogCaptureFixture
):
    publisher.publish(version(1), tensors(1))
    assert follow(follower).version == Version(1, 1)
    flaky.away(True)
    publisher.publish(version(2), tensors(2))
    with caplog.at_level(logging.WARNING, "pipeline.weights"):
        wait_until(lambda: follower.poll(0.1) is None and follower.announced.number == 2, "it is announced")
        retries = time.monotonic() + 1.0
        while time.monotonic() < retries:
            assert follower.poll(0.1) is None
    assert len(caplog.messages) == 1
    assert "1.2" in caplog.messages[0] and "1.1 stays in use" in caplog.messages[0]
    assert follower.held == Version(1, 1)
    publisher.publish(version(3), tensors(3))
    flaky.away(False)
    wait_until(lambda: (found := follower.poll(0.1)) is not None and found.version == Version(1, 3), "it goes on")


def test_corrupt_weights_are_never_handed_over(
    publisher: Publisher,
    producer: Producer,
    topics: Topics,
    follower: Follower,
    store: ObjectStore,
):
    publisher.publish(version(1), tensors(1))
    store.put_once("forged", b"12345")
    forged = version(2, key="forged", size=5, sha256=sha256(b"other"))
    producer.send_and_wait(topics.versions, forged.encode())
    missing = version(3, key="missing", size=5, sha256=sha256(b"other"))
    producer.send_and_wait(topics.versions, missing.encode())
    wait_until(lambda: follower.poll(0.1) is None and follower.announced.number == 3, "it is announced")
    publisher.publish(version(4), tensors(4))
    assert follow(follower).version == Version(1, 4)


def test_nothing_is_announced_when_the_store_fails(
    flaky: FlakyStore, producer: Producer, topics: Topics, settings: BrokerSettings
):
    flaky.away(True)
    with pytest.raises(StoreUnreachableError):
        Publisher(flaky, producer, topics).publish(version(1), tensors(1))
    assert announced(settings, topics) == []


def test_publishing_again_after_a_lost_answer_is_no_conflict(
    publisher: Publisher,
    store: ObjectStore,
    topics: Topics,
    settings: BrokerSettings,
    producer: Producer,
):
    class Lost(Producer):
        def send_and_wait(self, *args: object, **kwargs: object):
            raise DeliveryError("the answer was lost")

    with Lost(settings) as lost, pytest.raises(DeliveryError):
        Publisher(store, lost, topics).publish(version(1), tensors(1))
    publisher.publish(version(1), tensors(1))
    with pytest.raises(WeightsExistError, match="another learner"):
        publisher.publish(version(1), tensors(2))
    assert [record.version for record in announced(settings, topics)] == [Version(1, 1)]


def test_the_background_publisher_keeps_the_order(publisher: Publisher, settings: BrokerSettings, topics: Topics):
    told: list[int] = []
    with BackgroundPublisher(publisher, lambda record: told.append(record.number)) as background:
        for number in range(10):
            assert background.submit(version(number), tensors(number))
        assert background.close(30.0) == 0
        assert len(background) == 0
    assert told == list(range(10))
    assert [record.number for record in announced(settings, topics)] == told
    assert background.last is not None and background.last.number == 9
    with pytest.raises(BrokerError, match="closed"):
        background.submit(version(10), tensors(10))


def test_training_goes_on_while_the_store_is_away(
    flaky: FlakyStore,
    producer: Producer,
    topics: Topics,
    settings: BrokerSettings,
    caplog: pytest.LogCaptureFixture,
):
    flaky.away(True)
    background = BackgroundPublisher(Publisher(flaky, producer, topics), pause=0.05)
    with caplog.at_level(logging.WARNING, "pipeline.weights"):
        started = time.monotonic()
        background.submit(version(0), tensors(0))
        background.submit(version(1), tensors(1), timeout=20.0)
        assert time.monotonic() - started < 20.0
        wait_until(lambda: background.failures >= 3, "it is tried again")
        assert background.failing and background.error is None
        # One is at hand and one waits: more than that waits with the caller.
        assert not background.submit(version(2), tensors(2), timeout=0.2)
    assert len(caplog.messages) == 1
    assert "1.0 is not published yet" in caplog.messages[0]
    assert announced(settings, topics) == []
    flaky.away(False)
    assert background.close(30.0) == 0
    assert not background.failing
    assert [record.number for record in announced(settings, topics)] == [0, 1]


def test_closing_does_not_wait_for_a_store_that_stays_away(flaky: FlakyStore, producer: Producer, topics: Topics):
    flaky.away(True)
    background = BackgroundPublisher(Publisher(flaky, producer, topics), pause=60.0)
    background.submit(version(0), tensors(0))
    started = time.monotonic()
    assert background.close(0.5) == 1
    assert time.monotonic() - started < 30.0


def test_a_second_learner_is_told_to_stop(publisher: Publisher, producer: Producer, topics: Topics, store: ObjectStore):
    publisher.publish(version(1), tensors(1))
    background = BackgroundPublisher(Publisher(store, producer, topics))
    background.submit(version(1), tensors(2))

    def refused() -> bool:
        try:
            background.submit(version(2), tensors(2), timeout=0.0)
        except WeightsExistError:
            return True
        return False

    wait_until(refused, "the conflict is raised")
    assert background.failing and isinstance(background.error, WeightsExistError)
    assert background.close(1.0) >= 1
    assert not background._thread.is_alive()


def test_a_fenced_learner_stops_at_once(local_services: Services):
    settings = BrokerSettings(local_services.bootstrap_servers)
    topics = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
    ensure_topics(settings, topics.specs(), replication=1)
    addresses = local_services.addresses
    store = ObjectStore(
        StoreSettings(addresses.endpoint, addresses.access_key, addresses.secret_key, f"b-{uuid.uuid4().hex[:8]}")
    )
    store.ensure_bucket()
    with (
        Producer(settings, transactional_id=topics.namespace, guards="run run") as old,
        Producer(settings, transactional_id=topics.namespace) as new,
        BackgroundPublisher(Publisher(store, old, topics)) as background,
        Follower(settings, store, topics) as follower,
    ):
        old.init_transactions()
        background.submit(version(0), tensors(0))
        assert follow(follower).version == Version(1, 0)
        new.init_transactions()
        new.send_and_wait(topics.versions, version(0, epoch=2, kind="claim").encode())
        background.submit(version(1), tensors(1))
        wait_until(lambda: background.error is not None, "the publisher learns of it")
        assert background.failures == 0
        with pytest.raises(FencedError, match="another learner has taken run run over"):
            background.submit(version(2), tensors(2))
        Publisher(store, new, topics).publish(version(1, epoch=2), tensors(1))
        Publisher(store, new, topics).pin(Version(1, 0), "best")
        assert follow(follower).version == Version(2, 1)
        assert follower.poll(0.2) is None
    lineage = read_lineage(settings, topics)
    assert [record.version for record in lineage.versions] == [Version(1, 0), Version(2, 1)]
    assert (lineage.pins, lineage.fenced) == ({Version(1, 0): "best"}, 0)


def test_a_pin_is_no_version(publisher: Publisher, producer: Producer, topics: Topics, follower: Follower):
    publisher.publish(version(1), tensors(1))
    assert follow(follower).version == Version(1, 1)
    producer.send_and_wait(topics.versions, version(1, epoch=2, kind="claim").encode())
    publisher.publish(version(2, epoch=2), tensors(2))
    publisher.pin(Version(1, 1), "of an older epoch")
    publisher.pin(Version(9, 9), "of none at all")
    publisher.publish(version(3, epoch=2), tensors(3))
    wait_until(lambda: (found := follower.poll(0.1)) is not None and found.version == Version(2, 3), "it goes on")
