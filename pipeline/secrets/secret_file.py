"""The YAML file that a role or a client is started with: ``secret=FILE``."""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

import yaml

from pipeline.errors import ConfigError
from pipeline.secret import Secret
from pipeline.secrets.private import read_private, write_private

_NONE = Secret("")
_HIDDEN = ("password", "secret_key", "key")


@dataclass(frozen=True)
class KafkaAccess:
    """The section ``kafka``.

    Attributes:
        bootstrap_servers: ``host:port``; empty: the configuration knows it.
        username, password: for SCRAM-SHA-512 over TLS; no username: neither.
        ca: PEM of the authority that signed the broker's certificate; empty: the system's.
    """

    bootstrap_servers: str = ""
    username: str = ""
    password: Secret = _NONE
    ca: str = ""


@dataclass(frozen=True)
class StoreAccess:
    """The section ``store``.

    Attributes:
        endpoint: ``host:port``; empty: the configuration or the run's manifest know it.
        access_key, secret_key: credentials.
        secure: whether the store is spoken to over TLS.
        ca: PEM of the authority that signed the store's certificate; empty: the system's.
    """

    endpoint: str = ""
    access_key: str = ""
    secret_key: Secret = _NONE
    secure: bool = False
    ca: str = ""


@dataclass(frozen=True)
class ActorAccess:
    """The section ``actor``, of a client: what it signs its experience with.

    Attributes:
        name: the client's; its actors are called so, or ``<name>/…``.
        key: hexadecimal; made of the name and the key that learner and telemetry have.
    """

    name: str = ""
    key: Secret = _NONE


@dataclass(frozen=True)
class ActorsAccess:
    """The section ``actors``, of learner, telemetry and offline: what they check signatures with.

    Attributes:
        key: hexadecimal.
    """

    key: Secret = _NONE


@dataclass(frozen=True)
class SecretFile:
    """What one process may know.

    Attributes:
        kafka, store, actor, actors: its sections; one that the file lacks is empty.
    """

    kafka: KafkaAccess = field(default_factory=KafkaAccess)
    store: StoreAccess = field(default_factory=StoreAccess)
    actor: ActorAccess = field(default_factory=ActorAccess)
    actors: ActorsAccess = field(default_factory=ActorsAccess)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file that its owner alone may read.

        Raises:
            ConfigError: it cannot be read, is open to others, or holds what no secret file does.
        """
        try:
            tree: Any = yaml.safe_load(read_private(path))
        except yaml.YAMLError as error:
            # The error's own text quotes the line that it is about, which may be a secret.
            mark = getattr(error, "problem_mark", None)
            where = f" at line {mark.line + 1}" if mark is not None else ""
            raise ConfigError(f"the secret file {path} is no YAML{where}") from None
        sections = {"kafka": KafkaAccess, "store": StoreAccess, "actor": ActorAccess, "actors": ActorsAccess}
        tree = _mapping(tree, f"the secret file {path}", sections)
        return cls(**{name: _section(kind, tree[name], path, name) for name, kind in sections.items() if name in tree})

    def write(self, path: Path, about: str) -> None:
        """Write it, for its owner alone.

        Args:
            path: the file.
            about: whose it is, for the comment at its top.

        Raises:
            ConfigError: it cannot be written.
        """
        tree = {name: _filled(section) for name, section in dataclasses.asdict(self).items()}
        sections = {name: section for name, section in tree.items() if section}
        text = str(yaml.dump(sections, Dumper=_Dumper, sort_keys=False))
        write_private(path, f"# {about}. Whoever has this file is let in: keep it to yourself.\n{text}")


def _section(kind: type[Any], tree: Any, path: Path, name: str) -> Any:
    fields = kind.__dataclass_fields__
    tree = _mapping(tree, f"{name!r} in the secret file {path}", fields)
    values: dict[str, Any] = {}
    for key, value in tree.items():
        wanted = bool if key == "secure" else str
        if not isinstance(value, wanted):
            # YAML reads 0123 as a number, and another one than it looks like.
            kinds = "true or false" if wanted is bool else "text: put it into quotes"
            raise ConfigError(f"{name}.{key} in the secret file {path} must be {kinds}")
        values[key] = Secret(str(value)) if key in _HIDDEN else value
    return kind(**values)


def _mapping(tree: Any, what: str, known: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{what} must be a mapping with {', '.join(known)}")
    tree = cast("Mapping[Any, Any]", tree)
    for key in tree:
        if key not in known:
            near = difflib.get_close_matches(str(key), list(known), n=1)
            # A key that is no name may be a secret in the wrong place.
            meant = f": did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
            raise ConfigError(f"{what} has an entry that it cannot have{meant}")
    return cast("Mapping[str, Any]", tree)


def _filled(section: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str.__str__(value) if isinstance(value, str) else value for name, value in section.items() if value}


class _Dumper(yaml.SafeDumper):
    """Texts of several lines, such as certificates, are written as they are."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Its stub leaves the value's type open.
    return cast(Any, dumper).represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent)
