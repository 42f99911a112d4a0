"""TLS with an authority of one's own, and what is wrong with it in words."""

import socket
import ssl

_UNKNOWN_CA = frozenset({2, 18, 19, 20, 21, 24})
"""OpenSSL's codes for a chain that ends at nobody who is trusted."""
_NOT_YET, _EXPIRED, _OTHER_HOST, _OTHER_IP = 9, 10, 62, 64


def client_context(ca: str = "") -> ssl.SSLContext:
    """What a client checks a server with.

    Args:
        ca: PEM of the only authorities that are trusted; empty: the system's.

    Raises:
        ValueError: the text holds no certificate.
    """
    try:
        return ssl.create_default_context(cadata=ca or None)
    except ssl.SSLError as error:
        raise ValueError("the certificate authority is no PEM certificate") from error


def explain_tls(error: BaseException) -> str | None:
    """What is wrong and what to do, as a clause; None where TLS has no part in the error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _explain_certificate(error)
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_EOF_WHILE_READING"):
            return "it does not speak TLS there; check the port, or leave TLS off"
        return f"the TLS handshake failed ({error.reason or error})"
    return None


def diagnose_tls(address: str, ca: str, timeout: float = 2.0) -> str | None:
    """Shake hands once to see what is wrong, as a clause; None where it works, or nobody answers.

    Args:
        address: ``host:port``.
        ca: as for :func:`client_context`.
        timeout: seconds, for connecting and for shaking hands.
    """
    host, _, port = address.rpartition(":")
    try:
        context = client_context(ca)
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout) as plain,
            context.wrap_socket(plain, server_hostname=host.strip("[]")),
        ):
            return None
    except (OSError, ValueError) as error:
        return explain_tls(error)


def _explain_certificate(error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code in _UNKNOWN_CA:
        return (
            "its certificate is of an authority that this one does not know; use the secret file (or CA) of this very "
            "server: was it set up anew since the file was made?"
        )
    if code == _EXPIRED:
        return "its certificate has expired; make a new one with `pipeline secrets init` and restart that server"
    if code == _NOT_YET:
        return "its certificate is not valid yet: one of the two clocks is wrong; set it"
    if code in (_OTHER_HOST, _OTHER_IP):
        return (
            "its certificate is not for this name; reach it by a name that it has, or add this one to "
            "secrets.broker_hosts or secrets.store_hosts, run `pipeline secrets init` and restart that server"
        )
    return f"its certificate is refused ({error.verify_message})"
