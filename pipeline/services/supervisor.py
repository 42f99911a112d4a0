"""Starts a broker and a store together, writes down where they are, and ends them together.

The folder of the services holds ``services.json`` (addresses and credentials, mode 0600) while they
answer, ``logs/`` and ``data/``. A lock on the folder, held by the supervising process as long as it
lives, keeps a second one out and tells ``down`` when it has gone.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path
from secrets import token_hex
from typing import Any

from filelock import FileLock, Timeout

from pipeline.errors import ServiceError
from pipeline.secrets.folder import SecretsFolder
from pipeline.services.addresses import Addresses, status, supervising_process
from pipeline.services.embedded import EmbeddedServices
from pipeline.services.kafka import LocalKafka
from pipeline.services.minio import LocalMinio
from pipeline.services.process import POLL_SECONDS, Service

KINDS = ("embedded", "local")
STOP_SECONDS = 90.0
LOCK_SECONDS = 2.0


class Services:
    """A running broker and store; made by :func:`running_services`.

    Attributes:
        folder: data, logs and addresses.
        addresses: where they are.
    """

    def __init__(self, folder: Path, addresses: Addresses, parts: dict[str, Service]) -> None:
        self.folder = folder
        self.addresses = addresses
        self._parts = parts

    @property
    def bootstrap_servers(self) -> str:
        """The broker's ``host:port``."""
        return self.addresses.bootstrap_servers

    @property
    def endpoint(self) -> str:
        """The store's ``host:port``."""
        return self.addresses.endpoint

    @property
    def kafka(self) -> Service:
        """The local Kafka, to be stopped, killed, paused and started again.

        Raises:
            ServiceError: the services are embedded ones, which forget everything when they stop.
        """
        return self._part("kafka")

    @property
    def minio(self) -> Service:
        """The local MinIO, to be stopped, killed, paused and started again.

        Raises:
            ServiceError: the services are embedded ones, which forget everything when they stop.
        """
        return self._part("minio")

    def ended(self) -> list[str]:
        """The names of services whose process has ended."""
        return [part.name for part in self._parts.values() if not part.alive]

    def _part(self, name: str) -> Service:
        if name not in self._parts:
            raise ServiceError(f"There is no {name} of its own among the {self.addresses.kind} services.")
        return self._parts[name]


@contextlib.contextmanager
def running_services(
    kind: str, folder: Path | str, *, keep_data: bool = True, secrets: Path | str | None = None
) -> Generator[Services]:
    """Broker and store, running as long as the block: started in order, ready on entry, ended on
    exit.

    They also end when this process does, in whatever way.

    Args:
        kind: embedded or local.
        folder: for data, logs and addresses; made where it is missing.
        keep_data: whether the data stay for the next start; embedded services keep none.
        secrets: a folder of secrets: local services then speak TLS and know users, whom `pipeline secrets apply` makes.
            Their data are apart from those of services without.

    Raises:
        ServiceError: services already run in the folder, or one did not start; the message holds
        the end of its log. MissingToolError: Java, Maven or Go is needed and not installed.
    """
    folder = Path(folder).resolve()
    if kind not in KINDS:
        raise ServiceError(f"There are no {kind!r} services to start: choose one of {', '.join(KINDS)}.")
    if secrets is not None and kind != "local":
        raise ServiceError(
            f"The {kind} services know no users and no TLS: leave security=tls out, or add services=local."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with _supervising(folder):
        parts: dict[str, Service] = {}
        try:
            yield _start(kind, folder, parts, SecretsFolder(secrets) if secrets is not None else None)
        finally:
            (folder / "services.json").unlink(missing_ok=True)
            # Against the order of the start.
            for part in reversed(parts.values()):
                part.stop()
            if not keep_data:
                shutil.rmtree(folder / "data", ignore_errors=True)


def start_detached(kind: str, folder: Path | str, secrets: Path | str | None = None) -> Addresses:
    """Start the services under a supervising process of their own and return once they answer.

    Raises:
        ServiceError: they did not start; the message holds what the supervising process said.
    """
    folder = Path(folder).resolve()
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    log = folder / "logs" / "supervisor.log"
    command = [
        sys.executable,
        "-m",
        "pipeline.services",
        "up",
        "--kind",
        kind,
        "--folder",
        str(folder),
        *(["--secrets", str(Path(secrets).resolve())] if secrets is not None else []),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    while True:
        addresses = status(folder)
        if addresses is not None and addresses.pid == process.pid:
            return addresses
        if process.poll() is not None:
            raise ServiceError(f"The {kind} services did not start. {log.read_text(errors='replace').strip()}")
        time.sleep(POLL_SECONDS)


def down(folder: Path | str, timeout: float = STOP_SECONDS) -> bool:
    """End the services of the folder and wait until they have ended.

    Returns:
        Whether any ran.

    Raises:
        ServiceError: they still run after ``timeout`` seconds.
    """
    folder = Path(folder).resolve()
    pid = supervising_process(folder)
    if pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while supervising_process(folder) is not None:
        if time.monotonic() > deadline:
            raise ServiceError(f"The services in {folder} still run after {timeout:g} s (process {pid}).")
        time.sleep(POLL_SECONDS)
    return True


def _start(kind: str, folder: Path, parts: dict[str, Service], secrets: SecretsFolder | None) -> Services:
    access_key, secret_key = ("", "") if secrets is not None else (token_hex(10), token_hex(20))
    logs, data = folder / "logs", folder / "data" / ("tls" if secrets is not None else "")
    if kind == "embedded":
        both = EmbeddedServices(data / "embedded", logs / "embedded.log")
        parts["embedded"] = both
        both.start()
        broker, store = both.broker, both.store
    else:
        # The ports of the last start, where they are free: what a run's manifest says then stays
        # true.
        ports = _read_ports(data)
        root = secrets if secrets is not None else (access_key, secret_key)
        minio = LocalMinio(data / "minio", logs / "minio.log", root, ports.get("minio"))
        kafka = LocalKafka(data / "kafka", logs / "kafka.log", ports.get("kafka"), secrets)
        parts.update(minio=minio, kafka=kafka)
        for part in parts.values():
            part.launch()
        for part in parts.values():
            part.wait_ready()
        broker, store = kafka.address, minio.address
        (data / "ports.json").write_text(json.dumps({"kafka": kafka.port, "minio": minio.port}))
    where = str(secrets.path.resolve()) if secrets is not None else ""
    addresses = Addresses(kind, os.getpid(), broker, store, access_key, secret_key, where)
    _write_private(folder / "services.json", json.dumps(asdict(addresses), indent=2))
    return Services(folder, addresses, parts)


def _read_ports(data: Path) -> dict[str, int]:
    with contextlib.suppress(OSError, ValueError):
        read: Any = json.loads((data / "ports.json").read_text())
        return {name: int(port) for name, port in read.items()}
    return {}


def _write_private(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    part.replace(path)


@contextlib.contextmanager
def _supervising(folder: Path) -> Generator[None]:
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(timeout=LOCK_SECONDS, poll_interval=0.01)
    except Timeout:
        raise ServiceError(f"Services already run in {folder}; `pipeline services down` ends them.") from None
    try:
        (folder / "supervisor.pid").write_text(str(os.getpid()))
        yield
    finally:
        (folder / "supervisor.pid").unlink(missing_ok=True)
        lock.release()
