"""In whose name a record was written: a code in its headers that only the named client can make.

Kafka tells a reader nothing of the user who wrote a record, and any client may write to the topics of experience. So a
client has a key, made of its name and of a key that only those who judge records have. Each of its records carries the
HMAC-SHA256 of its headers under it, and half of its session's name is one, too. An actor is called as its client is, or
``<client>/…``, so the name says which key is meant.

The code is over the headers alone: they hold all that a record is counted and paced by. What it says beside them is its
writer's word in any case.
"""

import hmac
import secrets
from dataclasses import replace

from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.experience.identity import new_session
from pipeline.secret import Secret
from pipeline.wire.headers import RecordHeaders

_SEPARATOR = "/"
_KEPT = 4096
_HALF = 16


def client_of(actor: str) -> str:
    """The client whose actor this is; an actor that nobody vouches for is its own client."""
    return actor.partition(_SEPARATOR)[0]


def client_key(actors_key: str, client: str) -> Secret:
    """A client's key, hexadecimal.

    Args:
        actors_key: hexadecimal.
        client: its name.

    Raises:
        ValueError: the key is not hexadecimal.
    """
    return Secret(_hmac(bytes.fromhex(actors_key), f"client {client}".encode()))


def key_mark(actors_key: str) -> str:
    """What tells this key from others, and nothing about it.

    Raises:
        ValueError: the key is not hexadecimal.
    """
    return _hmac(bytes.fromhex(actors_key), b"mark")[:_HALF]


class Signer:
    """Names and signs what one client sends.

    Args:
        client: its name; empty: nobody vouches for it, it is called as it likes, and its headers have no code.
        key: the client's, hexadecimal.

    Raises:
        ValueError: the key is not hexadecimal.
    """

    def __init__(self, client: str = "", key: str = "") -> None:
        self._client = client
        self._key = bytes.fromhex(key)

    def actor(self, name: str) -> str:
        """What an actor of the client is called.

        Args:
            name: tells it from the client's other actors; one that begins with the client's stays as it is.
        """
        if not self._client or client_of(name) == self._client:
            return name
        return f"{self._client}{_SEPARATOR}{name}"

    def new_session(self) -> str:
        """A new session's name, which other clients cannot use, though they may know it."""
        if not self._client:
            return new_session()
        number = secrets.token_hex(_HALF // 2)
        return number + _session_code(self._key, number)

    def sign(self, headers: RecordHeaders) -> RecordHeaders:
        """The headers with their code."""
        return replace(headers, code=_code(self._key, headers)) if self._client else headers


class Voucher:
    """Tells whether headers were written by the client that they name.

    Args:
        actors_key: hexadecimal.

    Raises:
        ValueError: the key is not hexadecimal.
    """

    def __init__(self, actors_key: str) -> None:
        bytes.fromhex(actors_key)
        self._actors_key = actors_key
        self._keys: dict[str, bytes] = {}
        self._sessions: set[tuple[str, str]] = set()

    def check(self, headers: RecordHeaders) -> None:
        """Refuse headers that are not their client's.

        Raises:
            InvalidRecordError: FORGED.
        """
        client = client_of(headers.actor)
        key = self._keys.get(client)
        if key is None:
            if len(self._keys) >= _KEPT:
                self._keys.clear()  # names cost their writer nothing
            key = self._keys[client] = bytes.fromhex(client_key(self._actors_key, client))
        if not hmac.compare_digest(_code(key, headers), headers.code):
            raise InvalidRecordError(
                RejectReason.FORGED, f"it is in the name of client {client!r}, whose key it was not signed with"
            )
        session = client, headers.session
        if session in self._sessions:
            return
        if not hmac.compare_digest(_session_code(key, headers.session[:_HALF]), headers.session[_HALF:]):
            raise InvalidRecordError(
                RejectReason.FORGED, f"client {client!r} uses a session that is not its own: {headers.session}"
            )
        if len(self._sessions) >= _KEPT:
            self._sessions.clear()
        self._sessions.add(session)


def _code(key: bytes, headers: RecordHeaders) -> str:
    return _hmac(key, headers.signed())


def _session_code(key: bytes, number: str) -> str:
    return _hmac(key, b"session " + number.encode())[:_HALF]


def _hmac(key: bytes, message: bytes) -> str:
    return hmac.digest(key, message, "sha256").hex()
