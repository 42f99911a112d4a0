"""Uniform replay over one ring of observation rows."""

import numpy as np
from numpy.typing import NDArray

from pipeline.buffers.ring import RingBuffer

_DENSE = 0.1
"""Share of rows starting a transition below which listing them beats rejecting the others."""


class UniformBuffer(RingBuffer):
    """Keeps the newest ``capacity`` observation rows and draws transitions uniformly.

    Each transition held is equally likely in each place of the batch, with replacement. All else is as in
    `RingBuffer`: same seed and same inserts give the same batches, on any machine.
    """

    def _draw(self, batch_size: int) -> NDArray[np.int64]:
        """B rows that start a transition, each drawn uniformly and independently."""
        rows = self.rows
        density = self._length / rows
        if density < _DENSE:
            starts = np.flatnonzero(self._delta[:rows])
            return starts[self._generator.integers(0, len(starts), batch_size)]
        taken: list[NDArray[np.int64]] = []
        missing = batch_size
        while missing > 0:
            drawn = self._generator.integers(0, rows, int(missing / density * 1.1) + 8)
            drawn = drawn[self._delta[drawn] != 0][:missing]
            taken.append(drawn)
            missing -= len(drawn)
        return taken[0] if len(taken) == 1 else np.concatenate(taken)
