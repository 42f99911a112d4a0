"""Record headers of a chunk: enough to judge it before it is decoded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.experience.identity import Identity
from pipeline.experience.version import Version

_ACTOR = re.compile(r"[\x21-\x7e]{1,128}")
_RUN = re.compile(r"[\x21-\x7e]{1,128}")
_SESSION = re.compile(r"[0-9a-f]{32}")
_SCHEMA = re.compile(r"[0-9a-f]{16}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_CODE = re.compile(r"[0-9a-f]{64}|")
_NAMES = ("run", "actor", "session", "sequence", "version", "schema", "count")
_ALL = (*_NAMES, "code")
_MAX_HEADERS = 64


@dataclass(frozen=True)
class RecordHeaders:
    """The headers of a record on the samples topic; all values are ASCII text on the wire.

    Attributes:
        run: the run's name, 1 to 128 printable characters without spaces.
        actor: the actor's name, same rule.
        session: 32 lower-case hexadecimal characters.
        sequence: number of the chunk within the session, below 10^18.
        version: the version that acted in the chunk.
        schema: fingerprint of the writer's schema, 16 lower-case hexadecimal characters.
        count: number of transitions in the chunk.
        code: vouches for the others, see ``vouching``; empty where nobody does.
    """

    run: str
    actor: str
    session: str
    sequence: int
    version: Version
    schema: str
    count: int
    code: str = ""

    @property
    def identity(self) -> Identity:
        """What duplicates are removed by."""
        return Identity(self.actor, self.session, self.sequence)

    def to_kafka(self) -> list[tuple[str, bytes]]:
        """The headers as Kafka takes them."""
        headers = [(name, str(getattr(self, name)).encode("ascii")) for name in _NAMES]
        return [*headers, ("code", self.code.encode("ascii"))] if self.code else headers

    def signed(self) -> bytes:
        """What the code is made of: all the others. No value can hold the separator."""
        fields = (
            f"{self.run}\n{self.actor}\n{self.session}\n{self.sequence}\n{self.version}\n{self.schema}\n{self.count}"
        )
        return fields.encode("ascii")

    @staticmethod
    def from_kafka(headers: Sequence[tuple[str, bytes | None]] | None) -> RecordHeaders:
        """Read headers strictly; headers of other names are passed over.

        Raises:
            InvalidRecordError: BAD_HEADERS, one is missing, said twice or malformed.
        """
        if headers is None or len(headers) > _MAX_HEADERS:
            count = "no" if headers is None else str(len(headers))
            raise _bad(f"{count} headers; expected {', '.join(_NAMES)}")
        values: dict[str, str] = {}
        for name, value in headers:
            if name not in _ALL:
                continue
            if name in values or value is None or len(value) > 128:
                raise _bad(f"header {name!r} is said twice, empty, or longer than 128 bytes")
            try:
                values[name] = bytes(value).decode("ascii")
            except UnicodeDecodeError as error:
                raise _bad(f"header {name!r} is not ASCII") from error
        try:
            version = Version.parse(values.get("version", ""))
        except ValueError as error:
            raise _bad(f"header 'version': {error}") from error
        return RecordHeaders(
            run=_match(values, "run", _RUN),
            actor=_match(values, "actor", _ACTOR),
            session=_match(values, "session", _SESSION),
            sequence=int(_match(values, "sequence", _NUMBER)),
            version=version,
            schema=_match(values, "schema", _SCHEMA),
            count=int(_match(values, "count", _NUMBER)),
            code=_match({"code": "", **values}, "code", _CODE),
        )


def is_identity(actor: object, session: object) -> bool:
    """Whether these can be an actor and its session, as record headers carry them."""
    return (
        isinstance(actor, str)
        and isinstance(session, str)
        and _ACTOR.fullmatch(actor) is not None
        and _SESSION.fullmatch(session) is not None
    )


def _match(values: dict[str, str], name: str, pattern: re.Pattern[str]) -> str:
    value = values.get(name)
    if value is None:
        raise _bad(f"header {name!r} is missing")
    if pattern.fullmatch(value) is None:
        raise _bad(f"header {name!r} is {value[:64]!r}, which it may not be")
    return value


def _bad(detail: str) -> InvalidRecordError:
    return InvalidRecordError(RejectReason.BAD_HEADERS, detail)
