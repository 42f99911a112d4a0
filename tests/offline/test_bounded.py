"""Ranges of a topic, read from a broker."""

import uuid
from collections.abc import Iterator

import pytest

from pipeline.broker import BrokerSettings, Producer
from pipeline.errors import ReplayError, UnknownTopicError
from pipeline.offline.bounded import BoundedReader, extents
from pipeline.offline.ranges import Range, Selection
from pipeline.services import Services

COUNT = 200


@pytest.fixture(scope="module")
def settings(local_services: Services) -> BrokerSettings:
    return BrokerSettings(local_services.bootstrap_servers)


@pytest.fixture(scope="module")
def topic(settings: BrokerSettings) -> Iterator[str]:
    """Some records in four partitions, appended one after the other."""
    from pipeline.broker import TopicSpec, ensure_topics

    name = f"test.bounded-{uuid.uuid4().hex[:8]}.samples"
    ensure_topics(settings, [TopicSpec(name, 4, {"message.timestamp.type": "LogAppendTime"})])
    producer = Producer(settings)
    for number in range(COUNT):
        producer.send_and_wait(name, str(number).encode(), key=f"actor-{number % 7}")
    producer.close()
    yield name


def read(settings: BrokerSettings, topic: str, selection: Selection, **options: object) -> list[tuple[int, int, int]]:
    """Number, partition and offset of what is read."""
    with BoundedReader(settings, topic, selection, **options) as reader:  # type: ignore[arg-type]
        return [(int(record.value), record.partition, record.offset) for record in reader.records()]


def test_everything_in_the_order_of_the_log_s_time(settings: BrokerSettings, topic: str):
    with BoundedReader(settings, topic, Selection()) as reader:
        records = list(reader.records())
    assert sorted(int(record.value) for record in records) == list(range(COUNT))
    times = [record.timestamp_ms for record in records]
    assert times == sorted(times)
    assert len({record.partition for record in records[:40]}) > 1


def test_offsets_of_one_partition(settings: BrokerSettings, topic: str):
    partition = next(p for p, extent in extents(settings, topic).items() if extent.high > 12)
    found = read(settings, topic, Selection(offsets=Range(3, 11), partition=partition))
    assert [(p, offset) for _, p, offset in found] == [(partition, offset) for offset in range(3, 12)]
    assert read(settings, topic, Selection(offsets=Range(10**6, None), partition=partition)) == []


def test_a_range_of_times(settings: BrokerSettings, topic: str):
    with BoundedReader(settings, topic, Selection()) as reader:
        records = list(reader.records())
    first, last = records[60].timestamp_ms, records[139].timestamp_ms
    expected = [int(r.value) for r in records if first <= r.timestamp_ms <= last]
    assert 0 < len(expected) < COUNT
    found = read(settings, topic, Selection(times=Range(first, last)))
    assert [number for number, _, _ in found] == expected
    assert read(settings, topic, Selection(times=Range(last + 10**6, None))) == []
    assert read(settings, topic, Selection(times=Range(None, first - 10**6))) == []


def test_a_span_bounds_further(settings: BrokerSettings, topic: str):
    partition = next(p for p, extent in extents(settings, topic).items() if extent.high > 12)
    found = read(settings, topic, Selection(offsets=Range(4, None)), spans={partition: (2, 8)})
    assert [offset for _, _, offset in found] == [4, 5, 6, 7]


def test_progress_comes_to_the_total(settings: BrokerSettings, topic: str):
    done: list[int] = []
    with BoundedReader(settings, topic, Selection(offsets=Range(2, 20))) as reader:
        list(reader.records(lambda count, now="": done.append(count)))
        assert sum(done) == reader.total


def test_control_records_at_the_end_do_not_hold_it_up(settings: BrokerSettings):
    """The versions topic ends with the marker of a transaction."""
    from pipeline.broker import TopicSpec, ensure_topics

    name = f"test.bounded-{uuid.uuid4().hex[:8]}.versions"
    ensure_topics(settings, [TopicSpec(name, 1, {})])
    producer = Producer(settings, transactional_id=name)
    producer.init_transactions(30.0)
    for number in range(3):
        producer.send_and_wait(name, str(number).encode())
    producer.close()
    assert [number for number, _, _ in read(settings, name, Selection())] == [0, 1, 2]
    assert [number for number, _, _ in read(settings, name, Selection(offsets=Range(1, 2)))] == [1]


def test_what_there_is_not(settings: BrokerSettings, topic: str):
    with pytest.raises(ReplayError, match="no partition 9; there are 0, 1, 2, 3"):
        BoundedReader(settings, topic, Selection(partition=9))
    with pytest.raises(UnknownTopicError):
        extents(settings, "test.nowhere.samples", timeout=5.0)
