"""Adam on a network's flat parameters, with a state made of arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.algorithms.arrays import to_arrays, to_tensor
from pipeline.algorithms.flat import FlatParameters

_MOMENTS = ("exp_avg", "exp_avg_sq")


class FlatAdam:
    """Adam (Kingma and Ba, 2015, arXiv 1412.6980) on one vector of parameters.

    Guarantees: on the CPU a state that was loaded goes on to the last bit.
    """

    def __init__(self, flat: FlatParameters, learning_rate: float, epsilon: float) -> None:
        self._flat = flat
        self._device = flat.parameter.device
        fused = self._device.type in ("cpu", "cuda")
        self._adam = torch.optim.Adam([flat.parameter], lr=learning_rate, eps=epsilon, fused=fused)

    def configure(self, learning_rate: float, epsilon: float) -> None:
        """Use these from now on; moments stay as they are."""
        self._adam.param_groups[0].update(lr=learning_rate, eps=epsilon)

    def step(self) -> None:
        """One step along the gradient that the parameters have."""
        self._adam.step()  # pyright: ignore[reportUnknownMemberType]

    def restart(self) -> None:
        """Forget what earlier gradients were."""
        self._adam.state.clear()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the state's arrays by name."""
        return {"adam/step": (), **{f"adam/{name}": (self._flat.size,) for name in _MOMENTS}}

    def state(self) -> dict[str, NDArray[Any]]:
        """The moments, float32 (size,), and the steps made, as float32, by name."""
        found: Mapping[str, Tensor] = self._adam.state.get(self._flat.parameter, {})
        moments = to_arrays({name: found[name] for name in _MOMENTS if name in found})
        state: dict[str, NDArray[Any]] = {
            f"adam/{name}": moments.get(name, np.zeros(self._flat.size, np.float32)) for name in _MOMENTS
        }
        state["adam/step"] = np.array(float(found["step"]) if found else 0.0, np.float32)
        return state

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what ``state`` gave; names and shapes have been checked."""
        self._adam.state.clear()
        if state["adam/step"]:
            self._adam.state[self._flat.parameter] = {
                "step": torch.tensor(float(state["adam/step"]), device=self._device),
                **{name: to_tensor(state[f"adam/{name}"]).to(self._device) for name in _MOMENTS},
            }
