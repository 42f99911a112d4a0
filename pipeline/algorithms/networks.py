"""Networks of action values."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from gymnasium import spaces
from torch import Tensor, nn

from pipeline.algorithms.features import ColumnNetwork, Leaf, activation, read_leaves, seeded
from pipeline.algorithms.noisy import NoisyLinear
from pipeline.algorithms.settings import NetworkSettings
from pipeline.errors import SpaceError
from pipeline.experience import Layout


class QNetwork(ColumnNetwork):
    """From observation columns to the values of discrete actions, or to distributions of their returns.

    Observations are read as :class:`ColumnNetwork` does.

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

    def __init__(self, leaves: tuple[Leaf, ...], actions: int, settings: NetworkSettings) -> None:
        super().__init__(leaves, settings.image, settings.normalise)
        self._atoms = settings.atoms
        self.actions = actions
        widths, outputs = (self.width, *settings.hidden), actions * settings.atoms
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
        hidden = self.body(self.features(observation))
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


def _hidden(widths: Sequence[int], settings: NetworkSettings) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [_linear(before, after, settings), activation(settings.activation)]
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
    leaves = read_leaves(layout)
    actions = int(discrete_actions(layout).n)
    return seeded(lambda: QNetwork(leaves, actions, settings), seed)


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
