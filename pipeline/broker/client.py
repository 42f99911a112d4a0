"""What producer, reader and topics share: building a client and asking it for metadata."""

import time
from typing import Any, Protocol, cast

from confluent_kafka import KafkaError, KafkaException

from pipeline.broker.logs import UNREACHABLE, LinkMonitor, explain, refuses
from pipeline.errors import BrokerUnreachableError, ConfigError, PipelineError

EMBEDDED_PREFIX = "mockCluster"


class MetadataClient(Protocol):
    """Producer, consumer and admin client all answer this."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Cluster metadata."""
        ...

    def poll(self, timeout: float = -1) -> Any:
        """Serve callbacks."""
        ...


def kafka_error(error: BaseException) -> KafkaError | None:
    """The ``KafkaError`` inside a ``KafkaException``."""
    first: object = error.args[0] if error.args else None
    return first if isinstance(first, KafkaError) else None


def translate(error: KafkaException, address: str, *, doing: str, topic: str | None = None) -> PipelineError:
    """The package's error for a ``KafkaException``."""
    inner = kafka_error(error)
    if inner is None:
        return ConfigError(f"librdkafka refuses its settings for {address}: {error}")
    return explain(inner, address, doing=doing, topic=topic)


def metadata(
    client: MetadataClient,
    monitor: LinkMonitor,
    address: str,
    timeout: float,
    topic: str | None = None,
    *,
    doing: str = "asking for metadata",
) -> Any:
    """Cluster metadata, asked for until it comes or ``timeout`` seconds have passed.

    Raises:
        BrokerUnreachableError: nobody answered in time.
        BrokerAuthenticationError: at once, when the credentials are refused.
    """
    deadline = time.monotonic() + timeout
    while True:
        left = max(0.05, deadline - time.monotonic())
        try:
            found = client.list_topics(topic, timeout=min(left, 0.5))
        except KafkaException as exc:
            client.poll(0)  # serves error_cb, which knows the reason
            cause = monitor.trouble
            if refuses(cause):
                raise explain(cause, address, doing=doing, topic=topic) from exc
            inner = kafka_error(exc)
            transient = inner is not None and (
                inner.code() in UNREACHABLE or inner.code() in (KafkaError._TIMED_OUT, KafkaError._WAIT_COORD)
            )
            if not transient:
                raise translate(exc, address, doing=doing, topic=topic) from exc
            if time.monotonic() >= deadline:
                reason = cause.str() if cause is not None else "no answer"
                raise BrokerUnreachableError(
                    f"no broker answers at {address} (waited {timeout:.1f} s while {doing}): "
                    f"{reason}; check the address and that the broker runs"
                ) from exc
            client.poll(0.05)
        else:
            return found


def is_embedded(found: Any) -> bool:
    """Whether this metadata is of librdkafka's in-process cluster."""
    return str(cast(object, found.cluster_id) or "").startswith(EMBEDDED_PREFIX)
