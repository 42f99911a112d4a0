"""Spaces: columns, flatten and unflatten, JSON round trips, refusals."""

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import SpaceError
from pipeline.experience import (
    Column,
    Layout,
    flatten,
    flatten_space,
    space_from_json,
    space_to_json,
    unflatten,
)

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SHAPES = st.lists(st.integers(1, 3), min_size=0, max_size=3).map(tuple)


@st.composite
def boxes(draw: st.DrawFn) -> spaces.Box:
    dtype = np.dtype(draw(st.sampled_from([*INTEGERS, "float16", "float32", "float64", "bool"])))
    shape = draw(SHAPES)
    size = int(np.prod(shape))
    if dtype.kind == "f":
        ends = draw(st.lists(st.floats(-100, 100, width=16), min_size=2 * size, max_size=2 * size))
        pairs = np.array(ends, dtype).reshape(2, *shape)
        low, high = pairs.min(0), pairs.max(0)
        if draw(st.booleans()):
            high = np.full(shape, np.inf, dtype)
        if draw(st.booleans()):
            low = np.full(shape, -np.inf, dtype)
    elif dtype.kind == "b":
        low, high = np.zeros(shape, dtype), np.ones(shape, dtype)
    else:
        start = draw(st.integers(0, 5))
        low = np.full(shape, start, dtype)
        high = low + np.arange(size, dtype=dtype).reshape(shape)
    return spaces.Box(low, high, shape, dtype.type)


LEAVES: st.SearchStrategy[gym.Space[Any]] = st.one_of(
    boxes(),
    st.builds(
        lambda n, start, dtype: spaces.Discrete(n, start=start, dtype=dtype),
        st.integers(1, 9),
        st.integers(-3, 3),
        st.sampled_from([np.int64, np.int32, np.int16]),
    ),
    st.lists(st.integers(1, 5), min_size=1, max_size=4).map(spaces.MultiDiscrete),
    st.builds(lambda: spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [0, -2]])),
    st.one_of(st.integers(1, 4), st.tuples(st.integers(1, 3), st.integers(1, 3))).map(spaces.MultiBinary),
)
SPACES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abcde"), inner, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=5,
)


def equal(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[k], right[k]) for k in left)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(equal, left, right))
    return np.array_equal(left, right)


@settings(max_examples=60, deadline=None)
@given(SPACES, st.integers(0, 2**31))
def test_single_values_round_trip(space: gym.Space[Any], seed: int) -> None:
    space.seed(seed)
    value = space.sample()
    columns = flatten("observation", space, value, batch=False)
    declared = flatten_space("observation", space)
    assert [c.name for c in declared] == list(columns)
    for column in declared:
        array = columns[column.name]
        assert (array.dtype, array.shape) == (column.dtype, column.shape)
        assert column.contains(array)
    assert equal(unflatten("observation", space, columns), value)


@settings(max_examples=60, deadline=None)
@given(SPACES, st.integers(1, 4), st.integers(0, 2**31))
def test_batches_round_trip_without_copies(space: gym.Space[Any], size: int, seed: int) -> None:
    batched = gym.vector.utils.batch_space(space, size)
    batched.seed(seed)
    value = batched.sample()
    columns = flatten("observation", space, value, batch=True)
    for column in flatten_space("observation", space):
        assert columns[column.name].shape == (size, *column.shape)
        assert columns[column.name].dtype == column.dtype
    back = unflatten("observation", space, columns)
    assert equal(back, value)

    def leaves(part: Any) -> list[Any]:
        if isinstance(part, dict | tuple):
            items = part.values() if isinstance(part, dict) else part
            return [leaf for item in items for leaf in leaves(item)]
        return [part]

    assert all(a is b for a, b in zip(leaves(back), columns.values(), strict=True))


@settings(max_examples=100, deadline=None)
@given(SPACES)
def test_json_round_trip_is_exact(space: gym.Space[Any]) -> None:
    text = json.dumps(space_to_json(space), allow_nan=False)
    again = space_from_json(json.loads(text))
    assert again == space
    assert flatten_space("o", again) == flatten_space("o", space)
    assert json.dumps(space_to_json(again)) == text


def test_nested_names() -> None:
    space = spaces.Dict(position=spaces.Box(-1, 1, (2,)), parts=spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1)]))
    names = {column.name for column in flatten_space("observation", space)}
    assert names == {"observation/position", "observation/parts/0", "observation/parts/1"}


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Dict({"a": spaces.Graph(spaces.Box(0, 1), None)}),
        spaces.Dict({"a/b": spaces.Discrete(2)}),
        spaces.Dict({}),
        spaces.Tuple([]),
        spaces.Box(0, 1, (0,)),
    ],
)
def test_what_cannot_be_carried_is_refused(space: gym.Space[Any]) -> None:
    with pytest.raises(SpaceError):
        flatten_space("observation", space)


@pytest.mark.parametrize(
    ("value", "batch"),
    [
        (np.zeros(3, np.float32), False),
        (np.zeros(2, np.float32), True),
        (np.zeros((4, 3), np.float32), True),
        ("ab", False),
        ([[1, 2], [3]], True),
        (None, False),
    ],
)
def test_wrong_values_are_refused(value: Any, batch: bool) -> None:
    with pytest.raises(SpaceError):
        flatten("observation", spaces.Box(-1, 1, (2,)), value, batch)


def test_wrong_structure_is_refused() -> None:
    space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(2))
    for value in ({"a": 1}, {"a": 1, "b": 1, "c": 1}, 3, (1, 1)):
        with pytest.raises(SpaceError):
            flatten("action", space, value, batch=False)
    with pytest.raises(SpaceError):
        flatten("action", spaces.Tuple([spaces.Discrete(2)]), (1, 2), batch=False)
    with pytest.raises(SpaceError, match="batch sizes"):
        flatten("action", space, {"a": np.zeros(2, int), "b": np.zeros(3, int)}, batch=True)


def test_conversions_change_no_value() -> None:
    box = spaces.Box(0, 255, (2,), np.uint8)
    assert flatten("o", box, [1, 255], False)["o"].dtype == np.uint8
    with pytest.raises(SpaceError):
        flatten("o", box, [1, 256], False)
    with pytest.raises(SpaceError):
        flatten("o", box, [0.5, 1.0], False)
    assert flatten("o", spaces.Box(0, 1, (1,)), np.array([0.1]), False)["o"].dtype == np.float32
    with pytest.raises(SpaceError):
        flatten("o", spaces.Discrete(2), np.nan, False)


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        {},
        {"type": "graph"},
        {"type": "box"},
        {"type": "box", "dtype": "object", "shape": [1], "low": 0, "high": 1},
        {"type": "box", "dtype": "float32", "shape": [10**9, 10**9], "low": 0, "high": 1},
        {"type": "box", "dtype": "float64", "shape": [1 << 27], "low": 0, "high": 1},
        {"type": "box", "dtype": "float32", "shape": [-1], "low": 0, "high": 1},
        {"type": "box", "dtype": "float32", "shape": [2], "low": [0, "x"], "high": 1},
        {"type": "box", "dtype": "float32", "shape": [2], "low": [0, 0, 0], "high": 1},
        {"type": "box", "dtype": "float32", "shape": [2], "low": 1, "high": 0},
        {"type": "box", "dtype": "int8", "shape": [2], "low": 0, "high": 1000},
        {"type": "discrete", "n": -1, "dtype": "int64"},
        {"type": "discrete", "n": "5", "dtype": "int64"},
        {"type": "discrete", "n": 10**30, "dtype": "int64"},
        {"type": "discrete", "n": 5, "dtype": "float32"},
        {"type": "multi-discrete", "nvec": [[1], [1, 2]], "start": [0], "dtype": "int64"},
        {"type": "multi-discrete", "nvec": "x", "start": [0], "dtype": "int64"},
        {"type": "multi-binary", "shape": []},
        {"type": "tuple", "spaces": 3},
        {"type": "dict", "spaces": [1]},
        {"type": "dict", "spaces": [["a"]]},
    ],
)
def test_malformed_descriptions_are_refused(value: Any) -> None:
    with pytest.raises(SpaceError):
        space_from_json(value)


def test_deep_nesting_is_refused() -> None:
    value: dict[str, Any] = {"type": "multi-binary", "shape": [1]}
    for _ in range(500):
        value = {"type": "tuple", "spaces": [value]}
    with pytest.raises(SpaceError, match="deeper"):
        space_from_json(value)


def test_layout_round_trip_and_columns() -> None:
    layout = Layout(
        spaces.Dict(image=spaces.Box(0, 255, (4, 4), np.uint8), goal=spaces.Discrete(3)),
        spaces.Box(-1, 1, (2,)),
        (Column("log_probability", np.dtype(np.float32), ()),),
    )
    again = Layout.from_json(json.loads(json.dumps(layout.to_json())))
    assert again == layout and again.columns == layout.columns
    assert [c.name for c in layout.columns] == [
        *[c.name for c in layout.observation],
        "action",
        "reward",
        "log_probability",
    ]
    assert {c.name for c in layout.enforced} == {"action", "observation/goal"}


@pytest.mark.parametrize("name", ["reward", "action", "observation/x", ""])
def test_extras_may_not_take_other_names(name: str) -> None:
    with pytest.raises(SpaceError):
        extra = Column(name, np.dtype(np.float32), ())
        Layout(spaces.Discrete(2), spaces.Discrete(2), (extra,))


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"observation": 1, "action": 2},
        {
            "observation": space_to_json(spaces.Discrete(2)),
            "action": space_to_json(spaces.Discrete(2)),
            "extras": [{"name": "x", "dtype": "object", "shape": []}],
        },
        {
            "observation": space_to_json(spaces.Discrete(2)),
            "action": space_to_json(spaces.Discrete(2)),
            "extras": [4],
        },
    ],
)
def test_malformed_layouts_are_refused(value: dict[str, Any]) -> None:
    with pytest.raises(SpaceError):
        Layout.from_json(value)
