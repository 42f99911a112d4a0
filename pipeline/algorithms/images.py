"""Convolutional networks that turn an image into features."""

from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline.errors import SpaceError

Encoder: TypeAlias = Literal["nature", "impala", "minatar"]

_NATURE_LEAST = 36
_MINATAR_LEAST = 3
_IMPALA_CHANNELS = (16, 32, 32)


class ImageEncoder(nn.Module):
    """A convolutional network from one image column to ``width`` features.

    An image's channels are its last axis (height, width, channels) or its first, whichever is shorter; the last if
    they are equal. uint8 is divided by 255, bool becomes 0 and 1. Where a new first axis holds several images of three
    axes (``environment.frame_stack``), the channels of all of them are read together.
    """

    def __init__(self, name: str, shape: tuple[int, ...], scale: float, encoder: Encoder) -> None:
        """Make an encoder with fresh weights.

        Args:
            name: the column, for messages.
            shape: of one image, three axes, or four where images are stacked.
            scale: factor for its numbers.
            encoder: nature (Mnih et al., 2015, without the last, linear layer) or impala (Espeholt et al., 2018, the
                deep network of figure 3, likewise), or minatar (Young and Tian, 2019, likewise), for images of ten
                pixels or so.

        Raises:
            SpaceError: the image is too small for the encoder.
        """
        super().__init__()
        stacked, first, second, third = shape if len(shape) == 4 else (1, *shape)
        self._channels_last = third <= first
        self._scale = scale
        channels, height, width = (third, first, second) if self._channels_last else (first, second, third)
        channels *= stacked
        if encoder == "nature" and min(height, width) < _NATURE_LEAST:
            raise SpaceError(
                f"network: the image column {name!r} is {height} × {width}, but the Nature network needs at least "
                f"{_NATURE_LEAST} × {_NATURE_LEAST}; use algorithm.network=impala, or mlp"
            )
        if min(height, width) < _MINATAR_LEAST:
            raise SpaceError(
                f"network: the image column {name!r} is {height} × {width}, but convolutions need at least "
                f"{_MINATAR_LEAST} × {_MINATAR_LEAST}; use algorithm.network=mlp"
            )
        self.layers = {"nature": _nature, "impala": _impala, "minatar": _minatar}[encoder](channels)
        with torch.no_grad():
            self.width = self.layers(torch.zeros(1, channels, height, width)).shape[1]

    def forward(self, image: Tensor) -> Tensor:
        """(B, *shape) of the column's dtype to float32 (B, width)."""
        planes = image.movedim(-1, -3) if self._channels_last else image
        if planes.ndim == 5:
            planes = planes.flatten(1, 2)
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


def _minatar(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Flatten())


def _impala(channels: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for following in _IMPALA_CHANNELS:
        layers += [nn.Conv2d(channels, following, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
        layers += [_Residual(following), _Residual(following)]
        channels = following
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten())
