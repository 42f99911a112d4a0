"""The broker's contract, on the embedded cluster and on a real Kafka."""

import time
import uuid

import pytest

from pipeline.broker import (
    BrokerSettings,
    Delivery,
    LogReader,
    Producer,
    Topics,
    TopicSpec,
    check_topics,
    ensure_topics,
)
from pipeline.errors import BrokerError, TopicMismatchError, UnknownTopicError
from pipeline.services import Services
from tests.waiting import wait_until


def test_what_is_sent_is_read(settings: BrokerSettings, topics: Topics):
    deliveries: list[Delivery] = []
    headers = [("run", b"r"), ("sequence", b"\x00\x01")]
    with Producer(settings) as producer:
        for number in range(50):
            producer.send(topics.samples, b"v%d" % number, f"k{number % 7}", headers, None, deliveries.append)
        assert producer.flush() == 0
        assert len(producer) == 0
    assert all(delivery.error is None for delivery in deliveries)
    with LogReader(settings, topics.samples) as reader:
        records = reader.read_to_end()
        assert {(r.partition, r.offset) for r in records} == {(d.partition, d.offset) for d in deliveries}
        assert sorted(r.value for r in records) == sorted(b"v%d" % n for n in range(50))
        assert all(r.headers == headers for r in records)
        assert all(abs(r.timestamp_ms / 1000 - time.time()) < 60 for r in records)
        by_key: dict[bytes | None, list[int]] = {}
        for record in records:
            by_key.setdefault(record.key, []).append(int(record.value[1:]))
        assert all(numbers == sorted(numbers) for numbers in by_key.values())
        assert set(by_key) == {b"k%d" % n for n in range(7)}
        assert reader.positions() == reader.end_offsets()
        assert reader.gaps == {} and reader.expired == {}
        assert reader.poll(10, 0.0) == []


def test_reading_goes_on_from_stored_positions(settings: BrokerSettings, topics: Topics):
    producer = Producer(settings)
    for number in range(20):
        producer.send(topics.samples, b"%d" % number, partition=number % 2)
    producer.flush()
    with LogReader(settings, topics.samples) as reader:
        first: list[bytes] = []
        while len(first) < 7:
            first += [record.value for record in reader.poll(7 - len(first), 5.0)]
        positions = reader.positions()
    with LogReader(settings, topics.samples, positions) as reader:
        rest = [record.value for record in reader.read_to_end()]
    assert sorted(map(int, first + rest)) == list(range(20))


def test_latest_means_after_opening(settings: BrokerSettings, topics: Topics):
    with Producer(settings) as producer:
        producer.send_and_wait(topics.episodes, b"before")
        with LogReader(settings, [topics.episodes, topics.heartbeats], "latest") as reader:
            producer.send_and_wait(topics.episodes, b"after")
            producer.send_and_wait(topics.heartbeats, b"beat")
            records = reader.read_to_end()
    assert sorted((r.topic, r.value) for r in records) == [
        (topics.episodes, b"after"),
        (topics.heartbeats, b"beat"),
    ]


def test_a_record_is_handed_over_at_once(settings: BrokerSettings, topics: Topics):
    """poll() returns with the first record, it does not wait for the whole number."""
    with Producer(settings) as producer, LogReader(settings, topics.samples) as reader:
        assert reader.poll(100, 0.0) == []
        producer.send_and_wait(topics.samples, b"value")
        started = time.monotonic()
        assert len(reader.poll(100, 60.0)) == 1
        assert time.monotonic() - started < 30.0


def test_polling_an_empty_topic_takes_as_long_as_was_said(settings: BrokerSettings, topics: Topics):
    with LogReader(settings, topics.samples) as reader:
        started = time.monotonic()
        assert reader.poll(100, 0.3) == []
        assert 0.25 < time.monotonic() - started < 20.0


def test_versions_and_commands_have_one_order(settings: BrokerSettings, topics: Topics):
    with Producer(settings) as producer:
        places = {
            producer.send_and_wait(topic, b"v", key=f"{n}").partition
            for n in range(5)
            for topic in (topics.versions, topics.commands)
        }
    assert places == {0}


def test_seek_reads_again(settings: BrokerSettings, topics: Topics):
    with Producer(settings) as producer:
        for number in range(5):
            producer.send(topics.samples, b"%d" % number, partition=1)
        producer.flush()
    with LogReader(settings, topics.samples) as reader:
        assert len(reader.read_to_end()) == 5
        reader.seek((topics.samples, 1), 3)
        assert [record.value for record in reader.read_to_end()] == [b"3", b"4"]


def test_a_paused_reader_reads_nothing(settings: BrokerSettings, topics: Topics):
    with Producer(settings) as producer, LogReader(settings, topics.samples) as reader:
        reader.poll(10, 0.0)
        reader.pause()
        producer.send_and_wait(topics.samples, b"value")
        assert reader.poll(10, 0.5) == []
        reader.resume()
        assert len(reader.poll(10, 20.0)) == 1


def test_several_partitions_can_be_chosen(settings: BrokerSettings, topics: Topics):
    with Producer(settings) as producer:
        for number in range(4):
            producer.send(topics.samples, b"%d" % number, partition=number)
        producer.flush()
    with LogReader(settings, topics.samples, partitions=[1, 3]) as reader:
        assert sorted(record.value for record in reader.read_to_end()) == [b"1", b"3"]


def test_an_unknown_topic_is_named_within_the_timeout(settings: BrokerSettings):
    started = time.monotonic()
    with pytest.raises(UnknownTopicError, match=r"nowhere\.run\.samples"):
        LogReader(settings, "nowhere.run.samples").open(3.0)
    assert time.monotonic() - started < 20.0


def test_a_topic_that_comes_up_late_is_waited_for(settings: BrokerSettings):
    topics = Topics(f"t{uuid.uuid4().hex[:8]}", "late")
    reader = LogReader(settings, topics.samples, open_timeout=0.2)
    with pytest.raises(UnknownTopicError):
        reader.poll()
    ensure_topics(settings, topics.specs(), replication=1)
    reader.open(20.0)
    assert reader.poll(1, 0.0) == []
    reader.close()


def test_closed_is_closed(settings: BrokerSettings, topics: Topics):
    reader = LogReader(settings, topics.samples)
    reader.close()
    reader.close()
    with pytest.raises(BrokerError, match="closed"):
        reader.poll()
    producer = Producer(settings)
    producer.close()
    assert producer.close() == 0
    with pytest.raises(BrokerError, match="closed"):
        producer.send(topics.samples, b"late")


def test_a_record_beyond_the_limit_is_refused_at_once(settings: BrokerSettings, topics: Topics):
    with Producer(settings) as producer, pytest.raises(BrokerError, match="larger than"):
        producer.send(topics.samples, bytes(3_000_000))


def test_topics_are_made_once_and_checked(settings: BrokerSettings):
    topics = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
    assert len(check_topics(settings, topics.specs())) == 9
    assert len(ensure_topics(settings, topics.specs(), replication=1)) == 9
    assert ensure_topics(settings, topics.specs(), replication=1) == []
    assert check_topics(settings, topics.specs()) == []


def test_topics_with_other_settings_are_refused(local_services: Services):
    settings = BrokerSettings(local_services.bootstrap_servers)
    topics = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
    kept = {"cleanup.policy": "delete", "retention.ms": "60000"}
    ensure_topics(settings, [TopicSpec(topics.samples, 2, kept)], replication=1)
    with pytest.raises(TopicMismatchError) as caught:
        ensure_topics(settings, topics.specs(partitions=4), replication=1)
    for part in (topics.samples, "2 partitions, not 4", "retention.ms=60000", "LogAppendTime"):
        assert part in str(caught.value)


def test_an_overtaken_position_is_counted_and_moved(embedded_services: Services):
    """The embedded cluster keeps 5 MB a partition."""
    settings = BrokerSettings(embedded_services.bootstrap_servers)
    topics = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
    ensure_topics(settings, topics.specs())
    place = (topics.samples, 0)
    with Producer(settings) as producer:
        producer.send_and_wait(topics.samples, b"first", partition=0)
        reader = LogReader(settings, topics.samples)
        assert len(reader.read_to_end()) == 1
        reader.pause()
        for _ in range(30):
            producer.send_and_wait(topics.samples, bytes(900_000), partition=0)
        reader.resume()
        seen: list[int] = []

        def done() -> bool:
            seen.extend(record.offset for record in reader.poll(100, 0.2))
            return reader.positions()[place] == 31

        wait_until(done, "the reader comes to the end")
    assert reader.expired[place] == 30 - len(seen)
    assert seen[-1] == 30
    assert seen == sorted(set(seen))
    reader.close()


def test_deleted_records_are_counted_on_kafka(local_services: Services):
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    settings = BrokerSettings(local_services.bootstrap_servers)
    topics = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
    ensure_topics(settings, topics.specs(), replication=1)
    place = (topics.samples, 0)
    with Producer(settings) as producer:
        for number in range(10):
            producer.send(topics.samples, b"%d" % number, partition=0)
        producer.flush()
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(*place, 6)]).values():
        future.result()
    with LogReader(settings, topics.samples, {place: 2}) as reader:
        assert [record.value for record in reader.read_to_end()] == [b"6", b"7", b"8", b"9"]
        assert reader.expired == {place: 4}
    with (
        LogReader(settings, topics.samples, {place: 50}) as reader,
        pytest.raises(BrokerError, match="made anew"),
    ):
        reader.poll(10, 10.0)


def test_a_gap_is_counted(embedded_services: Services):
    """The embedded cluster shows commit markers as skipped offsets in a topic of samples."""
    settings = BrokerSettings(embedded_services.bootstrap_servers)
    topics = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
    ensure_topics(settings, topics.specs())
    with Producer(settings, transactional_id=topics.namespace) as producer:
        producer.init_transactions()
        for _ in range(2):
            producer.send_and_wait(topics.samples, b"v", partition=0)
            producer.send_and_wait(topics.versions, b"v")
    with LogReader(settings, [topics.samples, topics.versions]) as reader:
        assert len(reader.read_to_end()) == 4
        assert reader.gaps == {(topics.samples, 0): 1}
