"""A broker and a store that let in whom `pipeline secrets` made, shared by the session."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pipeline.broker import BrokerSettings, Topics
from pipeline.config import PipelineConfig, load_config
from pipeline.connect import Connection, connect
from pipeline.secrets.folder import SETUP, Hosts, SecretsFolder
from pipeline.secrets.users import Users
from pipeline.services import Services, running_services

NAMESPACE = "guarded"
RUN = "lab"
HOSTS = Hosts(["localhost", "127.0.0.1"], ["localhost", "127.0.0.1"])


@dataclass(frozen=True)
class Secured:
    """Services with TLS and users, and who is known there.

    Attributes:
        services: to be stopped and started by nobody, since all tests share them.
        folder: of the secrets.
    """

    services: Services
    folder: SecretsFolder

    def overrides(self, user: str, run: str = RUN) -> list[str]:
        """What a role's process is started with. A client knows nothing but its secret file."""
        common = [
            f"secret={self.file(user)}",
            f"namespace={NAMESPACE}",
            f"run={run}",
            "kafka.timeout_s=180",
        ]
        where = f"services.folder={self.services.folder}"
        known = "services.kind=external" if self.is_client(user) else where
        return [*common, f"secrets.folder={self.folder.path}", known]

    def config(self, user: str, run: str = RUN) -> PipelineConfig:
        """Of a role or client."""
        return load_config(self.overrides(user, run))

    def connection(self, user: str) -> Connection:
        """As a role or client would be connected."""
        return connect(self.config(user))

    def file(self, user: str) -> Path:
        """The secret file of a role or client."""
        return self.folder.client(user) if self.is_client(user) else self.folder.role(user)

    def is_client(self, user: str) -> bool:
        """Whether it has no file as a role."""
        return not self.folder.role(user).exists()

    def users(self, run: str = RUN) -> Users:
        """Administers the two."""
        return Users(self.config(SETUP, run))

    def broker(self, user: str, **changes: object) -> BrokerSettings:
        """The broker, as that user."""
        return replace(self.connection(user).broker, **changes)  # type: ignore[arg-type]

    @property
    def topics(self) -> Topics:
        """Of the run that all have rights in."""
        return Topics(NAMESPACE, RUN)


@pytest.fixture(scope="session")
def secured(local_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Kafka and MinIO with TLS; the run `lab`, all roles, and the clients alice and bob."""
    base = tmp_path_factory.mktemp("secured")
    folder = SecretsFolder(base / "secrets")
    folder.init(HOSTS)
    with running_services("local", base / "services", keep_data=False, secrets=folder.path) as services:
        made = Secured(services, folder)
        users = made.users()
        users.apply()
        for client in ("alice", "bob"):
            users.client(client)
        yield made
