"""Tests of weights run twice: on moto with the embedded cluster, and on MinIO with Kafka."""

import pytest

from pipeline.broker import BrokerSettings, Topics
from pipeline.services import Services
from pipeline.weights import ObjectStore, StoreSettings
from tests.fresh import fresh_bucket, fresh_topics
from tests.weights.made import FlakyStore


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
    """The topics of a fresh run, made."""
    return fresh_topics(settings)


@pytest.fixture
def store_settings(services: Services) -> StoreSettings:
    """A fresh bucket's."""
    return fresh_bucket(services)


@pytest.fixture
def store(store_settings: StoreSettings) -> ObjectStore:
    """A store with its bucket made."""
    made = ObjectStore(store_settings)
    made.ensure_bucket()
    return made


@pytest.fixture
def flaky(store: ObjectStore) -> FlakyStore:
    """The same bucket through a store that can be sent away."""
    return FlakyStore(store.settings)
