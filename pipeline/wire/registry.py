"""The released schemas: the only ones that bytes from the wire are read with.

``schemas/<name>.avsc`` is what this release writes. Older releases stand in
``schemas/history/<name>/<n>.avsc`` and stay readable. A writer's schema is found by its CRC-64-AVRO
fingerprint; a schema is never taken from the wire.

Schemas are kept to what hostile bytes cannot turn into a bomb: no maps, no recursion, no arrays
whose items may take no bytes. A file that breaks this does not load.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from fastavro import schema as avro

from pipeline.errors import ConfigError
from pipeline.resources import schemas_folder
from pipeline.wire.structure import Reader, compile_reader

_MAGIC = b"\xc3\x01"


@dataclass(frozen=True, eq=False)
class Released:
    """One released schema.

    Attributes:
        name: the schema's name in this package, such as ``chunk``.
        newest: whether this release writes it.
        fingerprint: CRC-64-AVRO, 16 hexadecimal characters in wire (little-endian) order.
        prefix: the ten bytes that open a record: ``C3 01`` and the fingerprint.
        parsed: as fastavro takes it.
        read: reads a body of it, checking every length against the bytes that are left.
    """

    name: str
    newest: bool
    fingerprint: str
    prefix: bytes
    parsed: Any
    read: Reader


class Registry:
    """All schemas of a folder.

    Raises:
        ConfigError: the folder holds no schema, or one that is malformed or may not be read
            from hostile bytes.
    """

    def __init__(self, folder: Path) -> None:
        self._newest: dict[str, Released] = {}
        self._by_prefix: dict[bytes, Released] = {}
        for name, path, newest in _files(folder):
            released = _load(name, path, newest)
            known = self._by_prefix.setdefault(released.prefix, released)
            if known.name != name:
                raise ConfigError(f"schemas {known.name!r} and {name!r} have the same fingerprint: {path}")
            if newest:
                self._newest[name] = known
        if not self._newest:
            raise ConfigError(f"no schema (*.avsc) in {folder}; the installation is incomplete")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all schemas, sorted."""
        return tuple(sorted(self._newest))

    @property
    def released(self) -> tuple[Released, ...]:
        """All released schemas, the newest of each name before its history."""
        return tuple(self._by_prefix.values())

    def newest(self, name: str) -> Released:
        """The schema of that name which this release writes.

        Raises:
            ConfigError: there is none.
        """
        try:
            return self._newest[name]
        except KeyError:
            raise ConfigError(f"no schema is named {name!r}; there are {', '.join(self.names)}") from None

    def find(self, prefix: bytes) -> Released | None:
        """The released schema whose records open with these ten bytes, or None."""
        return self._by_prefix.get(prefix)


@cache
def registry() -> Registry:
    """The schemas that ship with this package, loaded once."""
    return Registry(schemas_folder())


def fingerprint(name: str) -> str:
    """Fingerprint, 16 hexadecimal characters, of the schema that this release writes."""
    return registry().newest(name).fingerprint


def _files(folder: Path) -> Iterator[tuple[str, Path, bool]]:
    for path in sorted(folder.glob("*.avsc")):
        yield path.stem, path, True
    for path in sorted(folder.glob("history/*/*.avsc")):
        yield path.parent.name, path, False


def _load(name: str, path: Path, newest: bool) -> Released:
    try:
        declared: Any = json.loads(path.read_text(encoding="utf-8"))
        parsed: Any = cast("Any", avro).parse_schema(declared, {}, _write_hint=False)
        canonical = avro.to_parsing_canonical_form(parsed)
        digest = avro.fingerprint(canonical, "CRC-64-AVRO")
    except (OSError, ValueError, KeyError, avro.SchemaParseException) as error:
        raise ConfigError(f"schema {path} cannot be read: {error}") from error
    prefix = _MAGIC + bytes.fromhex(digest)
    return Released(name, newest, digest, prefix, parsed, compile_reader(parsed, str(path)))
