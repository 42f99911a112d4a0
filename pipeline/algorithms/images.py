"""Convolutional networks that turn an image into features."""

from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline.errors import SpaceError

Encoder: TypeAlias = Literal["nature", "impala"]

_NATURE_LEAST = 36
_IMPALA_CHANNELS = (16, 32, 32)


class ImageEncoder(nn.Module):
    """A convolutional network from one image column to ``width`` features.

    An image's channels are its last axis (height, width, channels) or its first, whichever is shorter; the last if
    they are equal. uint8 is divided by 255, bool becomes 0 and 1.
    """

    def __init__(self, name: str, shape: tuple[int, ...], scale: float, encoder: Encoder) -> None:
        """Make an encoder with fresh weights.

        Args:
            name: the column, for messages.
            shape: of one image, three axes.
            scale: factor for its numbers.
            encoder: nature (Mnih et al., 2015, without the last, linear layer) or impala (Espeholt et al., 2018, the
                deep network of figure 3, likewise).

        Raises:
            SpaceError: the image is too small for the encoder.
        """
        super().__init__()
        self._channels_last = shape[2] <= shape[0]
        self._scale = scale
        channels, height, width = (shape[2], shape[0], shape[1]) if self._channels_last else shape
        if encoder == "nature" and min(height, width) < _NATURE_LEAST:
            raise SpaceError(
                f"network: the image column {name!r} is {height} × {width}, but the Nature network needs at least "
                f"{_NATURE_LEAST} × {_NATURE_LEAST}; use algorithm.network=impala, or mlp"
            )
        self.layers = _nature(channels) if encoder == "nature" else _impala(channels)
        with torch.no_grad():
            self.width = self.layers(torch.zeros(1, channels, height, width)).shape[1]

    def forward(self, image: Tensor) -> Tensor:
        """(B, *shape) of the column's dtype to float32 (B, width)."""
        planes = image.permute(0, 3, 1, 2) if self._channels_last else image
        # The copy makes rows of the planes contiguous, whatever the order was.
        planes = planes.contiguous().to(torch.float32)
        return self.layers(planes if self._scale == 1.0 else planes * self._scale)


class _Residual(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(functional.relu(self.first(functional.relu(x))))


def _nature(channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, 32, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
        nn.Flatten(),
    )


def _impala(channels: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for following in _IMPALA_CHANNELS:
        layers += [nn.Conv2d(channels, following, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
        layers += [_Residual(following), _Residual(following)]
        channels = following
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten())
