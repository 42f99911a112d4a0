"""A MinIO on one folder, built from its pinned source; with a folder of secrets it speaks TLS."""

import ssl
import sys
from pathlib import Path

from pipeline.secrets.folder import SecretsFolder
from pipeline.services.asking import HOST, free_port, http_answers
from pipeline.services.cache import cached, fetched
from pipeline.services.process import Command, Service
from pipeline.services.tools import find_go, missing_tools, run_tool
from pipeline.tls import client_context

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
        root: the root user that it is started with and its password, or the folder of secrets that holds them and the
            server's certificate.
        port: where it is free; None takes any.
    """

    def __init__(self, folder: Path, log: Path, root: tuple[str, str] | SecretsFolder, port: int | None = None) -> None:
        super().__init__("MinIO", log, READY_SECONDS)
        self._folder = folder
        self._root = root
        self._context: ssl.SSLContext | None = None
        self.port = free_port(port)

    @property
    def address(self) -> str:
        """The S3 endpoint, ``host:port``."""
        return f"{HOST}:{self.port}"

    def answers(self) -> bool:
        """Whether the server says that it is ready for requests."""
        if self._context is None and isinstance(self._root, SecretsFolder):
            self._context = client_context(self._root.authority())
        return http_answers(self.address, "/minio/health/ready", self._context)

    def prepare(self) -> Command:
        """Make the folder of the objects; the credentials go by the environment, or by files that it names."""
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [str(fetch_minio()), "server", str(self._folder), "--address", self.address, "--quiet"]
        environment = {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}
        root = self._root
        if isinstance(root, SecretsFolder):
            environment["MINIO_ROOT_USER_FILE"] = str(root.root_user.resolve())
            environment["MINIO_ROOT_PASSWORD_FILE"] = str(root.root_password.resolve())
            return Command([*command, "--certs-dir", str(root.store_certs.resolve())], environment)
        return Command(command, {**environment, "MINIO_ROOT_USER": root[0], "MINIO_ROOT_PASSWORD": root[1]})


def _build(folder: Path) -> None:
    command = [find_go(), "install", f"github.com/minio/minio@{VERSION}"]
    run_tool(command, "Building MinIO", {"GOBIN": str(folder), "CGO_ENABLED": "0"})
