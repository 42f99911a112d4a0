"""Drawing among a million weights in proportion to them, vectorised over the batch."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_FAN = 8
"""Children of a node: the comparisons with all of them fill one 64-bit word, whose bits are counted at once."""
_SHIFT = 3
_TOP = 4096
"""Nodes of the uppermost level, at most: a running sum over them is cheaper than the levels above would be."""
_LINE = 64
"""Bytes of a cache line, and of the sums of a node's children: aligned, a node costs one access to memory."""


class SumTree:
    """Non-negative float32 weights of ``size`` leaves, with their sums in float64.

    A tree of nodes with eight children each, whose uppermost levels are left out: over the nodes of the uppermost
    level there is a running sum. Each node holds the running sum over its children, so that finding a leaf takes one
    comparison with eight numbers a level. Finding B leaves costs O(B log size), numpy's loops only. Memory: 14.3 bytes
    a leaf.

    Guarantees: every sum is computed from the level below it, in one order, and never adjusted, so the tree depends on
    the leaves alone, whatever order they were set in; restoring the leaves restores all that is found, to the last
    bit. A leaf of weight 0 is never found while there is another one.
    """

    def __init__(self, size: int) -> None:
        """Make a tree of zeros.

        Args:
            size: number of leaves, at least 1.
        """
        self._size = size
        depth = 1
        while size > _TOP << (_SHIFT * depth):
            depth += 1
        nodes = -(-size >> (_SHIFT * depth)) << (_SHIFT * depth)
        self._leaves = np.zeros(nodes, np.float32)
        # From the lowest level up: the weights of its nodes as rows of siblings; of each the sum of the siblings before
        # it; and the level above, which holds the sums of the rows.
        self._levels: list[tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64]]] = []
        weights: NDArray[Any] = self._leaves
        for _ in range(depth):
            nodes >>= _SHIFT
            above = np.zeros(nodes, np.float64)
            self._levels.append((weights.reshape(nodes, _FAN), _lines(nodes), above))
            weights = above
        self._top = weights
        self._sums = np.zeros(nodes + 1, np.float64)
        self._stale = False

    @property
    def leaves(self) -> NDArray[np.float32]:
        """The weights, float32 (size,); a view, not to be written to."""
        return self._leaves[: self._size]

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._running_sums()[-1])

    def set(self, leaves: NDArray[np.int64], weights: ArrayLike) -> None:
        """Give the named leaves new weights; of a leaf named twice the last weight holds."""
        self._leaves[leaves] = weights
        nodes = leaves
        for children, before, above in self._levels:
            nodes = nodes >> _SHIFT
            sums = children.take(nodes, axis=0).cumsum(axis=1, dtype=np.float64)
            before[nodes, 1:] = sums[:, :-1]
            above[nodes] = sums[:, -1]
        self._stale = True

    def set_range(self, first: int, weights: NDArray[Any]) -> None:
        """Give the leaves from ``first`` on new weights; they do not go round the end."""
        last = first + len(weights)
        self._leaves[first:last] = weights
        for children, before, above in self._levels:
            first, last = first >> _SHIFT, (last + _FAN - 1) >> _SHIFT
            sums = children[first:last].cumsum(axis=1, dtype=np.float64)
            before[first:last, 1:] = sums[:, :-1]
            above[first:last] = sums[:, -1]
        self._stale = True

    def find(self, masses: NDArray[np.float64]) -> NDArray[np.int64]:
        """The leaves at which the running sum over all leaves passes the masses.

        Args:
            masses: float64 (B,), from 0 to below ``total``; quickest if ascending. Overwritten.

        Returns:
            int64 (B,), a leaf for each mass, drawn in proportion to its weight if the mass is uniform.
        """
        # Without the last sum: a mass that rounding lifted to the total belongs to the last node.
        starts = self._running_sums()[:-1]
        nodes = starts.searchsorted(masses, side="right")
        nodes -= 1
        masses -= starts.take(nodes)
        column = masses[:, None]
        for _, before, _ in reversed(self._levels):
            reached = np.less_equal(before.take(nodes, axis=0), column)
            # One byte for each sibling, 0 or 1; the first one's is 1.
            nodes <<= _SHIFT
            nodes += np.bitwise_count(reached.view(np.uint64)[:, 0])
            nodes -= 1
            masses -= before.take(nodes)
        empty = self._leaves.take(nodes) == 0
        if empty.any():
            self._step_back(nodes, np.flatnonzero(empty))
        return nodes

    def _running_sums(self) -> NDArray[np.float64]:
        if self._stale:
            # One after another, never pairwise: the same on every machine.
            np.cumsum(self._top, out=self._sums[1:])
            self._stale = False
        return self._sums

    def _step_back(self, nodes: NDArray[np.int64], which: NDArray[np.intp]) -> None:
        """Where rounding lifted a mass beyond the last leaf of a node that has weight, take that leaf."""
        for index in which:
            before = np.flatnonzero(self._leaves[: nodes[index]])
            if len(before):
                nodes[index] = before[-1]


def _lines(rows: int) -> NDArray[np.float64]:
    """Zeros, float64 (rows, 8), each row in a cache line of its own."""
    memory = np.zeros(rows * _LINE + _LINE, np.uint8)
    first = -memory.ctypes.data % _LINE
    return memory[first : first + rows * _LINE].view(np.float64).reshape(rows, _FAN)
