"""What acting networks have in common: their weights are exchanged while they act."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from pipeline.errors import WeightsCorruptError


class ExchangedWeights:
    """The weights of an acting network, as views into it."""

    def __init__(self, network: nn.Module) -> None:
        network.requires_grad_(False)
        self._tensors: dict[str, Tensor] = dict(network.state_dict())

    @property
    def parameters_nbytes(self) -> int:
        """Bytes of all weights together."""
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def weights(self) -> dict[str, NDArray[Any]]:
        """The weights by name, as writable views into the network."""
        return {name: tensor.numpy() for name, tensor in self._tensors.items()}

    def load(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Copy weights into the network, in place.

        Args:
            tensors: all tensors of the network by name, as the learner's ``weights`` gives them.

        Raises:
            WeightsCorruptError: a name, shape or dtype is not the network's. Nothing was changed.
        """
        own = self.weights()
        if tensors.keys() != own.keys():
            raise WeightsCorruptError(
                f"agent: the weights are of another network, they hold {sorted(tensors)} where "
                f"this network has {sorted(own)}; give actor and learner the same settings"
            )
        for name, array in own.items():
            new = tensors[name]
            if new.shape != array.shape or new.dtype != array.dtype:
                raise WeightsCorruptError(
                    f"agent: weights {name!r} are {new.dtype} of shape {new.shape} where this "
                    f"network has {array.dtype} of shape {array.shape}; give actor and learner "
                    "the same settings"
                )
        for name, array in own.items():
            np.copyto(array, tensors[name])
