"""How networks read observation columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from pipeline.algorithms.images import ImageEncoder
from pipeline.errors import SpaceError
from pipeline.experience import Layout

LIMIT = 10.0
"""Normalised numbers are brought within plus and minus this."""

_Network = TypeVar("_Network", bound=nn.Module)


@dataclass(frozen=True)
class Leaf:
    """How one observation column becomes ``width`` float32 features.

    Attributes:
        name: the column.
        width: number of features.
        categories: choices of each integer, one-hot; empty for numbers taken as they are.
        start: the first choice of each integer.
        scale: factor for numbers (1/255 for images).
        shape: of one row, where it may be an image: three axes, or four where images are stacked, uint8 or bool.
        real: whether its numbers are floats, which may be normalised.
    """

    name: str
    width: int
    categories: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    scale: float = 1.0
    shape: tuple[int, ...] = ()
    real: bool = False

    @property
    def image(self) -> bool:
        """Whether a convolutional network can read it."""
        return len(self.shape) in (3, 4)

    def features(self, column: Tensor) -> Tensor:
        """(B, *shape) of the column's dtype to float32 (B, width)."""
        batch = column.shape[0]
        if not self.categories:
            flat = column.reshape(batch, self.width).to(torch.float32)
            return flat if self.scale == 1.0 else flat * self.scale
        choices = column.reshape(batch, len(self.categories)).to(torch.int64)
        return torch.cat(
            [
                functional.one_hot(choices[:, i] - start, count).to(torch.float32)
                for i, (count, start) in enumerate(zip(self.categories, self.start, strict=True))
            ],
            dim=1,
        )


class Normaliser(nn.Module):
    """(x - mean) / std, brought within plus and minus ``LIMIT``; at first it changes nothing within that.

    Attributes:
        mean: float32 (width,), no parameter but part of the state.
        std: likewise.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("std", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """float32 (B, width) to the same shape."""
        return ((x - self.mean) / self.std).clamp(-LIMIT, LIMIT)


class ColumnNetwork(nn.Module):
    """Base of networks that read observation columns.

    Numbers enter as float32 (uint8 divided by 255), integers of Discrete and MultiDiscrete spaces as one-hot vectors,
    images by way of a convolutional network of their own where the settings say so, floats normalised where the
    settings say so; columns are concatenated in the layout's order.

    Attributes:
        images: convolutional networks by the column's index.
        normalisers: of float columns by the column's index; empty where nothing is normalised, so that weights of a run
            without it have no trace of it.
        width: number of features.
    """

    def __init__(self, leaves: tuple[Leaf, ...], image: str, normalise: bool) -> None:
        super().__init__()
        self._leaves = leaves
        self.images = nn.ModuleDict()
        self.normalisers = nn.ModuleDict()
        self.width = 0
        for index, leaf in enumerate(leaves):
            if leaf.image and (image == "nature" or image == "impala" or image == "minatar"):
                encoder = ImageEncoder(leaf.name, leaf.shape, leaf.scale, image)
                self.images[str(index)] = encoder
                self.width += encoder.width
                continue
            self.width += leaf.width
            if normalise and leaf.real:
                self.normalisers[str(index)] = Normaliser(leaf.width)

    def features(self, observation: Mapping[str, Tensor] | Tensor) -> Tensor:
        """Features of observations.

        Args:
            observation: columns by name, each (B, *column.shape); or, where the space is not nested, that single
                tensor.

        Returns:
            float32 (B, width).
        """
        if isinstance(observation, Tensor):
            observation = {self._leaves[0].name: observation}
        parts = [self._read(str(index), leaf, observation[leaf.name]) for index, leaf in enumerate(self._leaves)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def set_normalisation(self, mean: Mapping[str, Tensor], std: Mapping[str, Tensor]) -> None:
        """Normalise by these from now on, in place.

        Args:
            mean: float32 of each float column by its name, of the column's shape.
            std: likewise, above 0.
        """
        for index, leaf in enumerate(self._leaves):
            if str(index) in self.normalisers:
                normaliser = cast(Normaliser, self.normalisers[str(index)])
                normaliser.mean.copy_(mean[leaf.name].reshape(-1))
                normaliser.std.copy_(std[leaf.name].reshape(-1))

    def _read(self, key: str, leaf: Leaf, column: Tensor) -> Tensor:
        if key in self.images:
            return self.images[key](column)
        features = leaf.features(column)
        return self.normalisers[key](features) if key in self.normalisers else features


def activation(name: str) -> nn.Module:
    """What follows a hidden layer: ``relu`` or ``tanh``."""
    return nn.Tanh() if name == "tanh" else nn.ReLU()


def seeded(make: Callable[[], _Network], seed: int | None) -> _Network:
    """A fresh network.

    Args:
        make: makes it from torch's global generator.
        seed: seed of the initial weights; the global generator is neither read nor moved. None: it is used.
    """
    if seed is None:
        return make()
    with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
        torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
        return make()


def read_leaves(layout: Layout) -> tuple[Leaf, ...]:
    """The observation columns of the run, named and ordered as in the layout.

    Raises:
        SpaceError: the observation space is empty, or holds something that no network here reads.
    """
    leaves = tuple(_leaves("observation", layout.observation_space))
    if not leaves:
        raise SpaceError(f"network: the observation space {layout.observation_space} has no columns to read")
    return leaves


def _leaves(name: str, space: gym.Space[Any]) -> Iterator[Leaf]:
    match space:
        case spaces.Dict():
            for key, part in space.spaces.items():
                yield from _leaves(f"{name}/{key}", part)
        case spaces.Tuple():
            parts = cast("Sequence[gym.Space[Any]]", cast("Any", space).spaces)
            for index, part in enumerate(parts):
                yield from _leaves(f"{name}/{index}", part)
        case spaces.Discrete():
            count, start = int(space.n), int(space.start)
            yield Leaf(name, count, (count,), (start,))
        case spaces.MultiDiscrete():
            counts = tuple(int(n) for n in space.nvec.ravel())
            starts = tuple(int(n) for n in space.start.ravel())
            yield Leaf(name, sum(counts), counts, starts)
        case spaces.MultiBinary():
            yield Leaf(name, int(np.prod(space.shape)))
        case spaces.Box():
            dtype = np.dtype(cast("Any", space).dtype)
            scale = 1 / 255 if dtype == np.uint8 else 1.0
            image = len(space.shape) in (3, 4) and dtype.name in ("uint8", "bool")
            width = int(np.prod(space.shape))
            yield Leaf(name, width, scale=scale, shape=space.shape if image else (), real=dtype.kind == "f")
        case _:
            raise SpaceError(
                f"network: the observation column {name!r} is a {space}, which no "
                "network here reads; use Box, Discrete, MultiDiscrete, MultiBinary"
            )
