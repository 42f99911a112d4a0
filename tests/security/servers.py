"""TLS servers that show one certificate and say nothing."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

from pipeline.secrets.certificates import Certificate


@contextlib.contextmanager
def showing(pair: Certificate, folder: Path) -> Iterator[str]:
    """A server on loopback with this certificate; its ``host:port``."""
    path = folder / "server.pem"
    path.write_text(pair.key + pair.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with contextlib.suppress(OSError):
                    connection.settimeout(5.0)
                    context.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10.0)
