"""Avro single-object encoding: ``C3 01``, fingerprint of the writer's schema, body.

Decoding trusts nothing: size first, then the fingerprint against the released schemas, then
every length and count against the bytes that are left, and at last that nothing trails.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, cast

import fastavro
from fastavro.read import SchemaResolutionError

from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.wire.registry import Registry, Released, registry
from pipeline.wire.structure import Body

MAX_BYTES = 1 << 20
"""The largest record that `decode` takes unless told otherwise: 1 MiB."""

_PREFIX = 10


def encode(name: str, record: Mapping[str, Any], schemas: Registry | None = None) -> bytes:
    """Encode with the newest schema of that name.

    Args:
        name: the schema's name, such as ``heartbeat``.
        record: a value for every field that has no default.
        schemas: another registry than the package's.

    Raises:
        InvalidRecordError: MALFORMED, the record does not fit the schema.
        ConfigError: no schema has that name.
    """
    released = (schemas or registry()).newest(name)
    out = io.BytesIO()
    out.write(released.prefix)
    try:
        cast("Any", fastavro).schemaless_writer(out, released.parsed, record)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, IndexError) as error:
        raise InvalidRecordError(RejectReason.MALFORMED, f"the record does not fit schema {name!r}: {error}") from error
    return out.getvalue()


def decode(
    data: bytes | memoryview,
    name: str,
    max_bytes: int = MAX_BYTES,
    schemas: Registry | None = None,
) -> dict[str, Any]:
    """Decode one record of the schema of that name, whichever release wrote it.

    Args:
        data: the whole record.
        name: the schema's name.
        max_bytes: longer input is refused unread.
        schemas: another registry than the package's.

    Returns:
        The fields of the newest schema, with its defaults for fields that the writer did not
        know. ``bytes`` fields are `bytes`.

    Raises:
        InvalidRecordError: NOT_OURS, OVERSIZE, UNKNOWN_SCHEMA, WRONG_SCHEMA, CUT_SHORT,
            TRAILING_BYTES or MALFORMED. Nothing else, whatever the bytes.
    """
    return _plain(decode_views(data, name, max_bytes, schemas))


def decode_views(
    data: bytes | memoryview,
    name: str,
    max_bytes: int = MAX_BYTES,
    schemas: Registry | None = None,
) -> dict[str, Any]:
    """As `decode`, but ``bytes`` fields are read-only memoryviews into `data` where possible.

    They are views if the record was written with the newest schema, and copies otherwise.
    """
    view = _readonly(data)
    if len(view) > max_bytes:
        raise InvalidRecordError(RejectReason.OVERSIZE, f"{len(view)} bytes, of which {max_bytes} are allowed")
    known = schemas or registry()
    released = find_schema(view, name, known)
    body = Body(view, _PREFIX)
    record: dict[str, Any] = released.read(body)
    if body.position != body.end:
        raise InvalidRecordError(
            RejectReason.TRAILING_BYTES,
            f"the record ends at byte {body.position} of {body.end}",
        )
    return record if released.newest else _resolve(view, released, known)


def find_schema(data: bytes | memoryview, name: str, schemas: Registry | None = None) -> Released:
    """The released schema, named `name`, that a record says it was written with.

    Raises:
        InvalidRecordError: NOT_OURS, CUT_SHORT, UNKNOWN_SCHEMA or WRONG_SCHEMA.
    """
    prefix = bytes(data[:_PREFIX])
    if prefix[:2] != b"\xc3\x01"[: len(prefix)] or not prefix:
        raise InvalidRecordError(RejectReason.NOT_OURS, f"the record opens with {prefix[:2].hex() or 'nothing'}")
    if len(prefix) < _PREFIX:
        raise InvalidRecordError(RejectReason.CUT_SHORT, f"{len(prefix)} bytes, less than a fingerprint")
    released = (schemas or registry()).find(prefix)
    if released is None:
        raise InvalidRecordError(
            RejectReason.UNKNOWN_SCHEMA, f"fingerprint {prefix[2:].hex()} is of no released schema"
        )
    if released.name != name:
        raise InvalidRecordError(RejectReason.WRONG_SCHEMA, f"a record of {released.name!r}, expected {name!r}")
    return released


def _resolve(view: memoryview, written: Released, schemas: Registry) -> dict[str, Any]:
    # fastavro resolves schemas, and by now every length and count in the body has been checked.
    newest = schemas.newest(written.name)
    try:
        return cast("Any", fastavro).schemaless_reader(io.BytesIO(view[_PREFIX:]), written.parsed, newest.parsed)
    except (ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError) as error:
        raise InvalidRecordError(
            RejectReason.MALFORMED,
            f"a record of an older {written.name!r} does not resolve: {error}",
        ) from error
    except SchemaResolutionError as error:
        raise InvalidRecordError(
            RejectReason.MALFORMED,
            f"an older {written.name!r} does not resolve to the newest: {error}",
        ) from error


def _readonly(data: bytes | memoryview) -> memoryview:
    view = memoryview(data)
    if view.format != "B" or view.ndim != 1 or not view.c_contiguous:
        view = memoryview(view.tobytes())
    return view.toreadonly()


def _plain(value: Any) -> Any:
    if isinstance(value, memoryview):
        return bytes(cast("memoryview", value))
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[Any]", value)]
    return value
