"""Where the broker is and how to talk to it: the value that every client is built from."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import ConfigError
from pipeline.secret import Secret

_SENSITIVE = re.compile(r"password|secret|token|ssl\.key\.pem|oauth.*config", re.IGNORECASE)

PRODUCER_DEFAULTS: Mapping[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "batch.size": 512 * 1024,
    # As the samples topic takes them.
    "message.max.bytes": 2 * 1024 * 1024,
    "compression.type": "none",
    "delivery.report.only.error": False,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 64 * 1024,
    "allow.auto.create.topics": False,
}

TRANSACTION_DEFAULTS: Mapping[str, Any] = {
    # A broker that is away for longer, or a process that sleeps for longer, would be told that it was fenced. Nobody
    # else writes to the topic meanwhile, and a successor ends an open transaction at once. Kafka allows no more.
    "transaction.timeout.ms": 900_000,
}

CONSUMER_DEFAULTS: Mapping[str, Any] = {
    # Offsets are kept by whoever processes the records; a background commit would lie about it.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # An expired position has to be an error that is counted, not a silent jump.
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
    "enable.partition.eof": True,
    # The embedded cluster answers a fetch only after this long, data or not; a real one at once.
    "fetch.wait.max.ms": 25,
    "fetch.error.backoff.ms": 100,
    "queued.max.messages.kbytes": 32 * 1024,
    # How long a partition rests once that is full: librdkafka's second would stall whoever empties it sooner.
    "fetch.queue.backoff.ms": 10,
}

COMMON_DEFAULTS: Mapping[str, Any] = {
    "socket.keepalive.enable": True,
    "socket.nagle.disable": True,
    # A stalled broker is noticed after this, not after librdkafka's minute.
    "socket.timeout.ms": 10_000,
    "socket.connection.setup.timeout.ms": 10_000,
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 2_000,
    # Drives the link monitor: it is the only thing that tells of a reconnection without traffic.
    "statistics.interval.ms": 1_000,
}


def is_sensitive(key: str) -> bool:
    """Whether a librdkafka setting holds a secret."""
    return _SENSITIVE.search(key) is not None


def redact(options: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of librdkafka options that can be shown: what looks like a secret reads ``***``."""
    return {k: "***" if is_sensitive(k) else v for k, v in options.items()}


@dataclass(frozen=True, repr=False)
class BrokerSettings:
    """How to reach Kafka.

    Attributes:
        bootstrap_servers: ``host:port`` of one or more brokers, separated by commas.
        username: SASL user; ``None`` for a broker without authentication.
        password: the user's password; a plain string is wrapped into a ``Secret``.
        security_protocol: ``plaintext``, ``ssl``, ``sasl_plaintext`` or ``sasl_ssl``; ``None``
            means ``sasl_ssl`` with a user and ``plaintext`` without one.
        sasl_mechanism: used when there is a user.
        ca: PEM of the authorities that a TLS broker's certificate may be of; empty: the system's.
        producer, consumer: raw librdkafka settings, which win over everything else here.
    """

    bootstrap_servers: str
    username: str | None = None
    password: str | None = None
    security_protocol: str | None = None
    sasl_mechanism: str = "SCRAM-SHA-512"
    ca: str = ""
    producer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    consumer: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not self.bootstrap_servers.strip():
            raise ConfigError("the broker's address is empty; set kafka.bootstrap_servers to host:port")
        if self.password is not None and not isinstance(self.password, Secret):
            object.__setattr__(self, "password", Secret(self.password))

    @property
    def address(self) -> str:
        """The address as it is named in messages."""
        return self.bootstrap_servers

    @property
    def protocol(self) -> str:
        """The security protocol, settled."""
        if self.security_protocol is not None:
            return self.security_protocol
        return "sasl_ssl" if self.username else "plaintext"

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.lower().endswith("ssl")

    def __repr__(self) -> str:
        return (
            f"BrokerSettings({self.bootstrap_servers!r}, username={self.username!r}, "
            f"password={self.password!r}, security_protocol={self.security_protocol!r}, "
            f"producer={redact(self.producer)!r}, consumer={redact(self.consumer)!r})"
        )


def connection_options(settings: BrokerSettings) -> dict[str, Any]:
    """What every client needs: address, credentials, socket behaviour."""
    options: dict[str, Any] = {
        **COMMON_DEFAULTS,
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": "pipeline",
    }
    options["security.protocol"] = settings.protocol
    if settings.username:
        options["sasl.mechanism"] = settings.sasl_mechanism
        options["sasl.username"] = settings.username
        options["sasl.password"] = str.__str__(settings.password or "")
    if settings.ca:
        options["ssl.ca.pem"] = settings.ca
    return options


def producer_options(settings: BrokerSettings, **overrides: Any) -> dict[str, Any]:
    """librdkafka options of a producer.

    ``overrides`` are spelt with underscores (``message_timeout_ms=0``); the raw mapping
    ``settings.producer`` wins over the defaults, and ``overrides`` win over both.
    """
    return {
        **connection_options(settings),
        **PRODUCER_DEFAULTS,
        **settings.producer,
        **{k.replace("_", "."): v for k, v in overrides.items()},
    }


def consumer_options(settings: BrokerSettings, **overrides: Any) -> dict[str, Any]:
    """librdkafka options of a consumer; precedence as in ``producer_options``."""
    return {
        **connection_options(settings),
        **CONSUMER_DEFAULTS,
        # Nothing is committed to it, but a broker with access rules lets each user look its own up only.
        "group.id": settings.username or "pipeline",
        **settings.consumer,
        **{k.replace("_", "."): v for k, v in overrides.items()},
    }


def admin_options(settings: BrokerSettings) -> dict[str, Any]:
    """librdkafka options of an admin client: address and credentials, raw ones included."""
    shared = ("sasl.", "ssl.", "security.", "bootstrap.", "socket.", "reconnect.", "broker.")
    raw = {k: v for k, v in settings.producer.items() if k.startswith(shared)}
    options = connection_options(settings)
    options.pop("statistics.interval.ms")
    return {**options, **raw}
