"""Where a folder's services are, for whoever wants to use them."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

ASK_SECONDS = 0.05


@dataclass(frozen=True)
class Addresses:
    """Where the services are: what ``services.json`` holds.

    Attributes:
        kind: embedded or local.
        pid: the supervising process.
        bootstrap_servers: the broker, ``host:port``.
        endpoint: the store, ``host:port``.
        access_key: the store's user, made anew at every start; empty with a folder of secrets.
        secret_key: the store's password; not shown in ``repr``.
        secrets: the folder of secrets, without one of whose files nobody is let in; empty: everybody is, without TLS.
    """

    kind: str
    pid: int
    bootstrap_servers: str
    endpoint: str
    access_key: str
    secret_key: str
    secrets: str = ""

    def __repr__(self) -> str:
        where = f"bootstrap_servers={self.bootstrap_servers!r}, endpoint={self.endpoint!r}"
        return f"Addresses(kind={self.kind!r}, pid={self.pid}, {where}, secret_key='***')"


def status(folder: Path | str) -> Addresses | None:
    """Where the services of the folder are, or None where none run."""
    folder = Path(folder).resolve()
    if supervising_process(folder) is None:
        return None
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Addresses(**json.loads((folder / "services.json").read_text()))
    return None


def supervising_process(folder: Path) -> int | None:
    """The supervising process of the folder, or None where nobody holds its lock."""
    if not folder.is_dir():
        return None
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(timeout=ASK_SECONDS, poll_interval=0.01)
    except Timeout:
        # Whoever else asks lets go at once: a lock that stays taken is the supervising process's.
        with contextlib.suppress(OSError, ValueError):
            return int((folder / "supervisor.pid").read_text())
        return None
    # What a killed supervising process left would mislead whoever reads it.
    (folder / "supervisor.pid").unlink(missing_ok=True)
    (folder / "services.json").unlink(missing_ok=True)
    lock.release()
    return None
