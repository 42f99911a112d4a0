"""A run's topics, or a bucket, that no other test has."""

import uuid

from pipeline.broker import BrokerSettings, Topics, ensure_topics
from pipeline.services import Services
from pipeline.weights import StoreSettings


def fresh_topics(settings: BrokerSettings) -> Topics:
    """The topics of a fresh run in a fresh namespace, made."""
    names = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
    ensure_topics(settings, names.specs(), replication=1)
    return names


def fresh_bucket(services: Services) -> StoreSettings:
    """A bucket's that is not made yet."""
    addresses = services.addresses
    return StoreSettings(addresses.endpoint, addresses.access_key, addresses.secret_key, f"b-{uuid.uuid4().hex[:8]}")
