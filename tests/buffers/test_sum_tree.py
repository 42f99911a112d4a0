"""The sum tree against a plain running sum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.buffers.sum_tree import SumTree

SIZES = st.one_of(st.integers(1, 40), st.sampled_from([4096, 4097, 8191, 8192, 8193, 20_000, 70_001]))


@settings(deadline=None)
@given(size=SIZES, seed=st.integers(0, 1000), share=st.sampled_from([0.0, 0.5, 0.99]))
def test_finds_what_a_running_sum_finds(size: int, seed: int, share: float) -> None:
    """Small integers as weights, which all sums hold exactly: every mass has one right leaf."""
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random(size) < share, 0, rng.integers(1, 9, size)).astype(np.float32)
    weights[rng.integers(size)] = 3
    tree = SumTree(size)
    tree.set_range(0, weights)
    sums = np.cumsum(weights, dtype=np.float64)
    assert tree.total == sums[-1]
    masses = np.concatenate([np.arange(min(200, int(sums[-1]))), rng.integers(0, sums[-1], 200)]).astype(np.float64)
    np.testing.assert_array_equal(tree.find(masses.copy()), np.searchsorted(sums, masses, side="right"))


@settings(deadline=None)
@given(size=SIZES, seed=st.integers(0, 1000))
def test_depends_on_the_leaves_alone(size: int, seed: int) -> None:
    """However the leaves were set, one by one, in ranges or at once: the same sums to the last bit."""
    rng = np.random.default_rng(seed)
    apart, together = SumTree(size), SumTree(size)
    weights = np.zeros(size, np.float32)
    for _ in range(6):
        rows = rng.integers(0, size, 20)
        values = (rng.random(20) * 10.0 ** rng.integers(-20, 20, 20)).astype(np.float32)
        apart.set(rows, values)
        weights[rows] = values
        first = int(rng.integers(0, size))
        part = rng.random(int(rng.integers(0, size - first + 1)), np.float32)
        apart.set_range(first, part)
        weights[first : first + len(part)] = part
    together.set_range(0, weights)
    np.testing.assert_array_equal(apart.leaves, weights)
    assert apart.total == together.total
    masses = np.sort(rng.random(64)) * apart.total
    np.testing.assert_array_equal(apart.find(masses.copy()), together.find(masses.copy()))


@pytest.mark.parametrize("size", [5, 9000])
def test_an_empty_leaf_is_never_found(size: int) -> None:
    """Not even by masses at or beyond the total, nor between weights of very different size."""
    tree = SumTree(size)
    weights = np.zeros(size, np.float32)
    weights[[1, 3, size // 2]] = [1e-30, 1e30, 1e-30]
    tree.set_range(0, weights)
    masses = np.array([0.0, 1e-31, 1e-30, tree.total / 2, np.nextafter(tree.total, 0), tree.total])
    assert (weights[tree.find(masses)] > 0).all()


def test_of_a_leaf_set_twice_the_last_weight_holds() -> None:
    tree = SumTree(10_000)
    tree.set(np.array([7, 9, 7]), np.array([1.0, 2.0, 5.0]))
    assert (tree.leaves[7], tree.total) == (5.0, 7.0)
