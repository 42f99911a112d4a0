"""Drawing among a million weights in proportion to them, vectorised over the batch."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_TOP = 4096
"""Nodes of the uppermost level, about: a running sum over them is cheaper than the levels above would be."""


class SumTree:
    """Non-negative float32 weights of ``size`` leaves, with their sums in float64.

    A binary tree whose uppermost levels are left out: each node is the sum of its two children, and over the nodes of
    the uppermost level there is a running sum. Finding B leaves costs O(B log size), numpy's loops only.

    Guarantees: every sum is computed from the level below it and never adjusted, so the tree depends on the leaves
    alone, whatever order they were set in; restoring the leaves restores all that is found, to the last bit. A leaf of
    weight 0 is never found while there is another one.
    """

    def __init__(self, size: int) -> None:
        """Make a tree of zeros.

        Args:
            size: number of leaves, at least 1.
        """
        self._size = size
        depth = max(0, (max(1, size - 1) // _TOP).bit_length())
        padded = -(-size >> depth) << depth
        self._levels: list[NDArray[Any]] = [np.zeros(padded, np.float32)]
        self._levels += [np.zeros(padded >> level, np.float64) for level in range(1, depth + 1)]
        self._sums = np.zeros(len(self._levels[-1]) + 1, np.float64)
        self._stale = False

    @property
    def leaves(self) -> NDArray[np.float32]:
        """The weights, float32 (size,); a view, not to be written to."""
        return self._levels[0][: self._size]

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._running_sums()[-1])

    def set(self, leaves: NDArray[np.int64], weights: ArrayLike) -> None:
        """Give the named leaves new weights; of a leaf named twice the last weight holds."""
        self._levels[0][leaves] = weights
        for below, level in zip(self._levels, self._levels[1:], strict=False):
            leaves = leaves >> 1
            left = leaves << 1
            # As float64 before the sum: two float32 add up exactly there.
            level[leaves] = below[left].astype(np.float64, copy=False) + below[left + 1]
        self._stale = True

    def set_range(self, first: int, weights: NDArray[Any]) -> None:
        """Give the leaves from ``first`` on new weights; they do not go round the end."""
        last = first + len(weights)
        self._levels[0][first:last] = weights
        for below, level in zip(self._levels, self._levels[1:], strict=False):
            first, last = first >> 1, (last + 1) >> 1
            children = below[first << 1 : last << 1]
            np.add(children[::2], children[1::2], out=level[first:last], dtype=np.float64)
        self._stale = True

    def find(self, masses: NDArray[np.float64]) -> NDArray[np.int64]:
        """The leaves at which the running sum over all leaves passes the masses.

        Args:
            masses: float64 (B,), from 0 to below ``total``; quickest if ascending. Overwritten.

        Returns:
            int64 (B,), a leaf for each mass, drawn in proportion to its weight if the mass is uniform.
        """
        sums = self._running_sums()
        # Rounding may lift a mass to the total, where no leaf is left.
        np.minimum(masses, np.nextafter(sums[-1], 0.0), out=masses)
        nodes = sums.searchsorted(masses, side="right") - 1
        masses -= sums[nodes]
        for level in self._levels[-2::-1]:
            nodes += nodes
            left = level[nodes]
            right = masses >= left
            np.subtract(masses, left, out=masses, where=right)
            nodes += right
        empty = np.flatnonzero(self._levels[0][nodes] == 0)
        if len(empty):
            self._step_back(nodes, empty)
        return nodes

    def _running_sums(self) -> NDArray[np.float64]:
        if self._stale:
            # One after another, never pairwise: the same on every machine.
            np.cumsum(self._levels[-1], out=self._sums[1:])
            self._stale = False
        return self._sums

    def _step_back(self, nodes: NDArray[np.int64], which: NDArray[np.intp]) -> None:
        """Where rounding lifted a mass beyond the last leaf of a node that has weight, take that leaf."""
        weights = self._levels[0]
        for index in which:
            before = np.flatnonzero(weights[: nodes[index]])
            if len(before):
                nodes[index] = before[-1]
