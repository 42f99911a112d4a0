"""What the tests of weights are made of."""

from dataclasses import replace

import numpy as np

from pipeline.weights import ObjectStore, StoreSettings
from pipeline.wire import ModelVersionRecord


class FlakyStore(ObjectStore):
    """A store that can be sent away: it then speaks to a port where nobody listens."""

    def __init__(self, settings: StoreSettings) -> None:
        super().__init__(settings)
        self._there = self._client
        self._away = ObjectStore(replace(settings, endpoint="127.0.0.1:1"))._client

    def away(self, away: bool) -> None:
        self._client = self._away if away else self._there


def version(number: int, epoch: int = 1, run: str = "run", **fields: object) -> ModelVersionRecord:
    """A record as a learner makes it."""
    made = ModelVersionRecord(run=run, epoch=epoch, number=number, key="", size=0, sha256="")
    return replace(made, **fields)


def tensors(number: int) -> dict[str, np.ndarray]:
    """Weights that tell which version they are."""
    return {"w": np.full((4, 3), number, np.float32), "b": np.arange(3, dtype=np.float32)}
