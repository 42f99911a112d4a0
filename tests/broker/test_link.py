"""What is said when a broker is away or refuses: once, soon, with the address."""

import logging
import time

import pytest
from confluent_kafka import KafkaError

from pipeline.broker import (
    BrokerSettings,
    LinkState,
    LogReader,
    Producer,
    Topics,
    check_topics,
    ensure_topics,
    find_run,
)
from pipeline.broker.logs import LinkMonitor, explain, refuses
from pipeline.errors import (
    BrokerAuthenticationError,
    BrokerUnreachableError,
    DeliveryError,
    QueueFullError,
    UnknownTopicError,
)
from pipeline.services import Services
from tests.waiting import wait_until

REFUSED = KafkaError(KafkaError._TRANSPORT, "connection refused")
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
UP = '{"brokers": {"b": {"state": "UP"}}}'
DOWN = '{"brokers": {"b": {"state": "TRY_CONNECT"}}}'


@pytest.mark.parametrize("what", ["producer", "reader", "ensure", "check", "find", "send"])
def test_a_dead_address_is_named_within_the_timeout(dead_address: str, what: str):
    settings = BrokerSettings(dead_address)
    topics = Topics("space", "run")
    started = time.monotonic()
    with pytest.raises((BrokerUnreachableError, DeliveryError), match=dead_address) as caught:
        if what == "producer":
            Producer(settings).connect(1.0)
        elif what == "reader":
            LogReader(settings, "topic").open(1.0)
        elif what == "ensure":
            ensure_topics(settings, topics.specs(), timeout=1.0)
        elif what == "check":
            check_topics(settings, topics.specs(), timeout=1.0)
        elif what == "find":
            find_run(settings, "space", None, timeout=1.0)
        else:
            Producer(settings).send_and_wait("topic", b"value", timeout=1.0)
    assert "refused" in str(caught.value)
    assert time.monotonic() - started < 20.0


def test_a_lost_link_is_said_once(dead_address: str, caplog: pytest.LogCaptureFixture):
    states: list[LinkState] = []
    with caplog.at_level(logging.WARNING, "pipeline.broker"):
        producer = Producer(BrokerSettings(dead_address), on_link=states.append)
        producer.send("topic", b"value")
        deadline = time.monotonic() + 2.5
        wait_until(lambda: producer.poll(0.05) >= 0 and bool(states), "told that the link is down")
        while time.monotonic() < deadline:
            producer.poll(0.1)
    assert [state.up for state in states] == [False]
    assert dead_address in states[0].sentence
    assert isinstance(states[0].error, BrokerUnreachableError)
    sentences = [m.getMessage() for m in caplog.records if m.name == "pipeline.broker"]
    assert len(sentences) == 1
    assert dead_address in sentences[0]
    assert not producer.link_up
    assert producer.close(0.1) == 1


def test_the_bounded_queue_says_that_it_is_full(dead_address: str):
    producer = Producer(BrokerSettings(dead_address), queue_buffering_max_kbytes=1024)
    queued = 0
    with pytest.raises(QueueFullError, match=dead_address):
        while queued < 20:
            producer.send("topic", bytes(100_000))
            queued += 1
    assert 8 <= queued <= 11
    producer.close(0.0)


def test_a_flapping_link_is_told_when_statistics_agree():
    states: list[LinkState] = []
    monitor = LinkMonitor(BrokerSettings("b:1"), states.append)
    monitor.on_stats(UP)
    monitor.on_error(REFUSED)
    monitor.on_error(ALL_DOWN)  # an idle connection that the broker closed
    monitor.on_stats(UP)
    assert states == []
    monitor.on_error(ALL_DOWN)
    monitor.on_stats(DOWN)
    monitor.on_stats(DOWN)
    assert [state.up for state in states] == [False]
    monitor.on_stats(UP)
    monitor.worked()
    assert [state.up for state in states] == [False, True]
    assert "b:1" in states[1].sentence


def test_the_reason_is_not_hidden_by_what_follows_it():
    states: list[LinkState] = []
    monitor = LinkMonitor(BrokerSettings("b:1"), states.append)
    monitor.on_error(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    monitor.on_error(REFUSED)
    monitor.on_error(ALL_DOWN)
    assert len(states) == 1
    assert isinstance(states[0].error, BrokerAuthenticationError)
    assert "wrong password" in states[0].sentence


def test_a_handshake_that_nobody_answered_is_not_called_a_wrong_password():
    late = KafkaError(KafkaError._AUTHENTICATION, "SASL SCRAM-SHA-512 handshake failed: Local: Timed out in queue")
    found = explain(late, "b:1", doing="writing")
    assert isinstance(found, BrokerUnreachableError)
    assert "password" not in str(found) and "b:1" in str(found)


def test_what_nobody_answered_is_tried_again_and_gives_way_to_a_refusal():
    states: list[LinkState] = []
    monitor = LinkMonitor(BrokerSettings("b:1"), states.append)
    monitor.on_error(KafkaError(KafkaError._AUTHENTICATION, "SASL handshake failed: Local: Timed out"))
    assert not refuses(monitor.trouble)
    monitor.on_error(ALL_DOWN)
    assert isinstance(states[0].error, BrokerUnreachableError)
    monitor.on_error(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    assert refuses(monitor.trouble)


def test_other_errors_are_said_once_for_each_topic(caplog: pytest.LogCaptureFixture):
    monitor = LinkMonitor(BrokerSettings("b:1"))
    unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "unknown topic")
    with caplog.at_level(logging.WARNING, "pipeline.broker"):
        for topic in ("one", "two", "one"):
            monitor.say_once(unknown, topic)
    assert len(caplog.messages) == 2
    assert isinstance(explain(unknown, "b:1", topic="one"), UnknownTopicError)


def test_records_queued_while_the_broker_is_away_arrive_in_order(own_local_services: Services):
    settings = BrokerSettings(own_local_services.bootstrap_servers)
    topics = Topics("space", "run")
    ensure_topics(settings, topics.specs(partitions=1), replication=1)
    states: list[LinkState] = []
    delivered: list[int] = []
    producer = Producer(settings, on_link=states.append, **{"message.timeout.ms": 0})
    reader = LogReader(settings, topics.samples, on_link=lambda state: None)
    reader.open()

    def send(first: int, last: int) -> None:
        for number in range(first, last):
            producer.send(
                topics.samples,
                str(number).encode(),
                on_delivery=lambda delivery: delivered.append(delivery.offset),
            )

    send(0, 10)
    assert producer.flush() == 0
    own_local_services.kafka.kill()
    send(10, 30)
    wait_until(lambda: producer.poll(0.05) >= 0 and len(states) == 1, "told of the loss")
    assert not states[0].up
    assert reader.poll(100, 0.1) is not None  # an absent broker is no error to a reader
    own_local_services.kafka.start()
    wait_until(lambda: producer.poll(0.05) >= 0 and len(delivered) == 30, "everything is delivered")
    wait_until(lambda: producer.poll(0.05) >= 0 and states[-1].up, "told that it is back")
    assert [state.up for state in states] == [False, True]
    producer.close()
    reader.close()
    with LogReader(settings, topics.samples) as again:
        assert [int(r.value) for r in again.read_to_end(20.0)] == list(range(30))
