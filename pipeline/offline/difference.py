"""What differs between then and now, in words."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.wire import JournalCounters

Tensors = Mapping[str, NDArray[Any]]


def first_tensor_that_differs(then: Tensors, now: Tensors) -> str:
    """The first tensor by name whose bits are not the same, in a clause.

    Args:
        then: as they were published.
        now: as they came out.
    """
    names = sorted(then.keys() | now.keys())
    differing = [name for name in names if not _same(then.get(name), now.get(name))]
    if not differing:
        return "all tensors are the same, their packing is not"
    name = differing[0]
    which = f"tensor {name}" + (f", the first of {len(differing)} of {len(names)}" if len(differing) > 1 else "")
    was, is_now = then.get(name), now.get(name)
    if was is None or is_now is None:
        return f"{which}: it is {'new' if was is None else 'missing'}"
    if was.shape != is_now.shape or was.dtype != is_now.dtype:
        return f"{which}: {was.dtype}{list(was.shape)} then, {is_now.dtype}{list(is_now.shape)} now"
    apart = np.abs(was.astype(np.float64) - is_now.astype(np.float64))
    # NaN differs from NaN where bits are compared, and from nothing where values are.
    count = int(np.count_nonzero(_bits(was) != _bits(is_now)))
    return f"{which}: {count:,} of {was.size:,} values, by at most {np.nanmax(apart, initial=0.0):.3g}"


def counters_that_differ(then: JournalCounters, now: JournalCounters) -> str:
    """The sums that are not the same, in a clause; empty if all are."""
    names = [field.name for field in dataclasses.fields(then) if getattr(then, field.name) != getattr(now, field.name)]
    return ", ".join(
        f"{name.replace('_', ' ')} {getattr(then, name):,} then and {getattr(now, name):,} now" for name in names
    )


def _same(one: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    if one is None or other is None:
        return False
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array).reshape(-1).view(f"V{array.dtype.itemsize}")
