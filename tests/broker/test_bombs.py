"""Batches that are small on their way to the broker and huge for whoever reads them."""

import pytest

from pipeline.broker import BrokerSettings, LogReader, Producer
from pipeline.errors import BrokerError
from pipeline.services import Services
from tests.fresh import fresh_topics

SIZE = 96 << 20


@pytest.mark.timeout(240)
@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_bomb_does_not_get_into_the_log(local_services: Services, codec: str):
    """The broker takes it apart and refuses what is then too large; the same topic goes on."""
    hostile = BrokerSettings(
        local_services.bootstrap_servers,
        producer={"compression.type": codec, "message.max.bytes": 1_000_000_000, "queue.buffering.max.kbytes": 1 << 20},
    )
    settings = BrokerSettings(local_services.bootstrap_servers)
    topics = fresh_topics(settings)
    for topic in (topics.samples, topics.episodes, topics.heartbeats):
        with Producer(hostile, batch_size=SIZE * 2) as producer, pytest.raises(BrokerError):
            producer.send_and_wait(topic, bytes(SIZE), partition=0, timeout=60.0)
        with Producer(settings) as producer:
            producer.send_and_wait(topic, b"good", partition=0, timeout=30.0)
        with LogReader(settings, topic, partitions=[0]) as reader:
            assert [record.value for record in reader.read_to_end(30.0)] == [b"good"]


@pytest.mark.timeout(240)
def test_honest_compression_is_as_good_as_none(local_services: Services):
    """`kafka.producer.compression.type` spares the network; what is read is the same."""
    settings = BrokerSettings(local_services.bootstrap_servers, producer={"compression.type": "zstd"})
    topics = fresh_topics(settings)
    values = [bytes([number]) * 50_000 for number in range(30)]
    with Producer(settings) as producer:
        for value in values:
            producer.send(topics.samples, value, partition=0)
        assert producer.flush(30.0) == 0
    with LogReader(settings, topics.samples, partitions=[0]) as reader:
        assert [record.value for record in reader.read_to_end(30.0)] == values
