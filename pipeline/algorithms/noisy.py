"""Linear layers whose weights are noisy, so that exploration is learned."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class NoisyLinear(nn.Module):
    """A linear layer with factorised Gaussian noise on its weights (Fortunato et al., 2018, arXiv 1706.10295).

    With noise e of the inputs and f of the outputs: y = (W + S * f e^T) x + b + s * f (section 3, equations 10 and 11).
    Without noise y = W x + b. W, b, S, s are learned.

    The noise is given from outside and no part of the layer's state.
    """

    def __init__(self, inputs: int, outputs: int, std: float) -> None:
        """Make a layer without noise, initialised as in section 3.2.

        Args:
            inputs: features of x.
            outputs: features of y.
            std: sigma_0; S and s begin at sigma_0 / sqrt(inputs).
        """
        super().__init__()
        self.in_features, self.out_features = inputs, outputs
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), std * bound))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), std * bound))
        self._noise: tuple[Tensor, Tensor] | None = None

    @property
    def noise_size(self) -> int:
        """Normal deviates that make one sample of the noise."""
        return self.in_features + self.out_features

    def set_noise(self, normal: Tensor | None) -> None:
        """Use this noise from now on.

        Args:
            normal: standard normal deviates, float32 (noise_size,), those of the inputs first; None: no noise.
        """
        if normal is None:
            self._noise = None
            return
        scaled = normal.sign() * normal.abs().sqrt()
        self._noise = scaled[: self.in_features], scaled[self.in_features :]

    def forward(self, x: Tensor) -> Tensor:
        """float32 (B, inputs) to (B, outputs)."""
        if self._noise is None:
            return functional.linear(x, self.weight, self.bias)
        inputs, outputs = self._noise
        # All rows have the same noise: to add it to the weights costs less than a second product.
        weight = torch.addcmul(self.weight, self.weight_sigma, outputs[:, None] * inputs)
        return functional.linear(x, weight, torch.addcmul(self.bias, self.bias_sigma, outputs))
