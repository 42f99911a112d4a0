"""Adam on a network's flat parameters, with a state made of arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim.adam import adam

from pipeline.algorithms.arrays import to_arrays, to_tensor
from pipeline.algorithms.flat import FlatParameters

_BETA1, _BETA2 = 0.9, 0.999
_MOMENTS = ("exp_avg", "exp_avg_sq")


class FlatAdam:
    """Adam (Kingma and Ba, 2015, arXiv 1412.6980) on one vector of parameters.

    Torch's functional form: the same bits as its optimizer object, whose constructor imports the compiler (two
    seconds), and whose bookkeeping costs more than the step of a small network.

    Guarantees: on the CPU a state that was loaded goes on to the last bit.
    """

    def __init__(self, flat: FlatParameters, learning_rate: float, epsilon: float) -> None:
        self._flat = flat
        self._device = flat.parameter.device
        self._fused = self._device.type in ("cpu", "cuda")
        self._learning_rate, self._epsilon = learning_rate, epsilon
        self._step = torch.zeros((), device=self._device)
        self._moments = {name: torch.zeros(flat.size, device=self._device) for name in _MOMENTS}

    def configure(self, learning_rate: float, epsilon: float) -> None:
        """Use these from now on; moments stay as they are."""
        self._learning_rate, self._epsilon = learning_rate, epsilon

    @torch.no_grad()
    def step(self) -> None:
        """One step along the gradient that the parameters have."""
        gradient = self._flat.parameter.grad
        assert gradient is not None, "flat parameters always have one"
        adam(
            [self._flat.parameter],
            [gradient],
            [self._moments["exp_avg"]],
            [self._moments["exp_avg_sq"]],
            [],
            [self._step],
            fused=self._fused,
            amsgrad=False,
            beta1=_BETA1,
            beta2=_BETA2,
            lr=self._learning_rate,
            weight_decay=0.0,
            eps=self._epsilon,
            maximize=False,
        )

    def restart(self) -> None:
        """Forget what earlier gradients were."""
        for tensor in (self._step, *self._moments.values()):
            tensor.zero_()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the state's arrays by name."""
        return {"adam/step": (), **{f"adam/{name}": (self._flat.size,) for name in _MOMENTS}}

    def state(self) -> dict[str, NDArray[Any]]:
        """The moments, float32 (size,), and the steps made, as float32, by name."""
        moments = to_arrays(self._moments)
        state: dict[str, NDArray[Any]] = {f"adam/{name}": moments[name] for name in _MOMENTS}
        state["adam/step"] = np.array(float(self._step), np.float32)
        return state

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what ``state`` gave; names and shapes have been checked."""
        self._step.fill_(float(state["adam/step"]))
        for name, moment in self._moments.items():
            moment.copy_(to_tensor(state[f"adam/{name}"]))
