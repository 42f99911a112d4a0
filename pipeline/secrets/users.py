"""Users on a running broker and store: made, given rights, taken away, given another password.

Each step can be repeated. They stand in the order that is safe when one fails: rights are given after the user is
known everywhere, and taken before anything else.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.broker import BrokerSettings, Topics, ensure_topics
from pipeline.broker.access import BrokerAccess
from pipeline.broker.quotas import Quota, set_quota
from pipeline.config import PipelineConfig
from pipeline.connect import connect
from pipeline.errors import ConfigError
from pipeline.secrets.folder import ROLES, SETUP, Hosts, SecretsFolder, new_password
from pipeline.secrets.roles import CLIENT, RIGHTS, belongs, grants
from pipeline.secrets.secret_file import ActorAccess, KafkaAccess, SecretFile, StoreAccess
from pipeline.weights import ObjectStore, StoreSettings
from pipeline.weights.access import StoreAccess as StoreUsers
from pipeline.wire import client_key

_NAME = re.compile(r"[a-z][a-z0-9-]{2,39}")


@dataclass(frozen=True)
class Change:
    """What was done.

    Attributes:
        file: the secret file that was written or removed; None: neither.
        sentences: for people, in order.
    """

    file: Path | None
    sentences: tuple[str, ...]


def hosts(config: PipelineConfig) -> Hosts:
    """Where the configuration says that broker and store are reached."""
    section = config.secrets

    def names(listed: list[str], address: str) -> list[str]:
        host = address.rpartition(":")[0].strip("[]")
        return [*dict.fromkeys([*listed, *([host] if host else [])])]

    return Hosts(
        names(section.broker_hosts, section.broker),
        names(section.store_hosts, section.store),
        section.broker,
        section.store,
    )


class Users:
    """Administers one broker and one store, as the set-up.

    Args:
        config: the whole configuration; without ``secret`` the set-up's file in ``secrets.folder`` is taken.

    Raises:
        ConfigError: there is no such file.
        BrokerUnreachableError, BrokerAuthenticationError: the broker does not answer, or refuses it.
    """

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config
        self.folder = SecretsFolder(config.secrets.folder)
        if not config.secret:
            self.folder.authority()  # or says that there is none
            config = replace(config, secret=str(self.folder.role(SETUP)))
        connection = connect(config)
        self._broker: BrokerSettings = connection.broker
        self._store: StoreSettings = connection.store
        if not self._store.endpoint:
            raise ConfigError("Where is the store? Give store.endpoint=HOST:PORT.")
        self._timeout = config.kafka.timeout_s
        self._access = BrokerAccess(self._broker, self._timeout)
        self._users = StoreUsers(self._store)

    def apply(self) -> list[str]:
        """Make the roles' users and the bucket and, with ``run=NAME``, the run's topics and everybody's rights in it.

        Returns:
            What was done, for people.
        """
        done: list[str] = []
        ObjectStore(self._store).ensure_bucket()
        for role in ROLES:
            if role == SETUP:
                continue
            secret = SecretFile.read(self.folder.role(role))
            self._access.set_password(role, secret.kafka.password)
            self._users.set_user(role, secret.store.secret_key)
        done.append(f"users   {', '.join(role for role in ROLES if role != SETUP)}; bucket {self._store.bucket}")
        if self._config.run:
            topics = self._topics(self._config.run)
            created = self._make_topics(topics)
            for role in ROLES:
                if role != SETUP:
                    self._allow(role, role, topics)
            done.append(f"run     {topics.run}: {len(created)} topics made, rights of {len(ROLES) - 1} roles given")
        return done

    def client(self, name: str) -> Change:
        """Make a client, or give one that there is rights in a further run; writes its secret file.

        Args:
            name: the client's, and the first part of its actors' names.

        Raises:
            ConfigError: the name is none, or no run is named, or the folder's file of this client is damaged.
        """
        check_name(name)
        run = self._run()
        path = self._file(name)
        secret = SecretFile.read(path) if path.exists() else self._new_secret(name)
        topics = self._topics(run)
        self._make_topics(topics)
        # The file first: a user whose password nobody knows is of no use, and the next call makes good what follows.
        secret.write(path, f"Secrets of the client {name}")
        self._let_in(name, secret)
        bound = self._config.secrets
        quota = Quota(bound.client_bytes_per_s, bound.client_bytes_per_s, bound.client_requests)
        set_quota(self._broker, name, quota, self._timeout)
        self._allow(CLIENT, name, topics)
        return Change(path, (f"client  {name} may take part in run {run}", f"file    {path}"))

    def revoke(self, name: str) -> Change:
        """Let a client in no more. What it still has open is refused from now on.

        Raises:
            ConfigError: the name is a role's.
        """
        check_name(name)
        self._access.remove_grants(name)
        self._access.remove_user(name)
        self._users.remove_user(name)
        set_quota(self._broker, name, None, self._timeout)
        path = self._file(name)
        path.unlink(missing_ok=True)
        return Change(path, (f"client  {name} is let in no more",))

    def rotate(self, name: str) -> Change:
        """Give a client or a role another password and key; its secret file is written anew.

        Raises:
            ConfigError: there is no secret file of that name.
        """
        path = self._file(name)
        if not path.exists():
            raise ConfigError(
                f"there is no secret file {path}; make a client with `pipeline secrets client NAME run=NAME`"
            )
        old = SecretFile.read(path)
        if name == SETUP:
            return self._rotate_setup(path, old)
        new = replace(
            old,
            kafka=replace(old.kafka, password=new_password()),
            store=replace(old.store, secret_key=new_password()),
        )
        new.write(path, f"Secrets of the {'role' if name in ROLES else 'client'} {name}")
        self._let_in(name, new)
        said = f"{name} has another password; whoever is connected by the old one has five minutes"
        return Change(path, (said, f"file    {path}"))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _rotate_setup(self, path: Path, old: SecretFile) -> Change:
        """The broker has it at once; the store reads its root user when it starts."""
        new = replace(
            old,
            kafka=replace(old.kafka, password=new_password()),
            store=replace(old.store, secret_key=new_password()),
        )
        # Not the file first, as of the others: whoever lost this password could not set it again.
        self._access.set_password(SETUP, new.kafka.password)
        try:
            new.write(path, f"Secrets of the role {SETUP}")
        except ConfigError:
            self._access.set_password(SETUP, old.kafka.password)
            raise
        self.folder.write_format_args()
        self.folder.write_root_password(new.store.secret_key)
        said = f"{SETUP} has another password on the broker now, and on the store when that is started again"
        return Change(path, (said, f"file    {path}"))

    def _let_in(self, user: str, secret: SecretFile) -> None:
        self._access.set_password(user, secret.kafka.password)
        self._users.set_user(user, secret.store.secret_key)

    def _allow(self, role: str, user: str, topics: Topics) -> None:
        """Exactly the role's rights in the run: those of an older release that it has no more are taken."""
        wanted = grants(role, user, topics)
        there = self._access.grants(user)
        extra = {grant for grant in there - wanted if belongs(grant, topics)}
        self._access.remove_grants(user, extra)
        self._access.add_grants(user, wanted - there)
        rights = RIGHTS[role]
        if rights.objects or rights.lists:
            policy = f"{topics.namespace}.{topics.run}.{role}"
            self._users.allow(user, policy, topics.run, rights.objects, rights.lists)

    def _new_secret(self, name: str) -> SecretFile:
        ca = self.folder.authority()
        where = hosts(self._config)
        broker, store = where.broker_address or self._broker.address, where.store_address or self._store.endpoint
        return SecretFile(
            kafka=KafkaAccess(broker, name, new_password(), ca),
            store=StoreAccess(store, name, new_password(), self._store.secure, ca),
            actor=ActorAccess(name, client_key(self.folder.actors_key(), name)),
        )

    def _make_topics(self, topics: Topics) -> list[str]:
        kafka = self._config.kafka
        return ensure_topics(
            self._broker,
            topics.specs(**kafka.topic_settings()),
            timeout=self._timeout,
            replication=kafka.replication,
        )

    def _topics(self, run: str) -> Topics:
        return Topics(self._config.namespace, run)

    def _run(self) -> str:
        if not self._config.run:
            raise ConfigError("Which run is the client for? Give run=NAME.")
        return self._config.run

    def _file(self, name: str) -> Path:
        if self._config.secrets.file:
            return Path(self._config.secrets.file)
        return self.folder.role(name) if name in ROLES else self.folder.client(name)


def check_name(name: str) -> None:
    """Refuse what cannot be a client's name.

    Raises:
        ConfigError: says what can.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"{name!r} cannot be a client's name: 3 to 40 of a-z, 0-9 and '-', beginning with a letter")
    if name in ROLES:
        raise ConfigError(f"{name!r} is a role's name; call the client otherwise")
