"""What librdkafka says, made readable: rate-limited lines, and one sentence per trouble.

Without a broker librdkafka repeats itself every 50 ms, and a wrong password shows only as
deliveries that time out. So its log lines go through a rate limit to the logger
``pipeline.broker.librdkafka``, and a ``LinkMonitor`` turns its error and statistics callbacks into
"down, because …" and "up again", each said once.
"""

import json
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

from confluent_kafka import KafkaError

from pipeline.broker.settings import BrokerSettings
from pipeline.errors import (
    BrokerAuthenticationError,
    BrokerError,
    BrokerUnreachableError,
    ConfigError,
    DeliveryError,
    FencedError,
    PipelineError,
    QueueFullError,
    UnknownTopicError,
)
from pipeline.tls import diagnose_tls

logger = logging.getLogger("pipeline.broker")

AUTHENTICATION = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)
"""The connection itself is refused."""
NO_RIGHT = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""The user is known, and may not do this."""
UNREACHABLE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
    }
)
UNKNOWN_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
TIMED_OUT = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
    }
)
PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
"""Given up by this process itself, as when a transaction is aborted."""
FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
CONFIG = frozenset({KafkaError._INVALID_ARG, KafkaError._CONFLICT})
_NOISE = re.compile(r"^\w+://\S+: | \(after \d+ms in state [^)]*\)")
"""What librdkafka puts around a reason: which of its connections it was, and how long that took."""


def refuses(error: KafkaError | None) -> TypeGuard[KafkaError]:
    """Whether the broker refuses this connection, so that to try again is of no use.

    librdkafka gives a handshake that nobody answered, as of a busy broker, the same code as one that was refused.
    """
    return error is not None and error.code() in AUTHENTICATION and "timed out" not in error.str().lower()


def explain(
    error: KafkaError, address: str, *, doing: str = "talking to Kafka", topic: str | None = None
) -> PipelineError:
    """The package's error for a librdkafka error, with what happened, where and what to do."""
    code, said = error.code(), _NOISE.sub("", error.str())
    named = f" (topic {topic})" if topic else ""
    if code == KafkaError._SSL:
        return BrokerAuthenticationError(f"no safe connection to the broker at {address} while {doing}{named}: {said}")
    if refuses(error):
        return BrokerAuthenticationError(
            f"the broker at {address} refused {doing}{named}: {said}; check user and password: those of the "
            "secret file may have been replaced (`pipeline secrets rotate`) or taken back"
        )
    if code in AUTHENTICATION:
        return BrokerUnreachableError(
            f"the broker at {address} did not end the handshake in time while {doing}{named}: {said}; it may be busy "
            "or just starting: try again, or give it longer by kafka.timeout_s"
        )
    if code in NO_RIGHT:
        return BrokerAuthenticationError(
            f"the broker at {address} does not allow {doing}{named}: {said}; have this user given the right, by "
            "`pipeline secrets apply run=NAME` for a role, by `pipeline secrets client USER run=NAME` for a client"
        )
    if code in UNREACHABLE:
        return BrokerUnreachableError(
            f"no broker answers at {address} while {doing}{named}: {said}; check the address and that the broker runs"
        )
    if code in UNKNOWN_TOPIC:
        return UnknownTopicError(
            f"topic {topic or '?'} does not exist at {address} while {doing}: {said}; "
            "create the topics with `pipeline topics` or start the learner"
        )
    if code == KafkaError._QUEUE_FULL:
        return QueueFullError(
            f"the producer's queue to {address} is full while {doing}{named}; "
            "poll and try again, or raise kafka.producer.queue.buffering.max.kbytes"
        )
    if code in TIMED_OUT:
        return DeliveryError(
            f"{address} did not answer in time while {doing}{named}: {said}; "
            "whether the log holds the record is unknown"
        )
    if code in CONFIG:
        return ConfigError(f"librdkafka refuses its settings: {said}")
    if code in FENCED:
        return FencedError(
            f"another process has taken over the transactional id of this one at {address}, seen while "
            f"{doing}{named}: {said}; this one stops"
        )
    if code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return BrokerError(
            f"a record is larger than {address} takes{named}: {said}; cut it smaller or raise "
            "max.message.bytes of the topic and kafka.producer.message.max.bytes"
        )
    return BrokerError(f"{error.name()} from {address} while {doing}{named}: {said}")


class RateLimitedLog:
    """The ``logger`` that librdkafka is given: each kind of line at most once in ``interval``.

    Two lines are of one kind when they differ in figures only. Failures of connections and of
    transactions come out at INFO, since the ``LinkMonitor`` and the raised error say them better.
    """

    CONNECTION = ("FAIL", "ERROR", "CONNFAIL", "PROTOERR", "MOCK", "GETPID", "REQTMOUT", "TERM")
    TRANSACTION = ("ADDPARTS", "ENDTXN", "TXNERR", "FATAL")

    def __init__(self, interval: float = 60.0, target: logging.Logger | None = None) -> None:
        self._interval = interval
        self._target = target or logging.getLogger("pipeline.broker.librdkafka")
        self._seen: dict[str, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def log(self, level: int, message: str, *args: Any) -> None:
        """Called by confluent_kafka with a format string and its arguments."""
        text = str(message) % args if args else str(message)
        if level > logging.INFO and any(f"{name} [" in text for name in self.CONNECTION + self.TRANSACTION):
            level = logging.INFO
        if not self._target.isEnabledFor(level):
            return
        kind = re.sub(r"[0-9]+", "#", text)
        now = time.monotonic()
        with self._lock:
            last, dropped = self._seen.get(kind, (float("-inf"), 0))
            if now - last < self._interval:
                self._seen[kind] = (last, dropped + 1)
                return
            if len(self._seen) > 256:
                self._seen.clear()
            self._seen[kind] = (now, 0)
        suffix = f" (and {dropped} more like it)" if dropped else ""
        self._target.log(level, "%s%s", text, suffix)


@dataclass(frozen=True)
class LinkState:
    """The link to the broker went down or came up again.

    Attributes:
        up: whether a broker answers now.
        address: the configured address.
        sentence: one sentence for people, naming the address.
        error: why it is down (``None`` when up).
    """

    up: bool
    address: str
    sentence: str
    error: PipelineError | None = None


class LinkMonitor:
    """Turns librdkafka's callbacks into changes of the link's state, each told once.

    A link counts as up until proved otherwise. It is down when librdkafka says that all brokers are
    down and the next statistics agree (a connection that the broker closed for idleness is back
    before that), or at once when no connection was ever made or the credentials were refused. It
    is up again when a broker connection is ``UP`` in the statistics, or a record went through.
    """

    def __init__(self, settings: BrokerSettings, on_link: Callable[[LinkState], None] | None = None) -> None:
        self._address = settings.address
        self._ca = settings.ca
        self._diagnosis: KafkaError | None = None
        self._on_link = on_link
        self._lock = threading.Lock()
        self._up = True
        self._ever_up = False
        self._all_down = False
        self._trouble: KafkaError | None = None
        self._told: set[tuple[int, str]] = set()

    @property
    def up(self) -> bool:
        """Whether the link is believed to be up."""
        return self._up

    @property
    def trouble(self) -> KafkaError | None:
        """What librdkafka last complained about, while it matters."""
        return self._trouble

    def on_error(self, error: KafkaError) -> None:
        """librdkafka's ``error_cb``."""
        code = error.code()
        if refuses(error):
            self._trouble = self._diagnosed(error) if code == KafkaError._SSL else error
            self._set(up=False)
        elif code in UNREACHABLE | AUTHENTICATION:
            # The generic "all brokers are down" and a plain refusal that follows a refused password
            # would hide the cause.
            if not refuses(self._trouble) and (code != KafkaError._ALL_BROKERS_DOWN or self._trouble is None):
                self._trouble = error
            if code in (KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE):
                self._all_down = True
                if not self._ever_up:
                    self._set(up=False)
        else:
            self.say_once(error)

    def on_stats(self, text: str) -> None:
        """librdkafka's ``stats_cb``: the connections' states decide."""
        brokers = cast(dict[str, dict[str, Any]], json.loads(text).get("brokers", {}))
        if any(broker.get("state") == "UP" for broker in brokers.values()):
            self.worked()
        elif self._all_down or self._trouble is not None:
            self._set(up=False)

    def worked(self) -> None:
        """A record went through, so the link is up."""
        self._ever_up = True
        self._all_down = False
        self._trouble = self._diagnosis = None
        if not self._up:
            self._set(up=True)

    def say_once(self, error: KafkaError, topic: str | None = None) -> None:
        """Log an error that is not about the link, once for each code and topic."""
        kind = (error.code(), topic or "")
        with self._lock:
            if kind in self._told or len(self._told) > 256:
                return
            self._told.add(kind)
        logger.warning("%s", explain(error, self._address, topic=topic))

    def _diagnosed(self, error: KafkaError) -> KafkaError:
        """With the reason that librdkafka does not tell; asked for once, since it repeats the error with each try."""
        if self._diagnosis is None:
            found = diagnose_tls(self._address.split(",")[0].strip(), self._ca)
            self._diagnosis = KafkaError(KafkaError._SSL, found) if found is not None else error
        return self._diagnosis

    def _set(self, *, up: bool) -> None:
        with self._lock:
            if up == self._up:
                return
            self._up = up
        if up:
            state = LinkState(True, self._address, f"the broker at {self._address} answers again")
            logger.info("%s", state.sentence)
        else:
            cause = explain(self._trouble, self._address) if self._trouble else None
            sentence = str(cause) if cause else f"no broker answers at {self._address}"
            state = LinkState(False, self._address, sentence, cause)
            logger.warning("%s", sentence)
        if self._on_link is not None:
            self._on_link(state)
