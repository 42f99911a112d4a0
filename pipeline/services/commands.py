"""What ``pipeline services up|down|status|fetch`` does."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from pipeline.errors import MissingToolError, ServiceError
from pipeline.services.cache import cache_folder
from pipeline.services.kafka import fetch_jars, missing_for_kafka
from pipeline.services.minio import fetch_minio, minio_fetched, missing_for_minio
from pipeline.services.supervisor import Addresses, down, running_services, start_detached, status

WATCH_SECONDS = 0.5


def services_up(
    folder: Path | str,
    kind: str,
    detach: bool = False,
    secrets: Path | str | None = None,
    ready: Callable[[], None] | None = None,
) -> int:
    """Start the services, print where they are, and stay until Ctrl-C, SIGTERM or a service's end.

    Args:
        folder: for data, logs and addresses.
        kind: embedded or local.
        detach: return once they answer, and leave them running.
        secrets: a folder of secrets, for local services with TLS and users; None: without.
        ready: called once they answer.

    Returns:
        The exit status: 0.

    Raises:
        ServiceError: one did not start, or ended by itself.
        MissingToolError: Java, Maven or Go is needed and not installed.
    """
    if kind == "external":
        raise ServiceError("services=external are your own: there is nothing to start.")
    if kind == "local":
        services_fetch(kind)
    if detach:
        _print_addresses(Path(folder), start_detached(kind, folder, secrets))
        if ready is not None:
            ready()
        return 0
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _ask_to_stop)
    try:
        with running_services(kind, folder, secrets=secrets) as services:
            _print_addresses(Path(folder), services.addresses)
            if ready is not None:
                ready()
            print("Ctrl-C ends them.", flush=True)
            watch = threading.Event()
            while not services.ended():
                watch.wait(WATCH_SECONDS)
            raise ServiceError(
                f"{', '.join(services.ended())} ended by itself. The logs are in {services.folder / 'logs'}."
            )
    except _StopAsked:
        print("The services have ended.", flush=True)
    return 0


def services_down(folder: Path | str) -> int:
    """End the services of the folder and wait until they have.

    Returns:
        The exit status: 0.

    Raises:
        ServiceError: they do not end.
    """
    ran = down(folder)
    print(
        "The services have ended." if ran else f"No services run in {Path(folder).resolve()}.",
        flush=True,
    )
    return 0


def services_status(folder: Path | str) -> int:
    """Print where the services of the folder are.

    Returns:
        The exit status: 0 where they answer, 3 where none run.
    """
    addresses = status(folder)
    if addresses is None:
        print(f"No services run in {Path(folder).resolve()}.", flush=True)
        return 3
    _print_addresses(Path(folder), addresses)
    return 0


def services_fetch(kind: str) -> int:
    """Fetch what the services are made of into this machine's cache; nothing happens where it is
    there.

    Returns:
        The exit status: 0.

    Raises:
        MissingToolError: names every tool that is missing.
        ServiceError: Maven or Go failed.
    """
    if kind != "local":
        return 0
    if missing := missing_for_local():
        raise MissingToolError(" ".join(missing))
    print(f"Kafka's jars and MinIO for this machine, in {cache_folder()}", flush=True)
    if not minio_fetched():
        print("Building MinIO from source: minutes, once per machine.", flush=True)
    fetch_jars()
    fetch_minio()
    return 0


def missing_for_local() -> list[str]:
    """The tools that the local services lack on this machine: one sentence each."""
    return [*missing_for_kafka(), *missing_for_minio()]


class _StopAsked(BaseException):
    """Ctrl-C or SIGTERM: not an error, and nothing on the way may swallow it."""


def _ask_to_stop(number: int, frame: FrameType | None) -> None:
    # Once: a second Ctrl-C must not cut the orderly end short.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    raise _StopAsked


def _print_addresses(folder: Path, addresses: Addresses) -> None:
    folder = folder.resolve()
    print(f"services   {addresses.kind}, supervised by process {addresses.pid}")
    print(f"broker     {addresses.bootstrap_servers}")
    print(f"store      {'https' if addresses.secrets else 'http'}://{addresses.endpoint}")
    if addresses.secrets:
        print(f"secrets    {addresses.secrets}")
    print(f"data       {folder / 'data'}")
    print(f"logs       {folder / 'logs'}")
    print(f"addresses  {folder / 'services.json'}", flush=True)
