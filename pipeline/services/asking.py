"""Readiness by asking the service: one metadata request to a broker, one request to a store."""

import http.client
import socket
import ssl
import struct
from contextlib import ExitStack

HOST = "127.0.0.1"
_METADATA, _METADATA_VERSION = 3, 1
_ASK_SECONDS = 2.0


def free_port(preferred: int | None = None) -> int:
    """A TCP port of loopback that nobody listens on: ``preferred`` where it is free."""
    for port in (preferred, 0):
        if port is None:
            continue
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((HOST, port))
            except OSError:
                continue
            return int(listener.getsockname()[1])
    raise OSError(f"{HOST} has no free port.")


def broker_answers(address: str, context: ssl.SSLContext | None = None) -> bool:
    """Whether a Kafka broker answers a metadata request and names itself among the live brokers.

    Args:
        address: ``host:port`` of a listener that asks for no password.
        context: for a listener with TLS, with the certificate that it asks for.
    """
    host, _, port = address.rpartition(":")
    # Header: key, version, correlation id, no client id. Body: an array of no topics (version 1:
    # none, not all).
    request = struct.pack(">hhihi", _METADATA, _METADATA_VERSION, 1, -1, 0)
    try:
        with ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host, int(port)), _ASK_SECONDS))
            if context is not None:
                connection = stack.enter_context(context.wrap_socket(connection, server_hostname=host))
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.makefile("rb").read(12)
    except OSError:
        return False
    # Length, correlation id, number of live brokers; a starting or fenced broker names none.
    return len(answer) == 12 and struct.unpack(">iii", answer)[2] > 0


def http_answers(address: str, path: str, context: ssl.SSLContext | None = None) -> bool:
    """Whether an HTTP server answers ``GET path`` with 200.

    Args:
        address: ``host:port``.
        path: what is asked for.
        context: for a server with TLS.
    """
    connection = http.client.HTTPConnection(address, timeout=_ASK_SECONDS)
    if context is not None:
        connection = http.client.HTTPSConnection(address, timeout=_ASK_SECONDS, context=context)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
