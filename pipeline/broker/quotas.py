"""How much a user may ask of the broker: beyond it, its answers come later, and nobody else's do.

librdkafka has no such request.
"""

import struct
from dataclasses import astuple, dataclass

from pipeline.broker.settings import BrokerSettings
from pipeline.broker.wire_client import WireClient, array, text
from pipeline.errors import BrokerError

_ALTER_CLIENT_QUOTAS = 49
_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


@dataclass(frozen=True)
class Quota:
    """Bounds for one user, over all of its connections to one broker.

    Attributes:
        write: bytes a second.
        read: bytes a second.
        requests: percent of one of the broker's threads.
    """

    write: float
    read: float
    requests: float


def set_quota(settings: BrokerSettings, user: str, quota: Quota | None, timeout: float = 10.0) -> None:
    """Bound what a user asks; ``None``: no longer.

    Raises:
        BrokerUnreachableError, BrokerAuthenticationError, BrokerError: the broker did not answer or refused.
    """
    values = astuple(quota) if quota is not None else (0.0,) * len(_KEYS)
    entity = array([text("user") + text(user)])
    operations = [
        text(key) + struct.pack(">d?", value, quota is None) for key, value in zip(_KEYS, values, strict=True)
    ]
    with WireClient(settings, timeout) as client:
        answer = client.ask(_ALTER_CLIENT_QUOTAS, 0, array([entity + array(operations)]) + struct.pack(">?", False))
    answer.take("i")  # how long the broker makes this user itself wait
    for _ in range(answer.take("i")):
        refused, why = answer.take("h"), answer.text()
        if refused:
            raise BrokerError(f"{settings.address} did not set the quota of user {user}: {why or f'error {refused}'}")
        for _ in range(answer.take("i")):
            answer.text()
            answer.text()
