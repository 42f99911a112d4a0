"""Reading partitions in an order that is prescribed."""

import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from pipeline.broker import BrokerSettings, OrderedReader, Producer, Topics, ensure_topics, topic_id
from pipeline.errors import BrokerUnreachableError, TopicReplacedError, UnknownTopicError
from pipeline.services import Services
from pipeline.services.embedded import EmbeddedServices

PARTITIONS = 4
RECORDS = 600
_AHEAD = 512
"""What a jump may pass over without asking the broker anew."""


def fill(settings: BrokerSettings, topics: Topics, records: int = RECORDS) -> None:
    """Partition p holds at offset o the value "p.o"."""
    with Producer(settings) as producer:
        for partition in range(PARTITIONS):
            for offset in range(records):
                producer.send(topics.samples, b"%d.%d" % (partition, offset), partition=partition)
        assert producer.flush(30.0) == 0


@pytest.fixture(params=["embedded", "local"], scope="module")
def log(request: pytest.FixtureRequest) -> tuple[BrokerSettings, Topics]:
    """A filled topic that is only read."""
    services: Services = request.getfixturevalue(f"{request.param}_services")
    settings = BrokerSettings(services.bootstrap_servers)
    topics = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
    ensure_topics(settings, topics.specs(partitions=PARTITIONS), replication=1)
    fill(settings, topics)
    return settings, topics


@pytest.fixture
def fresh(local_services: Services) -> tuple[BrokerSettings, Topics]:
    """A filled topic on Kafka, to be cut and made anew."""
    settings = BrokerSettings(local_services.bootstrap_servers)
    topics = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
    ensure_topics(settings, topics.specs(partitions=PARTITIONS), replication=1)
    fill(settings, topics)
    return settings, topics


Open = Callable[..., OrderedReader]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Makes readers, and closes them."""
    made: list[OrderedReader] = []

    def new(log: tuple[BrokerSettings, Topics], start: dict[int, int], timeout: float = 30.0) -> OrderedReader:
        settings, topics = log
        made.append(OrderedReader(settings, topics.samples, start, timeout=timeout))
        return made[-1]

    yield new
    for reader in made:
        reader.close()
        reader.close()  # closing twice is fine


def cut(log: tuple[BrokerSettings, Topics], partition: int, before: int) -> None:
    """What retention does."""
    settings, topics = log
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topics.samples, partition, before)]).values():
        future.result()


def offsets(reader: OrderedReader, partition: int, until: int) -> list[int]:
    """What is taken, checked to be of that partition, without gaps."""
    taken: list[int] = []
    for record, skipped in reader.take(partition, until):
        assert record.value == b"%d.%d" % (partition, record.offset)
        assert skipped == 0
        taken.append(record.offset)
        assert reader.position(partition) == record.offset + 1
    assert reader.position(partition) == until
    assert reader.missing == 0
    return taken


def test_any_prescribed_order_is_kept(log: tuple[BrokerSettings, Topics], opened: Open):
    reader = opened(log, {0: 0, 1: 100, 3: 7})
    at, order = {0: 0, 1: 100, 2: 0, 3: 7}, random.Random(0)
    while unfinished := [partition for partition, offset in at.items() if offset < RECORDS]:
        partition = order.choice(unfinished)
        until = min(RECORDS, at[partition] + order.choice([0, 1, 2, 40]))
        assert offsets(reader, partition, until) == list(range(at[partition], until))
        at[partition] = until
    assert reader.lost == 0


def test_a_range_behind_the_position_is_empty(log: tuple[BrokerSettings, Topics], opened: Open):
    reader = opened(log, {0: 50})
    assert reader.position(0) == 50  # known without being asked of the broker
    assert list(reader.take(0, 50)) == list(reader.take(0, 10)) == []
    assert reader.position(0) == 50
    assert reader.position(1) == 0  # the oldest record kept


def test_a_range_may_be_left_half_way(log: tuple[BrokerSettings, Topics], opened: Open):
    reader = opened(log, {0: 0})
    for record, _ in reader.take(0, 100):
        if record.offset == 9:
            break
    assert reader.position(0) == 10
    assert offsets(reader, 0, 20) == list(range(10, 20))


@pytest.mark.parametrize("target", [5, 12, 100, _AHEAD + 30, 599])
def test_it_goes_on_from_wherever_it_is_sent(log: tuple[BrokerSettings, Topics], opened: Open, target: int):
    reader = opened(log, {0: 0})
    reader.seek(0, 3)  # before anything is connected
    assert offsets(reader, 0, 10) == list(range(3, 10))
    reader.seek(0, target)
    assert reader.position(0) == target
    assert offsets(reader, 0, RECORDS) == list(range(target, RECORDS))
    assert reader.lost == 0


def test_records_that_retention_took_are_counted(fresh: tuple[BrokerSettings, Topics], opened: Open):
    cut(fresh, 0, 100)
    reader = opened(fresh, {0: 20})
    assert list(reader.take(0, 40)) == []
    assert (reader.position(0), reader.missing, reader.lost) == (40, 20, 20)
    taken = list(reader.take(0, 102))
    assert [(record.offset, skipped) for record, skipped in taken] == [(100, 60), (101, 0)]
    assert (reader.position(0), reader.missing, reader.lost) == (102, 0, 80)
    cut(fresh, 1, RECORDS)
    reader = opened(fresh, {1: 590})
    assert list(reader.take(1, RECORDS)) == []
    assert (reader.position(1), reader.missing, reader.lost) == (RECORDS, 10, 10)


def test_what_the_log_does_not_hold_yet_was_never_read(log: tuple[BrokerSettings, Topics], opened: Open):
    reader = opened(log, {0: RECORDS - 2})
    taken: list[int] = []
    with pytest.raises(TopicReplacedError, match=rf"samples\[0\] at 127.* ends at offset {RECORDS}, .* made anew"):
        taken.extend(record.offset for record, _ in reader.take(0, RECORDS + 1))
    reader = opened(log, {0: RECORDS + 50})
    with pytest.raises(TopicReplacedError, match="made anew"):
        list(reader.take(0, RECORDS + 51))


def test_the_end_that_was_met_may_have_moved(fresh: tuple[BrokerSettings, Topics], opened: Open):
    settings, topics = fresh
    reader = opened(fresh, {2: 0})
    assert offsets(reader, 2, RECORDS) == list(range(RECORDS))
    with Producer(settings) as producer:
        producer.send_and_wait(topics.samples, b"2.%d" % RECORDS, partition=2)
    assert offsets(reader, 2, RECORDS + 1) == [RECORDS]


def test_a_broker_that_is_away_is_named(dead_address: str, opened: Open):
    reader = opened((BrokerSettings(dead_address), Topics("space", "run")), {0: 0}, timeout=0.5)
    with pytest.raises(BrokerUnreachableError, match=dead_address):
        list(reader.take(0, 1))


def test_a_broker_that_goes_away_is_named(tmp_path: Path, opened: Open):
    services = EmbeddedServices(tmp_path, tmp_path / "log")
    services.start()
    settings, topics = BrokerSettings(services.broker), Topics("space", "run")
    ensure_topics(settings, topics.specs())
    fill(settings, topics, 10)
    reader = opened((settings, topics), {0: 0}, timeout=5.0)
    assert offsets(reader, 0, 10) == list(range(10))
    services.kill()
    with pytest.raises(BrokerUnreachableError, match=settings.address):
        list(reader.take(0, 20))


def test_a_topic_has_an_id_that_its_successor_has_not(fresh: tuple[BrokerSettings, Topics]):
    settings, topics = fresh
    first = topic_id(settings, topics.samples)
    assert len(first) == 22 and topic_id(settings, topics.samples) == first
    assert topic_id(settings, topics.episodes) != first
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    admin.delete_topics([topics.samples])[topics.samples].result()
    ensure_topics(settings, topics.specs(partitions=PARTITIONS), replication=1)
    assert topic_id(settings, topics.samples) != first
    with pytest.raises(UnknownTopicError, match=r"nowhere\.run\.samples"):
        topic_id(settings, "nowhere.run.samples")


def test_the_embedded_cluster_has_no_ids(embedded_services: Services):
    settings = BrokerSettings(embedded_services.bootstrap_servers)
    topics = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
    ensure_topics(settings, topics.specs())
    assert topic_id(settings, topics.samples) == ""
