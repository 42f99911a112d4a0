"""Every broker test that can runs twice: on the embedded cluster and on a real Kafka."""

import socket
from collections.abc import Iterator

import pytest

from pipeline.broker import BrokerSettings, Topics
from pipeline.services import Services
from tests.fresh import fresh_topics


@pytest.fixture(params=["embedded", "local"])
def services(request: pytest.FixtureRequest) -> Services:
    """Broker and store, one of the two kinds."""
    return request.getfixturevalue(f"{request.param}_services")


@pytest.fixture
def settings(services: Services) -> BrokerSettings:
    """Of the broker at hand."""
    return BrokerSettings(services.bootstrap_servers)


@pytest.fixture
def topics(settings: BrokerSettings) -> Topics:
    """The topics of a fresh run in a fresh namespace, made."""
    return fresh_topics(settings)


@pytest.fixture
def dead_address() -> Iterator[str]:
    """An address that refuses connections: bound, so that nobody takes it, and not listening."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"
