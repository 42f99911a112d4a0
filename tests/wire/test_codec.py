"""The codec against bytes that nobody honest wrote, and records of older releases."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_one
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import ConfigError, InvalidRecordError, RejectReason
from pipeline.wire import Registry, decode, encode, fingerprint, registry

HEARTBEAT = {
    "run": "r",
    "node": "actor-1",
    "role": "learner",
    "session": "0" * 32,
    "sequence": 7,
    "sent_ms": 1_700_000_000_000,
    "version_epoch": 1,
    "version_number": 300,
    "transitions": 1 << 40,
    "dropped": 0,
    "rejected": 0,
    "positions": [{"session": "1" * 32, "sequence": i, "transitions": i * 64, "stale": i} for i in range(3)],
    "joins": True,
    "members": [{"session": "2" * 32, "actor": "a", "state": "lost", "since": 3, "detail": "silent"}],
    "outcomes": [{"id": "q", "done": True, "detail": "saved"}],
}
PREFIX = registry().newest("heartbeat").prefix


def refusal(data: bytes, name: str = "heartbeat", **rest: Any) -> RejectReason:
    with pytest.raises(InvalidRecordError) as caught:
        decode(data, name, **rest)
    return caught.value.reason


def varint(value: int) -> bytes:
    """Zigzag, of any size."""
    zigzag = (value << 1) if value >= 0 else ((-value) << 1) - 1
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


def test_round_trip() -> None:
    data = encode("heartbeat", HEARTBEAT)
    assert data[:2] == b"\xc3\x01" and data[2:10].hex() == fingerprint("heartbeat")
    assert decode(data, "heartbeat") == HEARTBEAT
    assert decode(memoryview(data), "heartbeat") == HEARTBEAT
    assert decode(memoryview(bytearray(data)), "heartbeat") == HEARTBEAT


def test_agrees_with_fastavro() -> None:
    data = encode("heartbeat", HEARTBEAT)
    schema = registry().newest("heartbeat").parsed
    assert fastavro.schemaless_reader(io.BytesIO(data[10:]), schema, None) == HEARTBEAT


def test_every_schema_is_documented_and_has_a_namespace() -> None:
    names = {"chunk", "episode", "model_version", "run_manifest", "command", "heartbeat", "journal"}
    assert {*names, "telemetry_window", "dead_letter"} == set(registry().names)
    for released in registry().released:
        assert released.parsed["name"].startswith("pipeline.")
        assert released.parsed["doc"]
        assert all(field["doc"] for field in released.parsed["fields"])


def test_every_truncation_is_refused() -> None:
    data = encode("heartbeat", HEARTBEAT)
    assert refusal(b"") is RejectReason.NOT_OURS
    for length in range(1, len(data)):
        assert refusal(data[:length]) is RejectReason.CUT_SHORT, length


@pytest.mark.parametrize("extra", [b"\0", b"\xff" * 100])
def test_trailing_bytes_are_refused(extra: bytes) -> None:
    data = encode("heartbeat", HEARTBEAT)
    assert refusal(data + extra) is RejectReason.TRAILING_BYTES


def test_not_ours_unknown_and_wrong_schema() -> None:
    data = encode("heartbeat", HEARTBEAT)
    assert refusal(b"\xc3\x02" + data[2:]) is RejectReason.NOT_OURS
    assert refusal(b"{}") is RejectReason.NOT_OURS
    assert refusal(b"Obj\x01" + bytes(99)) is RejectReason.NOT_OURS
    assert refusal(data[:2] + bytes(8) + data[10:]) is RejectReason.UNKNOWN_SCHEMA
    assert refusal(data, "command") is RejectReason.WRONG_SCHEMA
    assert refusal(data, max_bytes=len(data) - 1) is RejectReason.OVERSIZE


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_mutations_raise_nothing_else(data: st.DataObject) -> None:
    record = bytearray(encode("heartbeat", HEARTBEAT))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(10, len(record) - 1))
        change = data.draw(st.sampled_from(["set", "insert", "delete"]))
        if change == "set":
            record[position] = data.draw(st.integers(0, 255))
        elif change == "insert":
            record[position:position] = data.draw(st.binary(max_size=12))
        else:
            del record[position : position + 3]
        if len(record) < 12:
            break
    try:
        decode(bytes(record), "heartbeat")
    except InvalidRecordError as error:
        assert str(error)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(registry().names), st.binary(max_size=200))
def test_random_bodies_raise_nothing_else(name: str, body: bytes) -> None:
    try:
        decode(registry().newest(name).prefix + body, name)
    except InvalidRecordError as error:
        assert error.reason in (
            RejectReason.CUT_SHORT,
            RejectReason.TRAILING_BYTES,
            RejectReason.MALFORMED,
        )


def body_before_positions() -> bytes:
    return encode("heartbeat", {**HEARTBEAT, "positions": [], "members": [], "outcomes": []})[:-4]


@pytest.mark.parametrize(
    "tail",
    [
        varint(1 << 62),
        varint(20_000_000),
        varint(-20_000_000) + varint(1 << 40),
        varint(-(1 << 63)) + varint(0),
        varint(-5) + varint(-5),
        varint(1) + varint(1 << 62),
        varint(1) + varint(-1),
        b"\xff" * 30 + b"\x01",
        b"\x80" * 10 + b"\x01",
        varint(1) + varint(2) + b"\xff\xfe" + varint(0) * 3,
    ],
)
def test_hostile_arrays(tail: bytes) -> None:
    data = body_before_positions() + tail
    tracemalloc.start()
    try:
        assert refusal(data) in (RejectReason.CUT_SHORT, RejectReason.MALFORMED)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_many_small_items_stay_bounded() -> None:
    items = varint(200_000) + (varint(0) + varint(1) + varint(1) + varint(1)) * 200_000 + varint(0)
    data = body_before_positions() + items
    tracemalloc.start()
    try:
        assert refusal(data) is RejectReason.MALFORMED
        blocks = (varint(1) + varint(0) + varint(1) + varint(1) + varint(1)) * 150_000 + varint(0)
        assert refusal(body_before_positions() + blocks) is RejectReason.MALFORMED
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_blocks_with_sizes_are_read() -> None:
    item = varint(1) + b"s" + varint(4) + varint(5) + varint(6)
    data = body_before_positions() + varint(-1) + varint(len(item)) + item + varint(0) + b"\0" + varint(0) + varint(0)
    expected = [{"session": "s", "sequence": 4, "transitions": 5, "stale": 6}]
    assert decode(data, "heartbeat")["positions"] == expected


def test_union_enum_int_and_boolean_out_of_range(tmp_path: Path) -> None:
    schemas = make_registry(tmp_path, {"t": record(["null", "long"])})
    prefix = schemas.newest("t").prefix
    for index in (-1, 2, 1 << 40):
        data = prefix + varint(index) + varint(0)
        assert refusal(data, "t", schemas=schemas) is RejectReason.MALFORMED
    enum = {"type": "enum", "name": "E", "symbols": ["a", "b"]}
    for kind, body in (
        (enum, varint(2)),
        (enum, varint(-1)),
        ("int", varint(1 << 31)),
        ("boolean", b"\x02"),
        ("string", varint(2) + b"\xff\xff"),
        ("bytes", varint(-4)),
        ("long", b"\xff" * 9 + b"\x7f"),
    ):
        schemas = make_registry(tmp_path, {"t": record(kind)})
        data = schemas.newest("t").prefix + body
        assert refusal(data, "t", schemas=schemas) is RejectReason.MALFORMED
    for kind, size in (("float", 3), ("double", 7), ("boolean", 0), ("bytes", 0)):
        schemas = make_registry(tmp_path, {"t": record(kind)})
        data = schemas.newest("t").prefix + bytes(size)
        assert refusal(data, "t", schemas=schemas) is RejectReason.CUT_SHORT


def test_all_primitive_values(tmp_path: Path) -> None:
    kinds: list[tuple[Any, Any]] = [
        ("boolean", True),
        ("int", -(1 << 31)),
        ("long", -(1 << 63)),
        ("long", (1 << 63) - 1),
        ("float", 0.5),
        ("double", struct.unpack("<d", b"\1" * 8)[0]),
        ("bytes", b"\0\xff"),
        ("string", "h\u00e9"),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc"),
        ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, "b"),
        (["null", "string"], None),
        (["null", "string"], "x"),
        ({"type": "array", "items": "long"}, [1, 2, 3]),
    ]
    for kind, value in kinds:
        schemas = make_registry(tmp_path, {"t": record(kind)})
        data = encode("t", {"f": value}, schemas)
        assert decode(data, "t", schemas=schemas) == {"f": value}


def test_records_that_do_not_fit_are_refused() -> None:
    for broken in ({}, {**HEARTBEAT, "sequence": "x"}, {**HEARTBEAT, "positions": [3]}):
        with pytest.raises(InvalidRecordError):
            encode("heartbeat", broken)
    with pytest.raises(ConfigError, match="no schema is named"):
        encode("hartbeat", HEARTBEAT)


def record(kind: Any, *more: dict[str, Any], name: str = "f") -> dict[str, Any]:
    fields = [{"name": name, "type": kind}, *more]
    return {"type": "record", "name": "T", "namespace": "pipeline", "fields": fields}


def make_registry(
    folder: Path,
    newest: dict[str, dict[str, Any]],
    history: dict[str, list[dict[str, Any]]] | None = None,
) -> Registry:
    for name, schema in newest.items():
        (folder / f"{name}.avsc").write_text(json.dumps(schema))
    for name, schemas in (history or {}).items():
        (folder / "history" / name).mkdir(parents=True, exist_ok=True)
        for number, schema in enumerate(schemas, 1):
            (folder / "history" / name / f"{number}.avsc").write_text(json.dumps(schema))
    return Registry(folder)


def test_older_releases_resolve_to_the_newest(tmp_path: Path) -> None:
    first = record("int")
    second = record("int", {"name": "gone", "type": "bytes", "default": ""})
    third = record(
        "long",
        {"name": "added", "type": ["null", "string"], "default": None},
        {"name": "list", "type": {"type": "array", "items": "long"}, "default": []},
    )
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    writers = [make_registry(folders[0], {"t": first}), make_registry(folders[1], {"t": second})]
    reader = make_registry(folders[2], {"t": third}, {"t": [first, second]})
    old = [encode("t", {"f": 5}, writers[0]), encode("t", {"f": 6, "gone": b"xy"}, writers[1])]
    assert decode(old[0], "t", schemas=reader) == {"f": 5, "added": None, "list": []}
    assert decode(old[1], "t", schemas=reader) == {"f": 6, "added": None, "list": []}
    new = {"f": 7, "added": "a", "list": [1]}
    assert decode(encode("t", new, reader), "t", schemas=reader) == new
    for data in old:
        for length in range(10, len(data)):
            assert refusal(data[:length], "t", schemas=reader) is RejectReason.CUT_SHORT
        assert refusal(data + b"\0", "t", schemas=reader) is RejectReason.TRAILING_BYTES
    assert refusal(old[0], "t", schemas=writers[1]) is RejectReason.UNKNOWN_SCHEMA


@pytest.mark.parametrize("name", registry().names)
def test_all_released_pairs_resolve(name: str, tmp_path: Path) -> None:
    """Each released schema of the name can be read as the newest one."""
    newest = registry().newest(name)
    for released in registry().released:
        if released.name == name:
            sample = generate_one(released.parsed)
            out = io.BytesIO(released.prefix)
            out.seek(0, io.SEEK_END)
            fastavro.schemaless_writer(out, released.parsed, sample)
            found = decode(out.getvalue(), name)
            assert found.keys() == {field["name"] for field in newest.parsed["fields"]}


@pytest.mark.parametrize("name", registry().names)
def test_schemas_evolve(name: str, tmp_path: Path) -> None:
    """A release with one more field with a default reads what this one writes."""
    newest = registry().newest(name)
    declared: dict[str, Any] = json.loads(json.dumps(newest.parsed))
    declared["fields"].append({"name": "later", "type": "long", "default": 3})
    path = tmp_path / f"{name}.avsc"
    path.write_text(json.dumps(declared))
    history = tmp_path / "history" / name
    history.mkdir(parents=True)
    (history / "1.avsc").write_text(json.dumps(newest.parsed))
    sample: Any = generate_one(newest.parsed)
    data = encode(name, sample)
    found = decode(data, name, schemas=Registry(tmp_path))
    assert found.pop("later") == 3
    assert found == decode(data, name)


@pytest.mark.parametrize(
    "schema",
    [
        record({"type": "map", "values": "long"}),
        record({"type": "array", "items": "null"}),
        record({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}),
        record(["null", "T"]),
        record({"type": "array", "items": "T"}),
        record({"type": "bytes", "logicalType": "decimal", "precision": 4}),
        {"type": "record", "fields": []},
        record("nothing-like-it"),
    ],
)
def test_unsafe_or_malformed_schemas_do_not_load(schema: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        make_registry(tmp_path, {"t": schema})


def test_empty_folders_and_clashes_do_not_load(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no schema"):
        Registry(tmp_path)
    with pytest.raises(ConfigError, match="same fingerprint"):
        make_registry(tmp_path, {"t": record("int"), "u": record("int")})
    (tmp_path / "t.avsc").write_text("{")
    (tmp_path / "u.avsc").unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        Registry(tmp_path)
