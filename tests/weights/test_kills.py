"""Store and broker killed while versions are published: what is announced can be fetched, and nothing counts twice."""

import os
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from pipeline.broker import BrokerSettings, LogReader, Producer, Topics
from pipeline.experience import Version
from pipeline.services import Services, running_services
from pipeline.weights import BackgroundPublisher, ObjectStore, Publisher, read_lineage
from pipeline.wire import ModelVersionRecord
from tests.fresh import fresh_bucket, fresh_topics
from tests.waiting import wait_until
from tests.weights.made import version

SOAK = os.environ.get("SOAK", "") not in ("", "0")
KILLS = 20 if SOAK else 2
pytestmark = pytest.mark.timeout(1800 if SOAK else 400)


@pytest.fixture(scope="module")
def shaken(local_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Kafka and MinIO of this module's own, to be killed."""
    with running_services("local", tmp_path_factory.mktemp("shaken"), keep_data=False) as services:
        yield services


@pytest.fixture
def settings(shaken: Services) -> BrokerSettings:
    return BrokerSettings(shaken.bootstrap_servers)


@pytest.fixture
def topics(settings: BrokerSettings) -> Topics:
    return fresh_topics(settings)


@pytest.fixture
def store(shaken: Services) -> ObjectStore:
    made = ObjectStore(fresh_bucket(shaken))
    made.ensure_bucket()
    return made


def weights(number: int) -> dict[str, np.ndarray]:
    """16 MB, so that a kill finds an upload under way."""
    return {"w": np.full(4_000_000, number, np.float32)}


def publish_through(
    settings: BrokerSettings,
    topics: Topics,
    store: ObjectStore,
    kill: Callable[[int], None],
    tensors: Callable[[int], dict[str, np.ndarray]],
) -> tuple[list[ModelVersionRecord], int]:
    """Publish while ``kill`` is called time and again; what was published, and how many tries failed."""
    published: list[ModelVersionRecord] = []
    done = threading.Event()

    def kill_all() -> None:
        try:
            for number in range(KILLS):
                reached = len(published) + 2
                wait_until(lambda reached=reached: len(published) >= reached, "versions go out", 120.0)
                kill(number)
        finally:
            done.set()

    with Producer(settings, transactional_id=topics.namespace) as producer:
        producer.init_transactions(60.0)  # the broker makes its own topic for it first
        publisher = Publisher(store, producer, topics, timeout=2.0)
        killer = threading.Thread(target=kill_all)
        with BackgroundPublisher(publisher, published.append, max_pause=0.5) as background:
            killer.start()
            number = 0
            while not done.is_set():
                number += background.submit(version(number), tensors(number), timeout=1.0)
            killer.join()
            assert background.close(120.0) == 0
            assert background.error is None and not background.failing
            assert number == len(published)
            failures = background.failures
    with Producer(settings, transactional_id=topics.namespace) as successor:
        successor.init_transactions(60.0)
    return published, failures


def test_a_store_killed_in_mid_upload(shaken: Services, settings: BrokerSettings, topics: Topics, store: ObjectStore):
    uploading = threading.Event()
    put = store.put_once

    def seen(key: str, data: bytes) -> str:
        uploading.set()
        return put(key, data)

    store.put_once = seen

    def kill(number: int) -> None:
        uploading.clear()
        assert uploading.wait(60.0)
        shaken.minio.kill()
        shaken.minio.start()

    published, failures = publish_through(settings, topics, store, kill, weights)
    assert failures > 0
    lineage = read_lineage(settings, topics)
    assert lineage.versions == published
    for record in lineage.versions:
        store.get(record.key, record.size, record.sha256)  # raises if it is not what was announced


def test_a_broker_killed_while_versions_are_announced(
    shaken: Services, settings: BrokerSettings, topics: Topics, store: ObjectStore
):
    def kill(number: int) -> None:
        shaken.kafka.kill()
        shaken.kafka.start()

    def small(number: int) -> dict[str, np.ndarray]:
        return {"w": np.full(3, number, np.float32)}

    published, failures = publish_through(settings, topics, store, kill, small)
    lineage = read_lineage(settings, topics)
    # Nothing is lost, and what an open outcome made to be announced again counts once.
    assert [record.version for record in lineage.versions] == [Version(1, n) for n in range(len(published))]
    assert [record.sha256 for record in lineage.versions] == [record.sha256 for record in published]
    with LogReader(settings, topics.versions) as reader:
        assert len(reader.read_to_end()) == len(published) + lineage.repeated
    assert lineage.repeated <= failures
