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
    """

    name: str
    width: int
    categories: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    scale: float = 1.0

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
    """A multi-layer perceptron from observation columns to the values of discrete actions.

    Numbers enter as float32 (uint8 divided by 255), integers of Discrete and MultiDiscrete spaces
    as one-hot vectors; columns are concatenated in the layout's order. Hidden layers are ReLU.
    """

    def __init__(self, leaves: tuple[_Leaf, ...], actions: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self._leaves = leaves
        self.actions = actions
        widths = (sum(leaf.width for leaf in leaves), *hidden)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Linear(widths[-1], actions))

    def forward(self, observation: Mapping[str, Tensor] | Tensor) -> Tensor:
        """Action values.

        Args:
            observation: columns by name, each (B, *column.shape); or, where the space is not
                nested, that single tensor.

        Returns:
            float32 (B, actions).
        """
        if isinstance(observation, Tensor):
            observation = {self._leaves[0].name: observation}
        features = [leaf.features(observation[leaf.name]) for leaf in self._leaves]
        return self.body(features[0] if len(features) == 1 else torch.cat(features, dim=1))


def build_network(layout: Layout, settings: NetworkSettings, seed: int | None = None) -> QNetwork:
    """A fresh action-value network for the run's spaces, on the CPU.

    Args:
        layout: observation space of Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple
            of them; action space Discrete.
        settings: the hidden layers.
        seed: seed of the initial weights; the global generator is neither read nor moved. None:
            the global generator is used.

    Raises:
        SpaceError: the action space is not Discrete, or the observation space is empty or of
            another kind.
    """
    leaves = tuple(_leaves("observation", layout.observation_space))
    if not leaves:
        raise SpaceError(f"network: the observation space {layout.observation_space} has no columns to read")
    actions = int(discrete_actions(layout).n)
    if seed is None:
        return QNetwork(leaves, actions, settings.hidden)
    with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
        torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
        return QNetwork(leaves, actions, settings.hidden)


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
            yield _Leaf(name, int(np.prod(space.shape)), scale=scale)
        case _:
            raise SpaceError(
                f"network: the observation column {name!r} is a {space}, which no "
                "network here reads; use Box, Discrete, MultiDiscrete, MultiBinary"
            )
