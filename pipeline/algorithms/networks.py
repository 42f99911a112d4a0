"""Networks that read observation columns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from pipeline.algorithms.images import ImageEncoder
from pipeline.algorithms.noisy import NoisyLinear
from pipeline.algorithms.settings import NetworkSettings
from pipeline.errors import SpaceError
from pipeline.experience import Layout


@dataclass(frozen=True)
class _Leaf:
    """How one observation column becomes ``width`` float32 features.

    Attributes:
        name: the column.
        width: number of features.
        categories: choices of each integer, one-hot; empty for numbers taken as they are.
        start: the first choice of each integer.
        scale: factor for numbers (1/255 for images).
        shape: of one row, where it may be an image: three axes, uint8 or bool.
    """

    name: str
    width: int
    categories: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    scale: float = 1.0
    shape: tuple[int, ...] = ()

    @property
    def image(self) -> bool:
        """Whether a convolutional network can read it."""
        return len(self.shape) == 3

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


class QNetwork(nn.Module):
    """From observation columns to the values of discrete actions, or to distributions of their returns.

    Numbers enter as float32 (uint8 divided by 255), integers of Discrete and MultiDiscrete spaces
    as one-hot vectors, images by way of a convolutional network of their own where the settings say
    so; columns are concatenated in the layout's order. Hidden layers are ReLU.

    - Dueling (Wang et al., 2016, arXiv 1511.06581, equation 9): value and advantages come from two
      streams, each with the last hidden layer of its own.
    - Noisy (Fortunato et al., 2018, arXiv 1706.10295): every linear layer is noisy, convolutions are not.
    - Categorical (Bellemare et al., 2017, arXiv 1707.06887): each action has logits of ``atoms``
      returns, evenly spaced from ``v_min`` to ``v_max``; its value is the mean.

    Attributes:
        actions: A, the number of actions.
        support: the returns that the logits belong to, float32 (atoms,).
        noise_size: normal deviates that make one sample of the noise; 0 where no layer is noisy.
    """

    support: Tensor

    def __init__(self, leaves: tuple[_Leaf, ...], actions: int, settings: NetworkSettings) -> None:
        super().__init__()
        self._leaves = leaves
        self._atoms = settings.atoms
        self.actions = actions
        self.images = nn.ModuleDict()
        width = 0
        for index, leaf in enumerate(leaves):
            encoder = settings.image
            if leaf.image and (encoder == "nature" or encoder == "impala"):
                image = ImageEncoder(leaf.name, leaf.shape, leaf.scale, encoder)
                self.images[str(index)] = image
                width += image.width
            else:
                width += leaf.width
        widths, outputs = (width, *settings.hidden), actions * settings.atoms
        self._dueling = settings.dueling
        if settings.dueling:
            shared, own = widths[: max(1, len(widths) - 1)], widths[max(0, len(widths) - 2) :]
            self.body = nn.Sequential(*_hidden(shared, settings))
            self.value = nn.Sequential(*_hidden(own, settings), _linear(own[-1], settings.atoms, settings))
            self.advantage = nn.Sequential(*_hidden(own, settings), _linear(own[-1], outputs, settings))
        else:
            self.body = nn.Sequential(*_hidden(widths, settings), _linear(widths[-1], outputs, settings))
        support = torch.linspace(settings.v_min, settings.v_max, settings.atoms)
        self.register_buffer("support", support, persistent=False)
        self._noisy = [module for module in self.modules() if isinstance(module, NoisyLinear)]
        self.noise_size = sum(layer.noise_size for layer in self._noisy)

    def forward(self, observation: Mapping[str, Tensor] | Tensor) -> Tensor:
        """Action values.

        Args:
            observation: columns by name, each (B, *column.shape); or, where the space is not
                nested, that single tensor.

        Returns:
            float32 (B, A).
        """
        return self.values(self.outputs(observation))

    def outputs(self, observation: Mapping[str, Tensor] | Tensor) -> Tensor:
        """What the loss is made of: action values (B, A), or logits (B, A, atoms); else as ``forward``."""
        if isinstance(observation, Tensor):
            observation = {self._leaves[0].name: observation}
        features = [self._features(index, leaf, observation[leaf.name]) for index, leaf in enumerate(self._leaves)]
        hidden = self.body(features[0] if len(features) == 1 else torch.cat(features, dim=1))
        if not self._dueling:
            return hidden if self._atoms == 1 else hidden.reshape(-1, self.actions, self._atoms)
        value = self.value(hidden).reshape(-1, 1, self._atoms)
        advantage = self.advantage(hidden).reshape(-1, self.actions, self._atoms)
        both = value + advantage - advantage.mean(1, keepdim=True)
        return both[:, :, 0] if self._atoms == 1 else both

    def values(self, outputs: Tensor) -> Tensor:
        """Action values, (B, A), of what ``outputs`` gave."""
        return outputs if self._atoms == 1 else outputs.softmax(2) @ self.support

    def set_noise(self, normal: Tensor | None) -> None:
        """Use this noise in every call from now on.

        Args:
            normal: standard normal deviates, float32 (noise_size,); None: no noise, as at first.
        """
        first = 0
        for layer in self._noisy:
            last = first + layer.noise_size
            layer.set_noise(None if normal is None else normal[first:last])
            first = last

    def _features(self, index: int, leaf: _Leaf, column: Tensor) -> Tensor:
        key = str(index)
        return self.images[key](column) if key in self.images else leaf.features(column)


def _hidden(widths: Sequence[int], settings: NetworkSettings) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [_linear(before, after, settings), nn.ReLU()]
    return layers


def _linear(before: int, after: int, settings: NetworkSettings) -> nn.Module:
    return NoisyLinear(before, after, settings.noisy_std) if settings.noisy else nn.Linear(before, after)


def build_network(layout: Layout, settings: NetworkSettings, seed: int | None = None) -> QNetwork:
    """A fresh action-value network for the run's spaces, on the CPU.

    Args:
        layout: observation space of Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple
            of them; action space Discrete.
        settings: its shape.
        seed: seed of the initial weights; the global generator is neither read nor moved. None:
            the global generator is used.

    Raises:
        SpaceError: the action space is not Discrete, or the observation space is empty or of
            another kind, or an image is too small.
    """
    leaves = tuple(_leaves("observation", layout.observation_space))
    if not leaves:
        raise SpaceError(f"network: the observation space {layout.observation_space} has no columns to read")
    actions = int(discrete_actions(layout).n)
    if seed is None:
        return QNetwork(leaves, actions, settings)
    with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
        torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
        return QNetwork(leaves, actions, settings)


def discrete_actions(layout: Layout) -> spaces.Discrete:
    """The run's action space, where it is one that action values can be had for.

    Raises:
        SpaceError: the action space is not Discrete.
    """
    if not isinstance(layout.action_space, spaces.Discrete):
        raise SpaceError(
            f"network: action values need a Discrete action space, but the run's is "
            f"{layout.action_space}; choose an algorithm for that space"
        )
    return layout.action_space


def _leaves(name: str, space: gym.Space[Any]) -> Iterator[_Leaf]:
    """The columns of a space, named and ordered as in the layout."""
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
            yield _Leaf(name, count, (count,), (start,))
        case spaces.MultiDiscrete():
            counts = tuple(int(n) for n in space.nvec.ravel())
            starts = tuple(int(n) for n in space.start.ravel())
            yield _Leaf(name, sum(counts), counts, starts)
        case spaces.MultiBinary():
            yield _Leaf(name, int(np.prod(space.shape)))
        case spaces.Box():
            scale = 1 / 255 if space.dtype == np.uint8 else 1.0
            image = len(space.shape) == 3 and np.dtype(space.dtype).name in ("uint8", "bool")
            yield _Leaf(name, int(np.prod(space.shape)), scale=scale, shape=space.shape if image else ())
        case _:
            raise SpaceError(
                f"network: the observation column {name!r} is a {space}, which no "
                "network here reads; use Box, Discrete, MultiDiscrete, MultiBinary"
            )
