"""Chunks as bytes: exact round trips, views, and refusal of everything else."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.experience import Chunk, Column, Layout, Segments, Version, flatten
from pipeline.wire import DEFAULT_LIMITS, Limits, decode_chunk, encode, encode_chunk

LAYOUT = Layout(
    spaces.Dict(
        image=spaces.Box(0, 255, (2, 3), np.uint8),
        position=spaces.Box(-np.inf, np.inf, (3,), np.float64),
        flags=spaces.MultiBinary(2),
        door=spaces.Box(0, 1, (1,), np.bool_),
    ),
    spaces.Tuple([spaces.Discrete(3, start=-1), spaces.Box(-1, 1, (2,))]),
    (Column("log_probability", np.dtype(np.float16), ()),),
)


def sample(lengths: list[int], seed: int = 0, dropped: int = 0) -> Chunk:
    rng = np.random.default_rng(seed)
    count, steps = len(lengths), sum(lengths)
    segments = Segments(
        np.arange(count, dtype=np.int32),
        rng.integers(0, 1 << 40, count),
        rng.integers(0, 1000, count, dtype=np.int32),
        np.array(lengths, np.int32),
        rng.integers(0, 3, count, dtype=np.uint8),
    )
    rows = steps + count
    columns: dict[str, np.ndarray[Any, Any]] = {
        "observation/image": rng.integers(0, 256, (rows, 2, 3), np.uint8),
        "observation/position": rng.standard_normal((rows, 3)),
        "observation/flags": rng.integers(0, 2, (rows, 2), np.int8),
        "observation/door": rng.integers(0, 2, (rows, 1)).astype(np.bool_),
        "action/0": rng.integers(-1, 2, steps),
        "action/1": rng.uniform(-1, 1, (steps, 2)).astype(np.float32),
        "reward": rng.standard_normal(steps, np.float32),
        "log_probability": -rng.random(steps).astype(np.float16),
    }
    return Chunk(Version(2, 1 << 30), segments, columns, dropped)


def refusal(data: bytes, layout: Layout = LAYOUT, limits: Limits = DEFAULT_LIMITS) -> RejectReason:
    with pytest.raises(InvalidRecordError) as caught:
        decode_chunk(data, layout, limits)
    return caught.value.reason


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 1000))
def test_round_trip(lengths: list[int], seed: int) -> None:
    chunk = sample(lengths, seed, dropped=seed)
    chunk.validate(LAYOUT)
    found = decode_chunk(encode_chunk(chunk, LAYOUT), LAYOUT)
    found.validate(LAYOUT)
    assert (found.version, found.dropped, found.steps) == (chunk.version, seed, chunk.steps)
    for name in ("environment", "episode", "first_step", "length", "ending"):
        left, right = getattr(found.segments, name), getattr(chunk.segments, name)
        assert left.dtype == right.dtype and np.array_equal(left, right)
    assert found.columns.keys() == chunk.columns.keys()
    for name, array in chunk.columns.items():
        assert found.columns[name].dtype == array.dtype
        assert np.array_equal(found.columns[name], array)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(
        [
            spaces.Box(-1, 1, (3,), np.float64),
            spaces.Discrete(4, start=2),
            spaces.MultiDiscrete([[2, 3], [4, 5]]),
            spaces.MultiBinary((2, 2)),
            spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple([spaces.Box(0, 9, (), np.int16)])),
        ]
    ),
    st.integers(0, 100),
)
def test_all_spaces_cross_the_wire(space: Any, seed: int) -> None:
    layout = Layout(space, space)
    batch = [flatten("observation", space, space.sample(), batch=False) for _ in range(4)]
    space.seed(seed)
    columns = {name: np.stack([item[name] for item in batch]) for name in batch[0]}
    columns |= {name.replace("observation", "action", 1): array[:3] for name, array in columns.items()}
    columns["reward"] = np.zeros(3, np.float32)
    one = np.ones(1, np.int32)
    segments = Segments(one, one.astype(np.int64), one, one * 3, one.astype(np.uint8))
    found = decode_chunk(encode_chunk(Chunk(Version(0, 0), segments, columns), layout), layout)
    assert all(np.array_equal(found.columns[name], array) for name, array in columns.items())


def test_columns_are_read_only_views() -> None:
    data = encode_chunk(sample([4, 5]), LAYOUT)
    source = np.frombuffer(data, np.uint8)
    for given_data in (data, memoryview(bytearray(data))):
        chunk = decode_chunk(given_data, LAYOUT)
        for array in chunk.columns.values():
            assert not array.flags.writeable and not array.flags.owndata
    chunk = decode_chunk(data, LAYOUT)
    assert all(np.shares_memory(array, source) for array in chunk.columns.values())
    assert np.shares_memory(chunk.segments.length, source)


def test_decoding_needs_little_memory() -> None:
    layout = Layout(spaces.Box(0, 255, (84, 84), np.uint8), spaces.Discrete(4))
    one = np.ones(1, np.int32)
    segments = Segments(one, one.astype(np.int64), one, one * 500, one.astype(np.uint8))
    columns: dict[str, np.ndarray[Any, Any]] = {
        "observation": np.zeros((501, 84, 84), np.uint8),
        "action": np.zeros(500, np.int64),
        "reward": np.zeros(500, np.float32),
    }
    data = encode_chunk(Chunk(Version(0, 0), segments, columns), layout)
    tracemalloc.start()
    try:
        decode_chunk(data, layout)
        assert tracemalloc.get_traced_memory()[1] < 100_000 < len(data)
    finally:
        tracemalloc.stop()


def test_every_truncation_and_trailing_bytes() -> None:
    data = encode_chunk(sample([2, 1]), LAYOUT)
    for length in range(1, len(data)):
        assert refusal(data[:length]) is RejectReason.CUT_SHORT
    assert refusal(data + b"\0") is RejectReason.TRAILING_BYTES


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_mutations_raise_nothing_else(data: st.DataObject) -> None:
    record = bytearray(encode_chunk(sample([2, 3]), LAYOUT))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(record) - 1))
        if data.draw(st.booleans()):
            record[position] = data.draw(st.integers(0, 255))
        else:
            record[position : position + 2] = data.draw(st.binary(max_size=10))
    try:
        decode_chunk(bytes(record), LAYOUT).validate(LAYOUT)
    except InvalidRecordError as error:
        assert str(error)


def raw(chunk: Chunk, **changes: Any) -> bytes:
    """A chunk's record with fields replaced, past the checks of `encode_chunk`."""
    fields: dict[str, Any] = {
        "version_epoch": chunk.version.epoch,
        "version_number": chunk.version.number,
        "steps": chunk.steps,
        "columns": [{"name": n, "data": a.tobytes()} for n, a in chunk.columns.items()],
    }
    for name in ("environment", "episode", "first_step", "length", "ending"):
        fields[name] = getattr(chunk.segments, name).tobytes()
    return encode("chunk", {**fields, **changes})


def test_broken_tables() -> None:
    chunk = sample([2, 3])
    decode_chunk(raw(chunk), LAYOUT)

    def i4(*values: int) -> bytes:
        return np.array(values, "<i4").tobytes()

    for changes in (
        {"steps": 6},
        {"steps": -5},
        {"length": i4(2, 0)},
        {"length": i4(6, -1)},
        {"length": i4(2)},
        {"length": i4(2, 3) + b"\0"},
        {"length": i4(2**31 - 1, 2**31 - 1)},
        {"ending": b"\0\7"},
        {"ending": b""},
        {"environment": i4(0, -1)},
        {"environment": b"", "episode": b"", "first_step": b"", "length": b"", "ending": b""},
    ):
        assert refusal(raw(chunk, **changes)) is RejectReason.BAD_SEGMENTS, changes
    assert refusal(raw(chunk, version_epoch=-1)) is RejectReason.MALFORMED
    assert refusal(raw(chunk, version_number=1 << 50)) is RejectReason.MALFORMED
    assert refusal(raw(chunk, dropped=-1)) is RejectReason.MALFORMED


def test_broken_columns() -> None:
    chunk = sample([2, 3])
    columns: list[dict[str, Any]] = [{"name": n, "data": a.tobytes()} for n, a in chunk.columns.items()]
    assert refusal(raw(chunk, columns=columns[:-1])) is RejectReason.MISSING_COLUMN
    extra = {"name": "x", "data": b""}
    assert refusal(raw(chunk, columns=[*columns, extra])) is RejectReason.UNKNOWN_COLUMN
    twice = [*columns, columns[0]]
    assert refusal(raw(chunk, columns=twice)) is RejectReason.UNKNOWN_COLUMN
    for index in range(len(columns)):
        for data in (b"", columns[index]["data"][:-1], columns[index]["data"] * 2):
            changed = list(columns)
            changed[index] = {"name": columns[index]["name"], "data": data}
            assert refusal(raw(chunk, columns=changed)) is RejectReason.WRONG_SHAPE


def test_broken_values() -> None:
    for name, value, reason in (
        ("observation/position", np.nan, RejectReason.NOT_FINITE),
        ("reward", np.inf, RejectReason.NOT_FINITE),
        ("log_probability", np.nan, RejectReason.NOT_FINITE),
        ("action/1", np.nan, RejectReason.NOT_FINITE),
        ("action/1", 1.01, RejectReason.OUT_OF_BOUNDS),
        ("action/0", -2, RejectReason.OUT_OF_BOUNDS),
        ("action/0", 2, RejectReason.OUT_OF_BOUNDS),
        ("observation/flags", 2, RejectReason.OUT_OF_BOUNDS),
    ):
        chunk = sample([2, 3])
        chunk.columns[name].reshape(-1)[3] = value
        assert refusal(encode_chunk(chunk, LAYOUT)) is reason
    chunk = sample([2, 3])
    chunk.columns["observation/door"].view(np.uint8)[1] = 2
    assert refusal(encode_chunk(chunk, LAYOUT)) is RejectReason.OUT_OF_BOUNDS


def test_limits() -> None:
    data = encode_chunk(sample([2, 3]), LAYOUT)
    assert refusal(data, limits=Limits(max_bytes=10)) is RejectReason.OVERSIZE
    assert refusal(data, limits=Limits(max_steps=4)) is RejectReason.BAD_SEGMENTS
    assert refusal(data, limits=Limits(max_segments=1)) is RejectReason.BAD_SEGMENTS


def test_another_layout_is_refused() -> None:
    data = encode_chunk(sample([2, 3]), LAYOUT)
    other = Layout(spaces.Box(-1, 1, (2,)), spaces.Discrete(2))
    assert refusal(data, other) is RejectReason.MISSING_COLUMN


def test_encoding_checks_the_layout() -> None:
    chunk = sample([2, 3])
    columns: dict[str, Any] = dict(chunk.columns)
    del columns["reward"]
    for changed in (
        columns,
        {**chunk.columns, "x": np.zeros(5)},
        {**chunk.columns, "reward": np.zeros(5)},
        {**chunk.columns, "reward": np.zeros(4, np.float32)},
    ):
        with pytest.raises(InvalidRecordError):
            encode_chunk(Chunk(chunk.version, chunk.segments, changed), LAYOUT)


def test_strided_columns_are_encoded() -> None:
    chunk = sample([2, 3])
    columns = {name: np.repeat(array, 2, axis=0)[::2] for name, array in chunk.columns.items()}
    strided = Chunk(chunk.version, chunk.segments, columns)
    assert encode_chunk(strided, LAYOUT) == encode_chunk(chunk, LAYOUT)
