"""Users of the broker and what they may do: credentials and access rules, changed while it runs."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from pipeline.broker.client import kafka_error
from pipeline.broker.settings import BrokerSettings
from pipeline.broker.topics import AdminLink
from pipeline.secret import Secret

Kind = Literal["topic", "group", "transactional id"]
Operation = Literal["describe", "read", "write", "describe settings"]

_KINDS: dict[Kind, Any] = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS: dict[Operation, Any] = {
    "describe": AclOperation.DESCRIBE,
    "read": AclOperation.READ,
    "write": AclOperation.WRITE,
    "describe settings": AclOperation.DESCRIBE_CONFIGS,
}
_ITERATIONS = 8192
_ANY = cast(Any, None)  # what a filter leaves open; the stubs do not say so


@dataclass(frozen=True, order=True)
class Grant:
    """One thing that a user may do. Reading and writing include asking whether it is there.

    Attributes:
        kind: of what.
        name: its full name.
        operation: what may be done with it.
    """

    kind: Kind
    name: str
    operation: Operation


class BrokerAccess:
    """Changes users and rules, as a user who may.

    Every call waits until the broker has carried it out.

    Args:
        settings: the broker, with an administrator's user and password.
        timeout: seconds for each call.

    Raises (each method):
        BrokerUnreachableError, BrokerAuthenticationError, BrokerError: the broker did not answer or refused.
    """

    def __init__(self, settings: BrokerSettings, timeout: float = 10.0) -> None:
        self._link = AdminLink(settings)
        self._timeout = timeout
        self._link.metadata(timeout)  # says at once what is wrong
        self._client = cast(Any, self._link.client)  # the stubs leave the futures' type open

    def set_password(self, user: str, password: Secret) -> None:
        """Let a user in with this password, and with no other from now on."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        change = UserScramCredentialUpsertion(user, info, str.__str__(password).encode())
        self._wait(self._client.alter_user_scram_credentials([change]), f"setting the password of user {user}")

    def remove_user(self, user: str) -> None:
        """Let a user in no more. Its rules are another thing: :meth:`set_grants`."""
        change = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512)
        futures = self._client.alter_user_scram_credentials([change])
        self._wait(futures, f"removing user {user}", but=KafkaError.RESOURCE_NOT_FOUND)

    def grants(self, user: str) -> set[Grant]:
        """What a user may do; rules that this package does not make are left out."""
        found = self._link.result(
            self._client.describe_acls(_everything_of(user), request_timeout=self._timeout),
            self._timeout,
            "looking at the rules of",
            f"user {user}",
        )
        kinds: dict[Any, Kind] = {value: key for key, value in _KINDS.items()}
        operations: dict[Any, Operation] = {value: key for key, value in _OPERATIONS.items()}
        return {
            Grant(kinds[acl.restype], acl.name, operations[acl.operation])
            for acl in cast("Iterable[Any]", found)
            if acl.restype in kinds and acl.operation in operations
        }

    def add_grants(self, user: str, grants: Collection[Grant]) -> None:
        """Allow a user more; what it may do already does no harm."""
        if grants:
            rules = [_rule(user, grant) for grant in sorted(grants)]
            self._wait(
                self._client.create_acls(rules, request_timeout=self._timeout), f"allowing things to user {user}"
            )

    def remove_grants(self, user: str, grants: Collection[Grant] | None = None) -> None:
        """Allow a user these things no more; ``None``: nothing at all. Open connections feel it at once."""
        filters = [_everything_of(user)] if grants is None else [_exactly(user, grant) for grant in sorted(grants)]
        if filters:
            futures = self._client.delete_acls(filters, request_timeout=self._timeout)
            self._wait(futures, f"taking rights from user {user}")

    def _wait(self, futures: dict[Any, Any], doing: str, but: int | None = None) -> None:
        for future in futures.values():
            try:
                self._link.result(future, self._timeout, doing)
            except Exception as exc:
                cause = exc.__cause__
                inner = kafka_error(cause) if isinstance(cause, KafkaException) else None
                if but is None or inner is None or inner.code() != but:
                    raise


def _rule(user: str, grant: Grant) -> AclBinding:
    return AclBinding(
        _KINDS[grant.kind],
        grant.name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        _OPERATIONS[grant.operation],
        AclPermissionType.ALLOW,
    )


def _exactly(user: str, grant: Grant) -> AclBindingFilter:
    return AclBindingFilter(
        _KINDS[grant.kind],
        grant.name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        _ANY,
        _OPERATIONS[grant.operation],
        AclPermissionType.ALLOW,
    )


def _everything_of(user: str) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.ANY,
        _ANY,
        ResourcePatternType.ANY,
        f"User:{user}",
        _ANY,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
