"""Brokers and stores for the tests: started once per session, on free ports of loopback."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.services import Services, missing_for_local, running_services

# A broker that lives for seconds is not worth the second compiler: it starts in two thirds of the time.
os.environ.setdefault("KAFKA_JVM_PERFORMANCE_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """What a command under test makes of the root logger ends with the test: its stderr does."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def embedded_services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """librdkafka's mock cluster and moto's S3: no admin calls, nothing is durable."""
    with running_services("embedded", tmp_path_factory.mktemp("embedded")) as services:
        yield services


@pytest.fixture(scope="session")
def local_services(local_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """A real Apache Kafka and MinIO, shared by the session.

    Tests that stop or kill one of them take ``own_local_services``.
    """
    with running_services("local", tmp_path_factory.mktemp("local"), keep_data=False) as services:
        yield services


@pytest.fixture
def own_local_services(local_tools: None, tmp_path: Path) -> Iterator[Services]:
    """A real Apache Kafka and MinIO of the test's own, to be stopped, killed and paused."""
    with running_services("local", tmp_path / "services", keep_data=False) as services:
        yield services


@pytest.fixture(scope="session")
def local_tools() -> None:
    """Skips and says what is missing of Java, Maven and Go; fails where ``CI`` is set."""
    missing = missing_for_local()
    if missing and os.environ.get("CI"):
        pytest.fail(" ".join(missing))
    if missing:
        pytest.skip(" ".join(missing))
