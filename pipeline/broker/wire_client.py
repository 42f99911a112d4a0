"""A connection that speaks Kafka's protocol itself, for the few requests that librdkafka does not have.

Requests of the old, fixed encoding only. Authenticates by SCRAM-SHA-512 (RFC 5802) where there is a user.
"""

import base64
import hashlib
import hmac
import secrets
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from pipeline.broker.settings import BrokerSettings
from pipeline.errors import BrokerAuthenticationError, BrokerError, BrokerUnreachableError, ConfigError
from pipeline.tls import client_context, explain_tls

_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36
_MAX_ANSWER = 64 * 1024 * 1024
_MECHANISM = "SCRAM-SHA-512"


def text(value: str | None) -> bytes:
    """A string, or null, as Kafka writes it."""
    if value is None:
        return struct.pack(">h", -1)
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def array(items: Sequence[bytes]) -> bytes:
    """An array of encoded items."""
    return struct.pack(">i", len(items)) + b"".join(items)


class Answer:
    """The body of an answer, read from its beginning."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, form: str) -> int:
        """One integer, as ``struct`` spells it."""
        size = struct.calcsize(form)
        (value,) = struct.unpack(f">{form}", self._cut(size))
        return int(value)

    def text(self) -> str | None:
        """A string, or null."""
        size = self.take("h")
        return None if size < 0 else self._cut(size).decode(errors="replace")

    def data(self) -> bytes:
        """Bytes; null counts as none."""
        return self._cut(max(0, self.take("i")))

    def _cut(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) != size:
            raise BrokerError("the broker's answer is cut short")
        self._at += size
        return part


class WireClient:
    """One connection to the first broker that answers.

    Args:
        settings: the broker; its raw librdkafka settings do not count here.
        timeout: seconds, for each step.

    Raises:
        BrokerUnreachableError: nobody answers.
        BrokerAuthenticationError: user, password or certificate are refused.
    """

    def __init__(self, settings: BrokerSettings, timeout: float = 10.0) -> None:
        self._address = settings.address
        self._number = 0
        with ExitStack() as stack:
            self._socket = stack.enter_context(self._connected(settings, timeout))
            if settings.username:
                self._authenticate(settings.username, str.__str__(settings.password or ""))
            self._stack = stack.pop_all()

    def ask(self, key: int, version: int, body: bytes) -> Answer:
        """Send a request and wait for its answer.

        Args:
            key, version: of the request.
            body: encoded.

        Raises:
            BrokerUnreachableError: the connection broke.
        """
        self._number += 1
        head = struct.pack(">hhi", key, version, self._number) + text("pipeline")
        try:
            self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
            (size,) = struct.unpack(">i", self._read(4))
            if not 4 <= size <= _MAX_ANSWER:
                raise BrokerError(f"{self._address} does not answer as a Kafka broker does")
            answer = Answer(self._read(size))
        except OSError as exc:
            raise BrokerUnreachableError(f"the connection to the broker at {self._address} broke: {exc}") from exc
        if answer.take("i") != self._number:
            raise BrokerError(f"{self._address} answers another request than was made")
        return answer

    def close(self) -> None:
        """Disconnect. Closing twice is fine."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connected(self, settings: BrokerSettings, timeout: float) -> socket.socket:
        last: Exception | None = None
        for address in settings.bootstrap_servers.split(","):
            host, _, port = address.strip().rpartition(":")
            host = host.strip("[]")
            try:
                plain = socket.create_connection((host, int(port)), timeout)
            except ValueError as exc:
                raise ConfigError(f"the broker's address {address!r} is not host:port") from exc
            except OSError as exc:
                last = exc
                continue
            if not settings.tls:
                return plain
            try:
                return client_context(settings.ca).wrap_socket(plain, server_hostname=host)
            except (OSError, ValueError) as exc:
                plain.close()
                raise BrokerAuthenticationError(
                    f"no safe connection to the broker at {self._address}: {explain_tls(exc) or exc}"
                ) from exc
        raise BrokerUnreachableError(
            f"no broker answers at {self._address}: {last}; check the address and that the broker runs"
        ) from last

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionResetError("closed by the broker")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    # -- SCRAM --------------------------------------------------------------------------------------------------------

    def _authenticate(self, user: str, password: str) -> None:
        shaken = self.ask(_SASL_HANDSHAKE, 1, text(_MECHANISM))
        if shaken.take("h"):
            raise BrokerAuthenticationError(f"the broker at {self._address} does not take {_MECHANISM}")
        nonce = secrets.token_urlsafe(24)
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        first = f"n={escaped},r={nonce}"
        said = self._exchange(f"n,,{first}")
        fields = dict(part.split("=", 1) for part in said.split(","))
        if not fields.get("r", "").startswith(nonce):
            raise BrokerAuthenticationError(f"the broker at {self._address} answers with a nonce of its own")
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{first},{said},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac("sha512", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        client_key = _hmac(salted, b"Client Key")
        signature = _hmac(hashlib.sha512(client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        last = self._exchange(f"{without_proof},p={base64.b64encode(proof).decode()}")
        expected = base64.b64encode(_hmac(_hmac(salted, b"Server Key"), message)).decode()
        if not hmac.compare_digest(last, f"v={expected}"):
            raise BrokerAuthenticationError(f"who answers at {self._address} does not know the password itself")

    def _exchange(self, message: str) -> str:
        data = message.encode()
        answer = self.ask(_SASL_AUTHENTICATE, 0, struct.pack(">i", len(data)) + data)
        refused, why, said = answer.take("h"), answer.text(), answer.data()
        if refused:
            raise BrokerAuthenticationError(
                f"the broker at {self._address} refused user or password: {why}; check both: those of the secret file "
                "may have been replaced (`pipeline secrets rotate`) or taken back"
            )
        return said.decode(errors="replace")


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha512")
