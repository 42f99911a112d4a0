"""A MinIO on one folder, built from its pinned source."""

import sys
from pathlib import Path

from pipeline.services.asking import HOST, free_port, http_answers
from pipeline.services.cache import cached, fetched
from pipeline.services.process import Command, Service
from pipeline.services.tools import find_go, missing_tools, run_tool

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
READY_SECONDS = 60.0

_NAME = f"minio-{VERSION}"
_PROGRAM = "minio.exe" if sys.platform == "win32" else "minio"


def fetch_minio() -> Path:
    """The MinIO program, built by ``go install`` on first use, which takes minutes.

    Raises:
        MissingToolError: the program is not in the cache, and Go is not installed.
        ServiceError: the build failed.
    """
    return fetched(_NAME, _build) / _PROGRAM


def minio_fetched() -> bool:
    """Whether the program is in this machine's cache."""
    return cached(_NAME) is not None


def missing_for_minio() -> list[str]:
    """The tools that MinIO's start on this machine lacks: one sentence each."""
    return [] if minio_fetched() else missing_tools(find_go)


class LocalMinio(Service):
    """MinIO in one child process.

    Args:
        folder: holds the objects.
        log: the server's own log file.
        access_key: the root user that it is started with.
        secret_key: the root user's password.
        port: where it is free; None takes any.
    """

    def __init__(self, folder: Path, log: Path, access_key: str, secret_key: str, port: int | None = None) -> None:
        super().__init__("MinIO", log, READY_SECONDS)
        self._folder = folder
        self._access_key = access_key
        self._secret_key = secret_key
        self.port = free_port(port)

    @property
    def address(self) -> str:
        """The S3 endpoint, ``host:port``, without TLS."""
        return f"{HOST}:{self.port}"

    def answers(self) -> bool:
        """Whether the server says that it is ready for requests."""
        return http_answers(self.address, "/minio/health/ready")

    def prepare(self) -> Command:
        """Make the folder of the objects; the credentials go by the environment."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return Command(
            [str(fetch_minio()), "server", str(self._folder), "--address", self.address, "--quiet"],
            {
                "MINIO_ROOT_USER": self._access_key,
                "MINIO_ROOT_PASSWORD": self._secret_key,
                "MINIO_BROWSER": "off",
                "MINIO_UPDATE": "off",
            },
        )


def _build(folder: Path) -> None:
    command = [find_go(), "install", f"github.com/minio/minio@{VERSION}"]
    run_tool(command, "Building MinIO", {"GOBIN": str(folder), "CGO_ENABLED": "0"})
