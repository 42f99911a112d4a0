"""The folder of secrets: what it holds, and making what is missing of it.

Each reader has a sub-folder of its own, so that a container is given what it needs and nothing else::

    ca/        ca.crt, ca.key, actors.key        the authority, and the key that vouches for actors: for nobody else
    kafka/     server.pem, ca.crt, format.args   the broker's key and certificate, and the set-up's first password
    minio/     certs/, root_user, root_password  the store's certificate and key, and its root user
    ROLE/      secret.yaml                       for each of `ROLES`: its secret file
    clients/   NAME.yaml                         for each client: its secret file
"""

import base64
import hashlib
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.secret import Secret
from pipeline.secrets.certificates import Certificate, issue, make_authority, serves
from pipeline.secrets.private import private_folder, read_private, write_private
from pipeline.secrets.secret_file import ActorsAccess, KafkaAccess, SecretFile, StoreAccess

SETUP = "setup"
"""The role that may do everything; the only one that makes topics, users and rules."""
ROLES = (SETUP, "learner", "telemetry", "offline", "cleanup", "operator")
VOUCHED = ("learner", "telemetry", "offline")
"""Roles that check in whose name a record was written."""
BROKER_NAME, STORE_NAME = "kafka", "minio"
"""Common names of the servers' certificates; the broker's is its user on the listeners inside."""
ITERATIONS = 8192
_PUBLIC = 0o644


@dataclass(frozen=True)
class Hosts:
    """Where the servers are reached.

    Attributes:
        broker, store: names and addresses that their certificates hold.
        broker_address, store_address: ``host:port`` for the secret files; empty: their readers know.
    """

    broker: Sequence[str]
    store: Sequence[str]
    broker_address: str = ""
    store_address: str = ""


class SecretsFolder:
    """The folder of secrets.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    # -- where things are ---------------------------------------------------------------------------------------------

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.path / "ca" / "ca.crt"

    @property
    def broker_pem(self) -> Path:
        """The broker's key and certificate, as Kafka reads a PEM key store."""
        return self.path / "kafka" / "server.pem"

    @property
    def broker_ca(self) -> Path:
        """The authority's certificate, for the broker."""
        return self.path / "kafka" / "ca.crt"

    @property
    def format_args(self) -> Path:
        """Arguments for ``kafka-storage format``, which reads them from ``@FILE``: the set-up's first password."""
        return self.path / "kafka" / "format.args"

    @property
    def store_certs(self) -> Path:
        """The folder of the store's certificate and key, as MinIO's ``--certs-dir`` takes it."""
        return self.path / "minio" / "certs"

    @property
    def root_user(self) -> Path:
        """The file with the store's root user."""
        return self.path / "minio" / "root_user"

    @property
    def root_password(self) -> Path:
        """The file with the store's root password."""
        return self.path / "minio" / "root_password"

    def role(self, name: str) -> Path:
        """A role's secret file."""
        return self.path / name / "secret.yaml"

    def client(self, name: str) -> Path:
        """A client's secret file."""
        return self.path / "clients" / f"{name}.yaml"

    # -- what is in them ----------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether the folder was set up."""
        return self.ca.exists()

    def authority(self) -> str:
        """The authority's certificate, PEM.

        Raises:
            ConfigError: the folder was not set up.
        """
        try:
            return self.ca.read_text()
        except OSError as error:
            raise ConfigError(f"there are no secrets in {self.path}; make them with `pipeline secrets init`") from error

    def actors_key(self) -> Secret:
        """The key that actors' own keys are made of, hexadecimal.

        Raises:
            ConfigError: it is not there, or open to others.
        """
        return Secret(read_private(self.path / "ca" / "actors.key"))

    # -- making them --------------------------------------------------------------------------------------------------

    def init(self, hosts: Hosts) -> list[str]:
        """Make what is missing; what is there stays, but for servers' certificates that do not fit any more.

        Returns:
            What was made, as paths below the folder; empty if everything was there.

        Raises:
            ConfigError: the folder cannot be written, or holds private files that are open to others.
        """
        made: list[Path] = []
        authority = self._authority(made)
        self._server(authority, BROKER_NAME, hosts.broker, made)
        self._server(authority, STORE_NAME, hosts.store, made)
        for path in (self.root_user, self.root_password, self.path / "ca" / "actors.key"):
            if not path.exists():
                text = "pipeline-root" if path == self.root_user else secrets.token_hex(32)
                self._write(path, f"{text}\n", made)
        for name in ROLES:
            if not self.role(name).exists():
                self._role(name, hosts).write(self.role(name), f"Secrets of the role {name}")
                made.append(self.role(name))
        if not self.format_args.exists():
            self.write_format_args()
            made.append(self.format_args)
        return [path.relative_to(self.path).as_posix() for path in made]

    def write_format_args(self) -> None:
        """The set-up's password, for a broker that is formatted from now on.

        Raises:
            ConfigError: the set-up's secret file cannot be read, or the folder not be written.
        """
        setup = SecretFile.read(self.role(SETUP)).kafka
        write_private(self.format_args, f"--add-scram\n{_scram(setup.username, setup.password)}\n")

    def write_root_password(self, password: Secret) -> None:
        """The password of the store's root user, for its next start.

        Raises:
            ConfigError: the folder cannot be written.
        """
        write_private(self.root_password, f"{str.__str__(password)}\n")

    def _authority(self, made: list[Path]) -> Certificate:
        key = self.path / "ca" / "ca.key"
        if not self.ca.exists():
            pair = make_authority()
            self._write(key, pair.key, made)
            # Last: its certificate says that the folder was set up.
            self._write(self.ca, pair.certificate, made, _PUBLIC)
        if not self.broker_ca.exists() or self.broker_ca.read_text() != self.authority():
            self._write(self.broker_ca, self.authority(), made, _PUBLIC)
        return Certificate(self.authority(), read_private(key))

    def _server(self, authority: Certificate, name: str, hosts: Sequence[str], made: list[Path]) -> None:
        key, public = self.store_certs / "private.key", self.store_certs / "public.crt"
        there = self.broker_pem if name == BROKER_NAME else public
        if there.exists() and serves(_certificate(there.read_text()), authority.certificate, hosts):
            return
        pair = issue(authority, name, hosts, mutual=name == BROKER_NAME)
        if name == BROKER_NAME:
            self._write(self.broker_pem, pair.key + pair.certificate, made)
        else:
            # MinIO looks for further authorities there, and would make the folder where it may only read.
            private_folder(self.store_certs / "CAs")
            self._write(key, pair.key, made)
            self._write(public, pair.certificate, made, _PUBLIC)

    def _role(self, name: str, hosts: Hosts) -> SecretFile:
        ca = self.authority()
        user, password = name, new_password()
        if name == SETUP:
            user, password = read_private(self.root_user).strip(), Secret(read_private(self.root_password))
        return SecretFile(
            kafka=KafkaAccess(hosts.broker_address, name, new_password(), ca),
            store=StoreAccess(hosts.store_address, user, password, True, ca),
            actors=ActorsAccess(self.actors_key() if name in VOUCHED else Secret("")),
        )

    def _write(self, path: Path, text: str, made: list[Path], mode: int = 0o600) -> None:
        write_private(path, text, mode)
        made.append(path)


def new_password() -> Secret:
    """192 random bits."""
    return Secret(secrets.token_urlsafe(24))


def _certificate(pem: str) -> str:
    """The certificate of a file that may hold its key before it."""
    return pem[max(0, pem.find("-----BEGIN CERTIFICATE-----")) :]


def _scram(user: str, password: str) -> str:
    """A SCRAM credential as ``kafka-storage`` takes it: the salted password, not the password itself."""
    salt = os.urandom(24)
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
    encoded = [base64.b64encode(part).decode() for part in (salt, salted)]
    return f'SCRAM-SHA-512=[name={user},iterations={ITERATIONS},salt="{encoded[0]}",saltedpassword="{encoded[1]}"]'
