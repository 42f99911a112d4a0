"""Between tensors and the arrays that checkpoints and versions are made of."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pipeline.errors import CheckpointError


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Copies, by name."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}


def to_tensor(array: NDArray[Any]) -> Tensor:
    """A copy of an array as a tensor."""
    return torch.tensor(np.asarray(array))


def check_shapes(algorithm: str, state: Mapping[str, NDArray[Any]], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Check that a checkpoint has the arrays that it should have.

    Raises:
        CheckpointError: a name or shape is another; names up to five of them.
    """
    found = {name: tuple(array.shape) for name, array in state.items()}
    wrong = [name for name in sorted(found.keys() | expected.keys()) if found.get(name) != expected.get(name)]
    if wrong:
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise CheckpointError(
            f"{algorithm}: the checkpoint is of another network: {', '.join(wrong[:5])}{more} missing, "
            "unknown or of another shape; load it with the settings and spaces of its run"
        )


def check_weights(algorithm: str, weights: Mapping[str, NDArray[Any]], network: nn.Module) -> None:
    """Check that published weights are of this network.

    Raises:
        CheckpointError: a name or shape is another.
    """
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    if expected != {name: tuple(array.shape) for name, array in weights.items()}:
        raise CheckpointError(
            f"{algorithm}: the published weights are of another network; use the settings of their run"
        )


def to_generator(algorithm: str, state: NDArray[Any]) -> torch.Generator:
    """The generator whose state, uint8, this is.

    Raises:
        CheckpointError: it is damaged.
    """
    generator = torch.Generator()
    try:
        generator.set_state(to_tensor(state))
    except (RuntimeError, TypeError) as error:
        raise CheckpointError(
            f"{algorithm}: the checkpoint's random generator is damaged ({error}); use the checkpoint before"
        ) from error
    return generator
