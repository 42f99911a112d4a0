"""Chunk.validate names the first rule broken."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.experience import Chunk, Ending, Identity, Layout, Segments, Version, new_session

LAYOUT = Layout(
    spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Discrete(3)),
    spaces.Box(-1.0, np.array([1.0, 2.0], np.float32), (2,)),
)


def parts() -> tuple[dict[str, Any], dict[str, Any]]:
    table = {
        "environment": np.array([0, 1], np.int32),
        "episode": np.array([4, 4], np.int64),
        "first_step": np.array([0, 7], np.int32),
        "length": np.array([2, 1], np.int32),
        "ending": np.array([Ending.TERMINATED, Ending.OPEN], np.uint8),
    }
    columns = {
        "observation/a": np.zeros((5, 2), np.float32),
        "observation/b": np.zeros(5, np.int64),
        "action": np.zeros((3, 2), np.float32),
        "reward": np.zeros(3, np.float32),
    }
    return table, columns


def refused(table: dict[str, Any], columns: dict[str, Any], **rest: Any) -> RejectReason:
    with pytest.raises(InvalidRecordError) as caught:
        chunk = Chunk(rest.pop("version", Version(1, 2)), Segments(**table), columns, **rest)
        chunk.validate(LAYOUT)
    return caught.value.reason


def test_a_valid_chunk() -> None:
    table, columns = parts()
    chunk = Chunk(Version(1, 2), Segments(**table), columns)
    chunk.validate(LAYOUT)
    assert (chunk.steps, chunk.rows) == (3, 5)
    assert chunk.segments.step_offsets.tolist() == [0, 2]
    assert chunk.segments.row_offsets.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("length", [2, 0]),
        ("length", [4, -1]),
        ("length", [2**31 - 1, 2**31 - 1]),
        ("first_step", [0, -1]),
        ("first_step", [2**31 - 1, 0]),
        ("environment", [0, -1]),
        ("environment", [0, 0]),
        ("episode", [-1, 4]),
        ("ending", [0, 3]),
        ("ending", [0]),
        ("length", [[2, 1]]),
    ],
)
def test_bad_segments(name: str, value: list[Any]) -> None:
    table, columns = parts()
    table[name] = np.array(value, table[name].dtype)
    assert refused(table, columns) is RejectReason.BAD_SEGMENTS


def test_no_segments_and_wrong_dtype() -> None:
    table, columns = parts()
    empty = {name: array[:0] for name, array in table.items()}
    assert refused(empty, columns) is RejectReason.BAD_SEGMENTS
    table["length"] = table["length"].astype(np.int64)
    assert refused(table, columns) is RejectReason.BAD_SEGMENTS


def test_columns() -> None:
    table, columns = parts()
    extra = np.zeros(3, np.float32)
    without = {k: v for k, v in columns.items() if k != "reward"}
    assert refused(table, without) is RejectReason.MISSING_COLUMN
    assert refused(table, {**without, "x": extra}) is RejectReason.MISSING_COLUMN
    assert refused(table, {**columns, "x": extra}) is RejectReason.UNKNOWN_COLUMN
    for name, array in (
        ("reward", np.zeros(4, np.float32)),
        ("reward", np.zeros(3, np.float64)),
        ("observation/a", np.zeros((3, 2), np.float32)),
        ("action", np.zeros((3, 1), np.float32)),
    ):
        assert refused(table, {**columns, name: array}) is RejectReason.WRONG_SHAPE


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["observation/a", "reward", "action"])
def test_not_finite(name: str, value: float) -> None:
    table, columns = parts()
    columns[name].reshape(-1)[-1] = value
    assert refused(table, columns) is RejectReason.NOT_FINITE


@pytest.mark.parametrize(
    ("name", "value"),
    [("action", 1.5), ("action", -2.0), ("observation/b", 3), ("observation/b", -1)],
)
def test_out_of_bounds(name: str, value: float) -> None:
    table, columns = parts()
    columns[name].reshape(-1)[0] = value
    assert refused(table, columns) is RejectReason.OUT_OF_BOUNDS


def test_box_observations_may_overstep_their_bounds() -> None:
    table, columns = parts()
    columns["observation/a"][:] = 50.0
    columns["action"][:, 1] = 1.5
    Chunk(Version(1, 2), Segments(**table), columns).validate(LAYOUT)


def test_version_and_dropped() -> None:
    table, columns = parts()
    assert refused(table, columns, version=Version(-1, 0)) is RejectReason.MALFORMED
    assert refused(table, columns, version=Version(0, 1 << 40)) is RejectReason.MALFORMED
    assert refused(table, columns, dropped=-1) is RejectReason.MALFORMED


def test_version_text_and_key() -> None:
    version = Version(3, 123456)
    assert Version.parse(str(version)) == version == Version.from_key(version.key)
    assert Version(1, 9) < Version(2, 0) and Version(1, 9).key < Version(2, 0).key
    for text in (
        "",
        "1",
        "1.",
        ".1",
        "-1.2",
        "1.2.3",
        "a.b",
        "1. 2",
        f"{1 << 22}.0",
        "1." + "9" * 99,
    ):
        with pytest.raises(ValueError, match="version"):
            Version.parse(text)


def test_sessions_differ() -> None:
    assert len({new_session() for _ in range(100)}) == 100
    assert len(new_session()) == 32
    assert Identity("a", "b", 1) == ("a", "b", 1)
