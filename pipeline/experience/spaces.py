"""Gymnasium spaces as columns: how a nested value becomes named arrays and back.

Names are paths: a ``Dict`` observation with a Box under ``position`` has the column
``observation/position``, the first part of a ``Tuple`` is ``observation/0``, and a plain Box is
``observation`` itself. Carried: Box of any real dtype, Discrete, MultiDiscrete, MultiBinary, and
Dict and Tuple of them, nested.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeGuard, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pipeline.errors import SpaceError

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = frozenset(("bool", *_INTEGERS, "float16", "float32", "float64"))
"""Names of the dtypes that a column may have; on the wire always little-endian."""

_MAX_DEPTH = 8
_MAX_PARTS = 256
_MAX_NAME = 256
_MAX_BYTES = 1 << 27


@dataclass(frozen=True, eq=False)
class Column:
    """One named array of a chunk.

    Attributes:
        name: path within the space, such as ``observation/position``.
        dtype: one of `DTYPES`.
        shape: shape of one row.
        low, high: bounds that broadcast against a row, inclusive; None where there are none.
        discrete: values name categories, so the bounds hold for observations as well.

    Raises:
        SpaceError: the dtype is not carried, a row is empty or beyond 128 MiB, or the name is
            empty or too long.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    low: NDArray[Any] | None = None
    high: NDArray[Any] | None = None
    discrete: bool = False

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= _MAX_NAME or not self.name.isprintable():
            raise SpaceError(f"column name {self.name[:64]!r} must be 1 to {_MAX_NAME} printable characters")
        if self.dtype.name not in DTYPES:
            raise SpaceError(f"column {self.name!r} has dtype {self.dtype}, which is not carried")
        if not 0 < self.row_bytes <= _MAX_BYTES:
            raise SpaceError(
                f"column {self.name!r}: a row of shape {list(self.shape)} has {self.row_bytes} "
                f"bytes; it must have 1 to {_MAX_BYTES}"
            )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Column)
            and self.name == other.name
            and self.dtype == other.dtype
            and self.shape == other.shape
            and self.discrete == other.discrete
            and _same(self.low, other.low)
            and _same(self.high, other.high)
        )

    def __hash__(self) -> int:
        return hash((self.name, self.dtype, self.shape))

    @cached_property
    def wire_dtype(self) -> np.dtype[Any]:
        """The dtype in little-endian byte order."""
        return self.dtype.newbyteorder("<")

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape) * self.dtype.itemsize

    @cached_property
    def is_float(self) -> bool:
        """Whether the dtype is a floating one, so that values may be NaN or infinite."""
        return self.dtype.kind == "f"

    @cached_property
    def bounded(self) -> bool:
        """Whether any value of the dtype other than NaN lies outside low … high."""
        if self.low is None or self.high is None or self.dtype.kind == "b":
            return False
        least, most = _limits(self.dtype)
        return bool((self.low > least).any() or (self.high < most).any())

    def contains(self, array: NDArray[Any]) -> bool:
        """Whether all values lie within the bounds; `array` has shape ``(…, *shape)``."""
        if not self.bounded or self.low is None or self.high is None or array.size == 0:
            return True
        if self.low.ndim == 0:
            return bool(array.min() >= self.low and array.max() <= self.high)
        return bool((array >= self.low).all() and (array <= self.high).all())


def flatten_space(prefix: str, space: gym.Space[Any]) -> tuple[Column, ...]:
    """The columns of a space, in the order of its parts.

    Raises:
        SpaceError: the space, or a part of it, cannot be carried.
    """
    columns = tuple(_columns(prefix, space, 0))
    if len(columns) > _MAX_PARTS:
        raise SpaceError(f"{prefix}: {len(columns)} parts; at most {_MAX_PARTS} are carried")
    if len({column.name for column in columns}) != len(columns):
        raise SpaceError(f"{prefix}: two parts of the space have the same path")
    return columns


def flatten(prefix: str, space: gym.Space[Any], value: Any, batch: bool) -> dict[str, NDArray[Any]]:
    """Turn a value of the space into columns.

    Arrays that have the right dtype already are passed on, not copied. Other dtypes are
    converted where no value changes, and between floating dtypes.

    Args:
        prefix: the path's first part, ``observation`` or ``action``.
        space: the space of one value.
        value: a value of the space, or of the batched space where `batch` is set: a Dict of
            arrays with a leading batch dimension, a Tuple of such, an array.
        batch: whether there is a leading batch dimension.

    Returns:
        Arrays by column name, of shape ``(B, *shape)`` or ``shape``.

    Raises:
        SpaceError: the value does not have the space's structure, shapes or dtypes.
    """
    columns: dict[str, NDArray[Any]] = {}
    _flatten(prefix, space, value, batch, columns)
    if batch and len({len(array) for array in columns.values()}) > 1:
        raise SpaceError(f"{prefix}: parts of the value have different batch sizes")
    return columns


def unflatten(prefix: str, space: gym.Space[Any], columns: Mapping[str, NDArray[Any]]) -> Any:
    """The inverse of `flatten`: nested dicts and tuples whose leaves are the columns themselves.

    Nothing is copied; leading dimensions stay as they are.

    Raises:
        SpaceError: a column is missing.
    """
    if _is_dict(space):
        return {key: unflatten(f"{prefix}/{key}", part, columns) for key, part in space.spaces.items()}
    if _is_tuple(space):
        return tuple(unflatten(f"{prefix}/{index}", part, columns) for index, part in enumerate(space.spaces))
    if prefix not in columns:
        raise SpaceError(f"column {prefix!r} is missing")
    return columns[prefix]


def space_to_json(space: gym.Space[Any]) -> dict[str, Any]:
    """A JSON object that describes the space exactly, dtype and bounds included.

    Raises:
        SpaceError: the space cannot be carried.
    """
    if _is_box(space):
        return {
            "type": "box",
            "dtype": np.dtype(space.dtype).name,
            "shape": list(space.shape),
            "low": _bounds_to_json(space.low),
            "high": _bounds_to_json(space.high),
        }
    if _is_discrete(space):
        return {
            "type": "discrete",
            "n": int(space.n),
            "start": int(space.start),
            "dtype": np.dtype(space.dtype).name,
        }
    if _is_multi_discrete(space):
        return {
            "type": "multi-discrete",
            "nvec": space.nvec.tolist(),
            "start": space.start.tolist(),
            "dtype": np.dtype(space.dtype).name,
        }
    if _is_multi_binary(space):
        return {"type": "multi-binary", "shape": list(space.shape)}
    if _is_dict(space):
        parts = [[key, space_to_json(part)] for key, part in space.spaces.items()]
        return {"type": "dict", "spaces": parts}
    if _is_tuple(space):
        members = space.spaces
        return {"type": "tuple", "spaces": [space_to_json(part) for part in members]}
    raise _unsupported("space", space)


def space_from_json(value: Any) -> gym.Space[Any]:
    """The space that `space_to_json` described. The value may be hostile.

    Raises:
        SpaceError: it is malformed, too large, or nested deeper than 8 levels.
    """
    try:
        return _from_json(value, 0)
    except (TypeError, ValueError, OverflowError, AssertionError, LookupError) as error:
        raise SpaceError(f"malformed description of a space: {error}") from error


def dtype_from_json(value: Any) -> np.dtype[Any]:
    """The dtype of that name.

    Raises:
        SpaceError: it is none of `DTYPES`.
    """
    if not isinstance(value, str) or value not in DTYPES:
        raise SpaceError(f"dtype {str(value)[:32]!r} is not one of {', '.join(sorted(DTYPES))}")
    return np.dtype(value)


def shape_from_json(value: Any) -> tuple[int, ...]:
    """A shape from a list of positive integers.

    Raises:
        SpaceError: it is anything else, or has more than 2^27 elements.
    """
    items = cast("list[Any]", value) if isinstance(value, list) else [None]
    if len(items) > 16 or not all(type(item) is int and 0 < item <= _MAX_BYTES for item in items):
        raise SpaceError(f"shape {str(cast('Any', value))[:64]} is not a list of positive integers")
    shape = tuple(cast("list[int]", items))
    if math.prod(shape) > _MAX_BYTES:
        raise SpaceError(f"shape {list(shape)} has more than {_MAX_BYTES} elements")
    return shape


# gymnasium's spaces are generic: plain isinstance leaves their parameter unknown.


def _is_box(space: gym.Space[Any]) -> TypeGuard[spaces.Box[Any]]:
    return isinstance(space, spaces.Box)


def _is_discrete(space: gym.Space[Any]) -> TypeGuard[spaces.Discrete[Any]]:
    return isinstance(space, spaces.Discrete)


def _is_multi_discrete(space: gym.Space[Any]) -> TypeGuard[spaces.MultiDiscrete[Any]]:
    return isinstance(space, spaces.MultiDiscrete)


def _is_multi_binary(space: gym.Space[Any]) -> TypeGuard[spaces.MultiBinary]:
    return isinstance(space, spaces.MultiBinary)


def _is_dict(space: gym.Space[Any]) -> TypeGuard[_DictOf]:
    return isinstance(space, spaces.Dict)


def _is_tuple(space: gym.Space[Any]) -> TypeGuard[_TupleOf]:
    return isinstance(space, spaces.Tuple)


class _DictOf(Protocol):
    spaces: dict[Any, gym.Space[Any]]


class _TupleOf(Protocol):
    spaces: tuple[gym.Space[Any], ...]


def _columns(name: str, space: gym.Space[Any], depth: int) -> list[Column]:
    if depth > _MAX_DEPTH:
        raise SpaceError(f"{name}: nested deeper than {_MAX_DEPTH} levels")
    parts: list[tuple[Any, gym.Space[Any]]]
    if _is_dict(space):
        parts = list(space.spaces.items())
        for key, _ in parts:
            if not isinstance(key, str) or not key or "/" in key:
                raise SpaceError(f"{name}: key {key!r} must be a non-empty string without '/'")
    elif _is_tuple(space):
        parts = list(enumerate(space.spaces))
    else:
        return [_leaf(name, space)]
    if not parts:
        raise SpaceError(f"{name}: the space {space} has no parts")
    return [column for key, part in parts for column in _columns(f"{name}/{key}", part, depth + 1)]


def _leaf(name: str, space: gym.Space[Any]) -> Column:
    if _is_box(space):
        low, high = _compact(space.low), _compact(space.high)
        low, high = (low, high) if low.ndim == high.ndim else (space.low, space.high)
        return Column(name, np.dtype(space.dtype), space.shape, low, high)
    if _is_discrete(space):
        low = np.asarray(int(space.start), dtype=np.int64)
        high = np.asarray(int(space.start) + int(space.n) - 1, dtype=np.int64)
        return Column(name, np.dtype(space.dtype), (), low, high, discrete=True)
    if _is_multi_discrete(space):
        low = space.start.astype(np.int64)
        high = low + space.nvec.astype(np.int64) - 1
        return Column(name, np.dtype(space.dtype), space.shape, low, high, discrete=True)
    if _is_multi_binary(space):
        low, high = np.asarray(0, dtype=np.int8), np.asarray(1, dtype=np.int8)
        return Column(name, np.dtype(np.int8), space.shape, low, high, discrete=True)
    raise _unsupported(name, space)


def _flatten(name: str, space: gym.Space[Any], value: Any, batch: bool, out: dict[str, NDArray[Any]]) -> None:
    if _is_dict(space):
        if not isinstance(value, Mapping) or value.keys() != space.spaces.keys():
            raise SpaceError(f"{name}: expected a dict with keys {list(space.spaces)}")
        for key, part in space.spaces.items():
            _flatten(f"{name}/{key}", part, value[key], batch, out)
    elif _is_tuple(space):
        members = space.spaces
        if not isinstance(value, Sequence) or len(cast("Sequence[Any]", value)) != len(members):
            raise SpaceError(f"{name}: expected a tuple of {len(members)} parts")
        for index, part in enumerate(members):
            _flatten(f"{name}/{index}", part, value[index], batch, out)
    else:
        out[name] = _array(name, space, value, batch)


def _array(name: str, space: gym.Space[Any], value: Any, batch: bool) -> NDArray[Any]:
    dtype = np.dtype(cast("Any", space.dtype))
    shape: tuple[int, ...] = space.shape or ()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise SpaceError(f"{name}: the value is no array: {error}") from error
    if (array.shape[1:] != shape or array.ndim == 0) if batch else array.shape != shape:
        leading = "batch, " if batch else ""
        raise SpaceError(
            f"{name}: the value has shape {list(array.shape)}, expected [{leading}{', '.join(map(str, shape))}]"
        )
    return array if array.dtype == dtype else _convert(name, array, dtype)


def _convert(name: str, array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "biuf":
        raise SpaceError(f"{name}: the value has dtype {array.dtype}, expected {dtype}")
    with np.errstate(invalid="ignore", over="ignore"):
        converted = array.astype(dtype)
    exact = np.can_cast(array.dtype, dtype, "safe") or array.dtype.kind == dtype.kind == "f"
    if not exact and not np.array_equal(converted, array):
        raise SpaceError(f"{name}: the value has dtype {array.dtype} and does not fit {dtype}")
    return converted


def _same(left: NDArray[Any] | None, right: NDArray[Any] | None) -> bool:
    if left is None or right is None:
        return left is right
    return np.array_equal(left, right)


def _compact(bounds: NDArray[Any]) -> NDArray[Any]:
    first = bounds.reshape(-1)[:1]
    return first.reshape(()) if len(first) and (bounds == first[0]).all() else bounds


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    info = np.iinfo(dtype)
    return info.min, info.max


def _bounds_to_json(bounds: NDArray[Any]) -> Any:
    compact = _compact(bounds)
    flat = [
        str(item) if isinstance(item, float) and math.isinf(item) else item for item in compact.reshape(-1).tolist()
    ]
    return flat if compact.ndim else flat[0]


def _bounds_from_json(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if not isinstance(value, list):
        return np.full(shape, _number(value), dtype)
    numbers = [_number(item) for item in cast("list[Any]", value)]
    return np.asarray(numbers, dtype=dtype).reshape(shape)


def _number(item: Any) -> float | int | bool:
    if item in ("inf", "-inf"):
        return float(item)
    if not isinstance(item, int | float) or math.isnan(item):
        raise SpaceError(f"a bound is {str(item)[:32]!r}, expected a number, 'inf' or '-inf'")
    return item


def _from_json(value: Any, depth: int) -> gym.Space[Any]:
    if depth > _MAX_DEPTH:
        raise SpaceError(f"the described space is nested deeper than {_MAX_DEPTH} levels")
    if not isinstance(value, Mapping):
        raise SpaceError("the description of a space must be an object with a type")
    fields = cast("Mapping[str, Any]", value)
    kind = fields.get("type")
    if kind == "box":
        return _box(fields)
    if kind == "discrete":
        n, start, dtype = fields["n"], fields.get("start", 0), dtype_from_json(fields["dtype"])
        if type(n) is not int or type(start) is not int or abs(n) + abs(start) >= 2**62:
            raise SpaceError("discrete: n and start must be integers below 2^62")
        return spaces.Discrete(n, start=start, dtype=dtype.type)
    if kind == "multi-discrete":
        dtype = dtype_from_json(fields["dtype"])
        nvec = np.asarray(fields["nvec"], dtype=dtype)
        start = np.asarray(fields["start"], dtype=dtype)
        return spaces.MultiDiscrete(nvec, dtype=dtype.type, start=start)
    if kind == "multi-binary":
        shape = shape_from_json(fields["shape"])
        if not shape:
            raise SpaceError("multi-binary: the shape has no dimensions")
        first, *rest = shape
        return spaces.MultiBinary(shape if rest else first)
    parts: Any = fields.get("spaces")
    if not isinstance(parts, list) or len(cast("list[Any]", parts)) > _MAX_PARTS:
        raise SpaceError(f"space of type {str(kind)[:32]!r} is not known, or has no parts")
    members = cast("list[Any]", parts)
    if kind == "tuple":
        return spaces.Tuple([_from_json(part, depth + 1) for part in members])
    if kind == "dict":
        return spaces.Dict([(str(key), _from_json(part, depth + 1)) for key, part in members])
    raise SpaceError(f"space of type {str(kind)[:32]!r} is not known")


def _box(fields: Mapping[str, Any]) -> spaces.Box:
    dtype = dtype_from_json(fields["dtype"])
    shape = shape_from_json(fields["shape"])
    if math.prod(shape) * dtype.itemsize > _MAX_BYTES:
        raise SpaceError(f"box: a value of shape {list(shape)} has more than {_MAX_BYTES} bytes")
    low = _bounds_from_json(fields["low"], dtype, shape)
    high = _bounds_from_json(fields["high"], dtype, shape)
    return spaces.Box(low, high, shape, dtype.type)


def _unsupported(name: str, space: gym.Space[Any]) -> SpaceError:
    return SpaceError(
        f"{name}: a space of type {type(space).__name__} is not carried; use Box, Discrete, "
        "MultiDiscrete, MultiBinary, or Dict and Tuple of them"
    )
