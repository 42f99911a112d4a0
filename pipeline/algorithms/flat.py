"""A network's parameters as one vector.

For small networks most of an update's time is the overhead of one call per parameter: to zero its
gradient, measure it, scale it, step, and copy it to the target network. On one vector each of these
is a single call.
"""

from typing import cast

import torch
from torch import Tensor, nn


class FlatParameters:
    """Moves a network's parameters into one vector, of which they become views.

    The network is used as before; in-place changes go both ways. It must not be moved to another
    device or dtype afterwards, nor its parameters or their gradients be replaced.

    Attributes:
        parameter: all parameters one after the other, float32 (size,); for the optimizer. Its
            gradient is a vector too, of which the parameters' gradients are views.
        size: number of weights.
    """

    def __init__(self, network: nn.Module) -> None:
        parameters = list(network.parameters())
        self.size = sum(parameter.numel() for parameter in parameters)
        values = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self.parameter = nn.Parameter(values)
        self._gradient = torch.zeros_like(values)
        self.parameter.grad = self._gradient
        first = 0
        for parameter in parameters:
            part = slice(first, first + parameter.numel())
            parameter.data = values[part].view_as(parameter)
            if parameter.requires_grad:
                # Backward adds to a gradient that is there, so it stays a view.
                parameter.grad = self._gradient[part].view_as(parameter)
            first = part.stop

    def zero_gradient(self) -> Tensor:
        """Set the gradient to zero and return it, to be filled by the next backward pass."""
        return self._gradient.zero_()

    def clip_gradient(self, limit: float) -> Tensor:
        """Scale the gradient down to the norm ``limit``, if it is longer; 0: leave it.

        Returns:
            Its norm before, a scalar.
        """
        norm = cast(Tensor, torch.linalg.vector_norm(self._gradient))  # pyright: ignore[reportUnknownMemberType]
        if limit:
            # The small term keeps a zero gradient from dividing by zero.
            self._gradient.mul_(torch.clamp_max(limit / (norm + 1e-6), 1.0))
        return norm

    def move_to(self, other: "FlatParameters", rate: float) -> None:
        """Go ``rate`` of the way to another network's weights; 1 copies them to the bit."""
        with torch.no_grad():
            if rate == 1.0:
                self.parameter.copy_(other.parameter)
            else:
                self.parameter.lerp_(other.parameter, rate)
