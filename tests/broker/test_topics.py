import pytest

from pipeline.broker import Topics
from pipeline.broker.topics import fixed_partition, is_contiguous
from pipeline.errors import ConfigError


def test_names():
    topics = Topics("lab.one", "cart-pole_1")
    assert topics.runs == "lab.one.runs"
    assert topics.samples == "lab.one.cart-pole_1.samples"
    assert topics.dead_letters == "lab.one.cart-pole_1.dead-letters"
    assert len({spec.name for spec in topics.specs()}) == 9


def test_settings():
    specs = {spec.name.rpartition(".")[2]: spec for spec in Topics("n", "r").specs(partitions=6)}
    assert specs["runs"].config["cleanup.policy"] == "compact"
    assert specs["samples"].partitions == specs["episodes"].partitions == 6
    assert specs["samples"].config["message.timestamp.type"] == "LogAppendTime"
    assert specs["versions"].partitions == 1
    assert specs["versions"].config["retention.ms"] == "-1"


@pytest.mark.parametrize(
    "namespace, run",
    [("", "r"), ("n", ""), ("n", "a.b"), ("n", "ä"), ("n/x", "r"), ("n", "r" * 101)],
)
def test_names_that_kafka_refuses_are_refused_here(namespace: str, run: str):
    with pytest.raises(ConfigError, match="cannot be part"):
        Topics(namespace, run)


def test_order_and_gaps_follow_from_the_topic():
    topics = Topics("n", "r")
    assert fixed_partition(topics.versions) == fixed_partition(topics.commands) == 0
    assert fixed_partition(topics.samples) is None
    assert is_contiguous(topics.samples)
    assert not is_contiguous(topics.runs) and not is_contiguous(topics.versions)
