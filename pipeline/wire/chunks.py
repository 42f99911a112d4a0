"""Chunks as bytes. Decoding makes arrays that are read-only views into the record: no copies."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import fastavro
import numpy as np
from numpy.typing import NDArray

from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.experience.chunk import (
    Chunk,
    Segments,
    check_arrays,
    check_names,
    check_segments,
    check_values,
)
from pipeline.experience.layout import Layout
from pipeline.experience.version import Version
from pipeline.wire.codec import decode_views
from pipeline.wire.registry import Registry, registry

_SEGMENT_DTYPES = {
    "environment": np.dtype("<i4"),
    "episode": np.dtype("<i8"),
    "first_step": np.dtype("<i4"),
    "length": np.dtype("<i4"),
    "ending": np.dtype("u1"),
}


@dataclass(frozen=True)
class Limits:
    """What a chunk may cost its reader.

    Attributes:
        max_bytes: of the whole record.
        max_steps: steps in all segments together.
        max_segments: number of segments.
    """

    max_bytes: int = 16 << 20
    max_steps: int = 65536
    max_segments: int = 16384


DEFAULT_LIMITS = Limits()


def encode_chunk(chunk: Chunk, layout: Layout) -> bytes:
    """Encode a chunk with the newest schema.

    Only names, dtypes and shapes are checked here; call `Chunk.validate` for the rest.

    Raises:
        InvalidRecordError: a column is missing, unknown, or not of the layout's dtype and shape.
    """
    segments = chunk.segments
    check_arrays(chunk.columns, layout, chunk.steps, chunk.rows)
    columns = [
        {
            "name": column.name,
            "data": chunk.columns[column.name].astype(column.wire_dtype, copy=False).tobytes(),
        }
        for column in layout.columns
    ]
    record: dict[str, Any] = {
        "version_epoch": chunk.version.epoch,
        "version_number": chunk.version.number,
        "steps": chunk.steps,
        "dropped": chunk.dropped,
        "final": chunk.final,
        "columns": columns,
    }
    for name, dtype in _SEGMENT_DTYPES.items():
        record[name] = getattr(segments, name).astype(dtype, copy=False).tobytes()
    released = registry().newest("chunk")
    out = io.BytesIO()
    out.write(released.prefix)
    cast("Any", fastavro).schemaless_writer(out, released.parsed, record)
    return out.getvalue()


def decode_chunk(
    data: bytes | memoryview,
    layout: Layout,
    limits: Limits = DEFAULT_LIMITS,
    schemas: Registry | None = None,
) -> Chunk:
    """Decode a chunk and check all of it; what returns satisfies `Chunk.validate`.

    Args:
        data: the whole record.
        layout: the run's columns.
        limits: what is refused as too large.
        schemas: another registry than the package's.

    Returns:
        A chunk whose arrays are read-only views into `data`, little-endian, perhaps unaligned.
        They keep `data` alive.

    Raises:
        InvalidRecordError: with the reason of the first rule broken. Nothing else, whatever
            the bytes; memory beyond `data` stays within a small multiple of it.
    """
    record = decode_views(data, "chunk", limits.max_bytes, schemas)
    segments = _segments(record, limits)
    steps, declared = segments.steps, record["steps"]
    if steps != declared or steps > limits.max_steps:
        raise InvalidRecordError(
            RejectReason.BAD_SEGMENTS,
            f"segments have {steps} steps, the chunk says {declared}, {limits.max_steps} are allowed",
        )
    version = Version(record["version_epoch"], record["version_number"])
    if not version.in_range() or record["dropped"] < 0:
        raise InvalidRecordError(
            RejectReason.MALFORMED,
            f"version {version} or dropped count {record['dropped']} is out of range",
        )
    columns = _columns(record["columns"], layout, steps, steps + len(segments))
    check_values(columns, layout)
    return Chunk(version, segments, columns, record["dropped"], record["final"])


def _segments(record: Mapping[str, Any], limits: Limits) -> Segments:
    arrays: dict[str, NDArray[Any]] = {}
    for name, dtype in _SEGMENT_DTYPES.items():
        data = record[name]
        if len(data) % dtype.itemsize:
            raise InvalidRecordError(
                RejectReason.BAD_SEGMENTS,
                f"{name} has {len(data)} bytes, no multiple of {dtype.itemsize}",
            )
        arrays[name] = np.frombuffer(data, dtype)
    if len(arrays["ending"]) > limits.max_segments:
        raise InvalidRecordError(
            RejectReason.BAD_SEGMENTS,
            f"{len(arrays['ending'])} segments, of which {limits.max_segments} are allowed",
        )
    segments = Segments(**arrays)
    check_segments(segments)
    return segments


def _columns(items: list[dict[str, Any]], layout: Layout, steps: int, rows: int) -> dict[str, NDArray[Any]]:
    found = {item["name"]: item["data"] for item in items}
    if len(found) != len(items):
        raise InvalidRecordError(RejectReason.UNKNOWN_COLUMN, "a column is given twice")
    if found.keys() != layout.by_name.keys():
        check_names(found.keys(), layout)
    columns: dict[str, NDArray[Any]] = {}
    observed = len(layout.observation)
    for index, column in enumerate(layout.columns):
        data = found[column.name]
        count = rows if index < observed else steps
        if len(data) != count * column.row_bytes:
            raise InvalidRecordError(
                RejectReason.WRONG_SHAPE,
                f"column {column.name!r} has {len(data)} bytes, expected {count} rows of {column.row_bytes}",
            )
        # Any byte but 0 and 1 would be a boolean that is neither equal to True nor to False.
        if column.dtype.kind == "b" and np.frombuffer(data, np.uint8).max() > 1:
            raise InvalidRecordError(
                RejectReason.OUT_OF_BOUNDS, f"column {column.name!r} holds booleans beyond 0 and 1"
            )
        columns[column.name] = np.frombuffer(data, column.wire_dtype).reshape(count, *column.shape)
    return columns
