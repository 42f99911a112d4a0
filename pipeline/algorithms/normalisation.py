"""Running statistics of observations, by which networks normalise them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.algorithms.arrays import check_shapes
from pipeline.experience import Layout

_EPSILON = 1e-8
_LIMIT = float(np.finfo(np.float32).max)


class ObservationStatistics:
    """Mean and variance of every float column of the observation space, over all rows given so far.

    Moments are in float64 and brought together by Chan's formula (Chan, Golub and LeVeque, 1983), so that neither large
    means nor long runs lose precision. The same rows in the same portions and order give the same bits. Numbers beyond
    float32, in which networks compute, count as its largest.

    Attributes:
        columns: names of the float columns.
        count: rows so far.
    """

    def __init__(self, layout: Layout) -> None:
        self._shapes = {column.name: column.shape for column in layout.observation if column.is_float}
        self.columns = tuple(self._shapes)
        self.count = 0
        self._mean = {name: np.zeros(shape) for name, shape in self._shapes.items()}
        self._m2 = {name: np.zeros(shape) for name, shape in self._shapes.items()}

    def update(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Take in rows.

        Args:
            columns: observation columns by name, each (B, *column.shape); others than float columns are passed over.
        """
        if not self.columns:
            return
        rows = len(columns[self.columns[0]])
        if not rows:
            return
        total = self.count + rows
        for name in self.columns:
            values = np.clip(columns[name], -_LIMIT, _LIMIT, dtype=np.float64)
            mean = values.mean(axis=0)
            delta = mean - self._mean[name]
            self._m2[name] += np.square(values - mean).sum(axis=0) + np.square(delta) * (self.count * rows / total)
            self._mean[name] += delta * (rows / total)
        self.count = total

    def moments(self, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Mean and standard deviation of a column, float32 of its shape; 0 and 1 before the first row.

        The deviation is the root of the variance plus 1e-8, so never 0.
        """
        if not self.count:
            shape = self._shapes[name]
            return np.zeros(shape, np.float32), np.ones(shape, np.float32)
        variance = self._m2[name] / self.count
        return self._mean[name].astype(np.float32), np.sqrt(variance + _EPSILON).astype(np.float32)

    def tensors(self, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Means and standard deviations by column name, as ``moments`` gives them, on a device."""
        moments = {name: self.moments(name) for name in self.columns}
        mean, std = (
            {name: torch.as_tensor(pair[part], device=device) for name, pair in moments.items()} for part in (0, 1)
        )
        return mean, std

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that ``load_state`` needs, as arrays by name: ``count`` int64, ``mean/…`` and ``m2/…`` float64."""
        state: dict[str, NDArray[Any]] = {"count": np.array(self.count, np.int64)}
        for name in self.columns:
            state[f"mean/{name}"] = self._mean[name].copy()
            state[f"m2/{name}"] = self._m2[name].copy()
        return state

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what ``state`` gave.

        Raises:
            CheckpointError: a name or shape is not of these spaces. Nothing was changed then.
        """
        expected: dict[str, tuple[int, ...]] = {"count": ()}
        for name, shape in self._shapes.items():
            expected[f"mean/{name}"] = expected[f"m2/{name}"] = shape
        check_shapes("normalisation", state, expected)
        self.count = int(state["count"])
        self._mean = {name: np.array(state[f"mean/{name}"], np.float64) for name in self.columns}
        self._m2 = {name: np.array(state[f"m2/{name}"], np.float64) for name in self.columns}
