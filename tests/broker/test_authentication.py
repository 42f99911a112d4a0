"""A wrong password, against a real Kafka that asks for one."""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pipeline.broker import BrokerSettings, LinkState, LogReader, Producer, Topics, ensure_topics, find_run
from pipeline.errors import BrokerAuthenticationError
from pipeline.services.asking import HOST, free_port
from pipeline.services.kafka import LocalKafka
from pipeline.services.process import Command
from tests.waiting import wait_until

_LISTENER = """
listeners=PLAINTEXT://{host}:{port},SASL://{host}:{sasl_port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port},SASL://{host}:{sasl_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_actor="right";
"""


class _KafkaWithUsers(LocalKafka):
    """A second listener that lets in the user ``actor`` with the password ``right``."""

    def prepare(self) -> Command:
        self.sasl_port = free_port()
        command = super().prepare()
        names = {"host": HOST, "port": self.port, "controller_port": self._controller_port}
        with self._properties.open("a") as file:
            file.write(_LISTENER.format(sasl_port=self.sasl_port, **names))
        return command


@pytest.fixture(scope="module")
def settings(local_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerSettings]:
    """The right user and password."""
    folder = tmp_path_factory.mktemp("kafka")
    kafka = _KafkaWithUsers(folder, folder / "kafka.log")
    kafka.start()
    try:
        yield BrokerSettings(
            f"{HOST}:{kafka.sasl_port}",
            username="actor",
            password="right",
            security_protocol="sasl_plaintext",
            sasl_mechanism="PLAIN",
        )
    finally:
        kafka.stop()


def test_the_right_password_is_let_in(settings: BrokerSettings):
    topics = Topics("space", "run")
    ensure_topics(settings, topics.specs(), replication=1)
    with Producer(settings) as producer, LogReader(settings, topics.samples) as reader:
        producer.send_and_wait(topics.samples, b"value")
        assert [record.value for record in reader.read_to_end()] == [b"value"]


@pytest.mark.parametrize("what", ["producer", "send", "reader", "ensure", "find"])
def test_a_wrong_password_is_said_at_once(settings: BrokerSettings, what: str):
    topics = Topics("space", "run")
    wrong = replace(settings, password="wrong")
    started = time.monotonic()
    with pytest.raises(BrokerAuthenticationError, match=settings.address) as caught:
        if what == "producer":
            Producer(wrong).connect(20.0)
        elif what == "send":
            Producer(wrong).send_and_wait(topics.samples, b"value", timeout=20.0)
        elif what == "reader":
            LogReader(wrong, topics.samples).open(20.0)
        elif what == "ensure":
            ensure_topics(wrong, topics.specs(), timeout=20.0)
        else:
            find_run(wrong, topics.namespace, timeout=20.0)
    assert time.monotonic() - started < 10.0
    assert "password" in str(caught.value)
    assert "wrong" not in str(caught.value)


def test_a_wrong_password_is_told_once(settings: BrokerSettings, caplog: pytest.LogCaptureFixture):
    states: list[LinkState] = []
    with caplog.at_level(logging.WARNING, "pipeline.broker"):
        producer = Producer(replace(settings, password="wrong"), on_link=states.append)
        producer.send("space.run.samples", b"value")
        wait_until(lambda: producer.poll(0.05) >= 0 and bool(states), "told of the refusal")
        until = time.monotonic() + 2.0
        while time.monotonic() < until:
            producer.poll(0.1)
    assert [state.up for state in states] == [False]
    assert isinstance(states[0].error, BrokerAuthenticationError)
    assert len([message for message in caplog.messages if settings.address in message]) == 1
    producer.close(0.0)
