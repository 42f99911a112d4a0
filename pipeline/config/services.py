"""Settings of broker, store, and what hosts them."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class ServicesConfig:
    """Which broker and object store are used."""

    kind: str = "embedded"
    """embedded (in-process Kafka protocol and S3), local (Apache Kafka and MinIO), or external (yours)."""
    security: str = "none"
    """none, or tls (local services speak TLS and let in whom `pipeline secrets` made); chosen by the group security."""
    folder: str = ".services"
    """Data, logs and addresses of the embedded or local services."""
    detach: bool = False
    """`services up` returns once the services answer, instead of staying in the foreground."""


@dataclass
class KafkaConfig:
    """The broker."""

    bootstrap_servers: str = ""
    """host:port list; empty: the services that run in services.folder."""
    partitions: int = 4
    """Partitions of the samples and episodes topics, when the run's topics are created."""
    replication: int = 1
    """Replication factor of the topics, when they are created."""
    retention_ms: int = 604_800_000
    """How long samples and episodes are kept, in milliseconds."""
    retention_bytes: int = -1
    """How much of each partition of samples is kept, in bytes; -1: as much as retention_ms leaves. Restarts and
    `pipeline replay` need what the replay buffer was made of."""
    dead_letter_bytes: int = 67_108_864
    """About how much of the dead letters is kept, in bytes, when the topic is created."""
    timeout_s: float = 10.0
    """How long a first answer of the broker is waited for, in seconds."""
    producer: dict[str, Any] = field(default_factory=dict[str, Any])
    """Raw librdkafka settings for producers, passed through as they are."""
    consumer: dict[str, Any] = field(default_factory=dict[str, Any])
    """Raw librdkafka settings for consumers, passed through as they are."""

    def topic_settings(self) -> dict[str, int]:
        """What `pipeline.broker.Topics.specs` is told of these settings."""
        return {
            "partitions": self.partitions,
            "retention_ms": self.retention_ms,
            "retention_bytes": self.retention_bytes,
            "dead_letter_bytes": self.dead_letter_bytes,
        }


@dataclass
class StoreConfig:
    """The S3 object store that holds the weights."""

    endpoint: str = ""
    """host:port; empty: the services that run in services.folder, or what the run's manifest names."""
    bucket: str = "rl-weights"
    """The bucket that weights are put into."""
    secure: bool = False
    """Whether the store is spoken to over TLS."""
    region: str = "us-east-1"
    """The store's region."""


@dataclass
class SecretsConfig:
    """`pipeline secrets`: who is let in, and what for."""

    folder: str = "deploy/secrets"
    """Certificates, keys and the secret files of roles and clients."""
    name: str = ""
    """The client or role that `pipeline secrets client|revoke|rotate NAME` is about."""
    file: str = ""
    """The secret file of that client or role; empty: the one in secrets.folder."""
    broker: str = ""
    """host:port of the broker for those who get a secret file; empty: as it is reached from here."""
    store: str = ""
    """host:port of the store for those who get a secret file; empty: as it is reached from here."""
    broker_hosts: list[str] = field(default_factory=lambda: ["localhost", "127.0.0.1"])
    """Names and addresses that the broker's certificate is for, beside that of secrets.broker."""
    store_hosts: list[str] = field(default_factory=lambda: ["localhost", "127.0.0.1"])
    """Names and addresses that the store's certificate is for, beside that of secrets.store."""
    client_bytes_per_s: float = 16_777_216.0
    """What one client may write to a broker in a second, and read from it, in bytes; beyond that it is made to wait."""
    client_requests: float = 50.0
    """How much of a broker's threads one client may keep busy, in percent of one thread; beyond that it is made to
    wait."""
