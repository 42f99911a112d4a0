"""The run's topics: their names, their settings, and making sure that the broker has them so."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from pipeline.broker.client import is_embedded, kafka_error, metadata, translate
from pipeline.broker.logs import NO_RIGHT, LinkMonitor, RateLimitedLog
from pipeline.broker.settings import BrokerSettings, admin_options, producer_options
from pipeline.errors import (
    BrokerAuthenticationError,
    BrokerUnreachableError,
    ConfigError,
    TopicMismatchError,
    UnknownTopicError,
)

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_SPARSE = (".runs", ".versions", ".telemetry")
_NO_ID = "A" * 22
_ORDERED = (".versions", ".commands")


def is_contiguous(topic: str) -> bool:
    """Whether every offset holds a record: not so where a topic is compacted or transactional."""
    return not topic.endswith(_SPARSE)


@dataclass(frozen=True)
class TopicSpec:
    """A topic as the run needs it.

    Attributes:
        name: the full name.
        partitions: how many.
        config: topic settings that have to hold; others are left as the broker has them.
    """

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Topics:
    """Names of a run's topics: ``<namespace>.<run>.<topic>``; the runs topic is the namespace's.

    Raises:
        ConfigError: namespace or run hold what a topic's name cannot: letters, digits, ``-`` and
            ``_`` are allowed, and dots in the namespace.
    """

    namespace: str
    run: str

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("namespace", self.namespace, _LEGAL | {"."}),
            ("run", self.run, _LEGAL),
        ):
            if not value or len(value) > 100 or not set(value) <= allowed:
                raise ConfigError(
                    f"{name}={value!r} cannot be part of a topic's name; use 1 to 100 letters, digits, '-' and '_'"
                )

    @property
    def runs(self) -> str:
        """Run manifests, compacted."""
        return runs_topic(self.namespace)

    @property
    def samples(self) -> str:
        """Chunks of transitions."""
        return self._name("samples")

    @property
    def episodes(self) -> str:
        """Episode summaries."""
        return self._name("episodes")

    @property
    def versions(self) -> str:
        """Published model versions and epoch claims; partition 0 only."""
        return self._name("versions")

    @property
    def commands(self) -> str:
        """Orders to the learner; partition 0 only."""
        return self._name("commands")

    @property
    def heartbeats(self) -> str:
        """Signs of life of actors. Every client may write here, so nobody but the learner acts on what it says."""
        return self._name("heartbeats")

    @property
    def progress(self) -> str:
        """The learner's signs of life, which pace the clients and tell what became of commands; its alone to write."""
        return self._name("progress")

    @property
    def telemetry(self) -> str:
        """Windowed statistics."""
        return self._name("telemetry")

    @property
    def dead_letters(self) -> str:
        """What was refused, and why."""
        return self._name("dead-letters")

    def _name(self, topic: str) -> str:
        return f"{self.namespace}.{self.run}.{topic}"

    def specs(
        self,
        partitions: int = 4,
        retention_ms: int = 7 * _DAY_MS,
        retention_bytes: int = -1,
        max_message_bytes: int = 2 * 1024 * 1024,
        dead_letter_bytes: int = 64 * 1024 * 1024,
    ) -> tuple[TopicSpec, ...]:
        """All topics of the run.

        Args:
            partitions: of samples and episodes; all others have one.
            retention_ms: how long samples and episodes are kept.
            retention_bytes: per partition of samples; −1: unbounded.
            max_message_bytes: bound of one batch of samples, which is stored uncompressed.
            dead_letter_bytes: how much of the dead letters is kept, and a quarter more.
        """
        log_time = {"message.timestamp.type": "LogAppendTime"}
        # max.message.bytes bounds a batch as it is sent: 2 MiB of gzip may be 2 GiB for every reader, for ever. Stored
        # as it is, it is bounded as it is; the broker refuses what is then too large, and only its sender notices.
        plain = {**log_time, "compression.type": "uncompressed"}
        kept = {**plain, "cleanup.policy": "delete", "retention.ms": str(retention_ms)}
        forever = {
            **log_time,
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
        }
        days = {**log_time, "cleanup.policy": "delete", "retention.ms": str(7 * _DAY_MS)}
        hours = {**plain, "cleanup.policy": "delete", "retention.ms": str(6 * _HOUR_MS)}
        bounded = {
            "retention.bytes": str(retention_bytes),
            "max.message.bytes": str(max_message_bytes),
        }
        # Kafka forgets whole segments only, and takes none below 1 MiB.
        letters = {
            "retention.bytes": str(dead_letter_bytes),
            "segment.bytes": str(max(1 << 20, dead_letter_bytes // 4)),
        }
        return (
            TopicSpec(self.runs, 1, {**log_time, "cleanup.policy": "compact"}),
            TopicSpec(self.samples, partitions, {**kept, **bounded}),
            TopicSpec(self.episodes, partitions, kept),
            TopicSpec(self.versions, 1, forever),
            TopicSpec(self.commands, 1, days),
            TopicSpec(self.heartbeats, 1, hours),
            TopicSpec(self.progress, 1, hours),
            TopicSpec(self.telemetry, 1, forever),
            TopicSpec(self.dead_letters, 1, {**days, **letters}),
        )


def runs_topic(namespace: str) -> str:
    """The namespace's topic of run manifests."""
    return f"{namespace}.runs"


def specs(topics: Topics, **settings: int) -> tuple[TopicSpec, ...]:
    """All topics of a run: ``topics.specs(...)``."""
    return topics.specs(**settings)


def fixed_partition(topic: str) -> int | None:
    """0 for a topic whose records have one order, wherever the embedded cluster made it wider."""
    return 0 if topic.endswith(_ORDERED) else None


class AdminLink:
    """An admin client with the link monitor that explains its silence."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.address = settings.address
        self.monitor = LinkMonitor(settings)
        options: dict[str, Any] = {
            **admin_options(settings),
            "error_cb": self.monitor.on_error,
        }
        try:
            self.client = AdminClient(options, logger=RateLimitedLog())
        except KafkaException as exc:
            raise translate(exc, self.address, doing="starting an admin client") from exc

    def metadata(self, timeout: float) -> Any:
        """Cluster metadata, waited for.

        Raises:
            BrokerUnreachableError, BrokerAuthenticationError: the broker did not answer or refused.
        """
        return metadata(self.client, self.monitor, self.address, timeout, doing="looking at the topics")

    def result(self, future: Any, timeout: float, doing: str, topic: str | None = None) -> Any:
        """What a request came to, waited for.

        Raises:
            BrokerError: it was refused, or not answered in time.
        """
        try:
            return future.result(timeout)
        except KafkaException as exc:
            raise translate(exc, self.address, doing=doing, topic=topic) from exc
        except TimeoutError as exc:
            raise BrokerUnreachableError(
                f"{self.address} did not answer within {timeout:.1f} s while {doing} {topic or ''}".rstrip()
            ) from exc


def ensure_topics(
    settings: BrokerSettings,
    specs: Sequence[TopicSpec],
    timeout: float = 30.0,
    replication: int = -1,
) -> list[str]:
    """Create what is missing, check what is there; the names of the created topics.

    Safe to call from several processes at once. The embedded cluster cannot create topics by
    request and knows no settings: there they appear by being asked for, with its 4 partitions.

    Args:
        replication: replication factor of created topics; −1: the broker's default.

    Raises:
        TopicMismatchError: a topic exists with other settings; nothing of it was changed.
        BrokerUnreachableError, BrokerAuthenticationError: the broker did not answer or refused.
    """
    deadline = time.monotonic() + timeout
    admin = AdminLink(settings)
    found = admin.metadata(timeout)
    existing = set(cast(dict[str, Any], found.topics))
    missing = [spec for spec in specs if spec.name not in existing]
    if is_embedded(found):
        _touch(settings, missing, max(1.0, deadline - time.monotonic()))
        return [spec.name for spec in missing]
    created: list[str] = []
    if missing:
        new = [NewTopic(spec.name, spec.partitions, replication, config=dict(spec.config)) for spec in missing]
        left = max(1.0, deadline - time.monotonic())
        futures: dict[str, Any] = cast(Any, admin.client).create_topics(new, request_timeout=left)
        for name, future in futures.items():
            try:
                future.result(left)
                created.append(name)
            except KafkaException as exc:
                inner = kafka_error(exc)
                if inner is not None and inner.code() in NO_RIGHT:
                    raise BrokerAuthenticationError(
                        f"topic {name} does not exist at {admin.address} or this user may not see it, and it may not "
                        "make it; have it made, and the right given, with `pipeline secrets apply run=NAME`"
                    ) from exc
                if inner is None or inner.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise translate(exc, admin.address, doing="creating", topic=name) from exc
    _wait_until_led(admin, specs, deadline)
    problems = _problems(admin, specs, max(1.0, deadline - time.monotonic()))
    if problems:
        raise TopicMismatchError(
            f"topics at {settings.address} differ from what the run needs: "
            + "; ".join(problems)
            + "; change them with kafka-configs, or start a run of another name"
        )
    return created


def check_topics(settings: BrokerSettings, specs: Sequence[TopicSpec], timeout: float = 10.0) -> list[str]:
    """What is missing or differs, a sentence each; empty when all is right. Changes nothing.

    Raises:
        BrokerUnreachableError, BrokerAuthenticationError: the broker did not answer or refused.
    """
    deadline = time.monotonic() + timeout
    admin = AdminLink(settings)
    found = admin.metadata(timeout)
    existing = set(cast(dict[str, Any], found.topics))
    missing = [f"{spec.name} does not exist" for spec in specs if spec.name not in existing]
    if is_embedded(found):
        return missing
    there = [spec for spec in specs if spec.name in existing]
    return missing + _problems(admin, there, max(1.0, deadline - time.monotonic()))


def topic_id(settings: BrokerSettings, topic: str, timeout: float = 10.0) -> str:
    """Kafka's own id of a topic: another topic of the same name, made after this was deleted, has another.

    Returns:
        22 characters, or "" where the broker has no ids (the embedded cluster, Kafka before 3.1).

    Raises:
        UnknownTopicError: the topic does not exist.
        BrokerUnreachableError, BrokerAuthenticationError: the broker did not answer or refused.
    """
    deadline = time.monotonic() + timeout
    admin = AdminLink(settings)
    found = admin.metadata(timeout)
    if topic not in cast(dict[str, Any], found.topics):
        raise UnknownTopicError(f"topic {topic} does not exist at {settings.address}; a run's topics come and go whole")
    if is_embedded(found):
        return ""
    left = max(1.0, deadline - time.monotonic())
    client = cast(Any, admin.client)  # the stubs leave the futures' type open
    futures: dict[str, Any] = client.describe_topics(TopicCollection([topic]), request_timeout=left)
    found_id = str(admin.result(futures[topic], left, "describing topic", topic).topic_id)
    return "" if found_id == _NO_ID else found_id


def _touch(settings: BrokerSettings, specs: Sequence[TopicSpec], timeout: float) -> None:
    monitor = LinkMonitor(settings)
    options = producer_options(settings, **{"allow.auto.create.topics": True})
    options["error_cb"] = monitor.on_error
    producer = confluent_kafka.Producer(options, logger=RateLimitedLog())
    for spec in specs:
        metadata(producer, monitor, settings.address, timeout, spec.name, doing="making topics")


def _wait_until_led(admin: AdminLink, specs: Sequence[TopicSpec], deadline: float) -> None:
    """A created topic takes a moment until its partitions have leaders."""
    wanted = {spec.name for spec in specs}
    while True:
        found = cast(dict[str, Any], admin.metadata(max(0.5, deadline - time.monotonic())).topics)
        led = {
            name
            for name in wanted & set(found)
            if found[name].error is None
            and found[name].partitions
            and all(p.leader >= 0 for p in found[name].partitions.values())
        }
        if led == wanted:
            return
        if time.monotonic() >= deadline:
            raise BrokerUnreachableError(
                f"{admin.address} has no leader yet for {', '.join(sorted(wanted - led))}; "
                "check that enough brokers run for the replication factor"
            )
        admin.client.poll(0.05)


def _problems(admin: AdminLink, specs: Sequence[TopicSpec], timeout: float) -> list[str]:
    found = cast(dict[str, Any], admin.metadata(timeout).topics)
    resources = {spec.name: ConfigResource(ResourceType.TOPIC, spec.name) for spec in specs}
    if not resources:
        return []
    client = cast(Any, admin.client)  # the stubs leave the futures' type open
    futures: dict[ConfigResource, Any] = client.describe_configs(list(resources.values()), request_timeout=timeout)
    by_name = {resource.name: future for resource, future in futures.items()}
    problems: list[str] = []
    for spec in specs:
        if spec.name not in found:
            problems.append(f"{spec.name} does not exist")
            continue
        partitions = len(found[spec.name].partitions)
        if partitions != spec.partitions:
            problems.append(f"{spec.name} has {partitions} partitions, not {spec.partitions}")
        entries = admin.result(by_name[spec.name], timeout, "reading the settings of a topic", spec.name)
        for key, wanted in spec.config.items():
            actual = entries[key].value if key in entries else None
            if actual != wanted:
                problems.append(f"{spec.name} has {key}={actual}, not {wanted}")
    return problems
