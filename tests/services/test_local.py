"""A real Apache Kafka and MinIO: readiness, restarts that keep the data, no orphans."""

import io
import os
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from minio import Minio

from pipeline.errors import MissingToolError, ServiceError
from pipeline.services import Services, down, running_services, start_detached, status
from pipeline.services.asking import broker_answers, http_answers
from pipeline.services.commands import missing_for_local, services_fetch
from tests.waiting import process_runs, wait_until

TOPIC = "rl.restart.samples"


def store(services: Services) -> Minio:
    addresses = services.addresses
    return Minio(
        services.endpoint,
        access_key=addresses.access_key,
        secret_key=addresses.secret_key,
        secure=False,
    )


def create_topic(services: Services) -> None:
    admin = AdminClient({"bootstrap.servers": services.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)


def append(services: Services, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": services.bootstrap_servers, "acks": "all"})
    producer.produce(TOPIC, value)
    assert producer.flush(30) == 0


def read(services: Services, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": services.bootstrap_servers, "group.id": "test"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


def test_data_and_addresses_survive_stop_kill_and_pause(own_local_services: Services) -> None:
    services = own_local_services
    create_topic(services)
    append(services, b"before")
    store(services).make_bucket("weights")
    store(services).put_object("weights", "key", io.BytesIO(b"kept"), 4)

    services.kafka.kill()
    assert services.ended() == ["Kafka"]
    assert not broker_answers(services.bootstrap_servers)
    services.kafka.start()
    append(services, b"after a kill")

    services.kafka.stop()
    services.minio.stop()
    assert not http_answers(services.endpoint, "/minio/health/ready")
    services.minio.start()
    services.kafka.start()
    append(services, b"after a stop")

    services.kafka.pause()
    assert not broker_answers(services.bootstrap_servers)
    assert services.kafka.alive
    services.kafka.resume()
    wait_until(lambda: broker_answers(services.bootstrap_servers), "Kafka answers again")

    assert read(services, 3) == [b"before", b"after a kill", b"after a stop"]
    assert store(services).get_object("weights", "key").read() == b"kept"


def test_topics_are_not_created_on_first_use(local_services: Services) -> None:
    admin = AdminClient({"bootstrap.servers": local_services.bootstrap_servers})
    admin.list_topics("rl.nobody.created.this", timeout=10)
    assert "rl.nobody.created.this" not in admin.list_topics(timeout=10).topics


@pytest.mark.usefixtures("local_tools")
def test_kill_9_leaves_no_orphans_and_the_next_start_finds_data_and_ports(tmp_path: Path) -> None:
    addresses = start_detached("local", tmp_path)
    logs = tmp_path / "logs"
    pids = [int((logs / f"{name}.pid").read_text()) for name in ("kafka", "minio")]
    assert all(process_runs(pid) for pid in pids)
    os.kill(addresses.pid, signal.SIGKILL)
    for pid in pids:
        wait_until(lambda pid=pid: not process_runs(pid), f"process {pid} ends")
    assert status(tmp_path) is None
    with running_services("local", tmp_path, keep_data=False) as services:
        assert services.bootstrap_servers == addresses.bootstrap_servers
        assert services.endpoint == addresses.endpoint
        assert services.addresses.secret_key != addresses.secret_key
    assert not (tmp_path / "data").exists()
    assert not down(tmp_path)


@pytest.mark.usefixtures("local_tools")
def test_a_start_that_fails_shows_the_end_of_the_log(tmp_path: Path) -> None:
    data = tmp_path / "data" / "kafka" / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=99\n")
    with (
        pytest.raises(ServiceError, match=r"(?s)Kafka ended while.*Stored node id 99"),
        running_services("local", tmp_path),
    ):
        pass
    assert status(tmp_path) is None


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PIPELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    said = " ".join(missing_for_local())
    for tool in ("Java", "Maven", "Go"):
        assert f"{tool} is not installed" in said
    with pytest.raises(MissingToolError, match=r"Java.*Maven.*Go"):
        services_fetch("local")
