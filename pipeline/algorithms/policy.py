"""A network with a policy and a value."""

import math
from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from pipeline.algorithms.distributions import ActionDistribution, action_distribution
from pipeline.algorithms.features import ColumnNetwork, Leaf, activation, read_leaves, seeded
from pipeline.algorithms.settings import PolicySettings
from pipeline.experience import Layout

_HIDDEN_GAIN = math.sqrt(2)
_POLICY_GAIN = 0.01
_VALUE_GAIN = 1.0


class ActorCritic(ColumnNetwork):
    """From observation columns to a distribution of actions, and to the value of the observation.

    Observations are read as :class:`ColumnNetwork` does; policy and value share its convolutional networks, and have
    hidden layers of their own. Weights begin orthogonal, with gain sqrt(2), 0.01 for the policy's last layer, so that
    all actions are about as likely at first, and 1 for the value's; biases begin at 0 (Andrychowicz et al., 2021,
    arXiv 2006.05990; Huang et al., 2022, "The 37 implementation details of PPO"). Deviations of continuous actions are
    parameters that no observation changes; they begin at 1.

    Attributes:
        distribution: what the policy's outputs mean.
    """

    def __init__(self, leaves: tuple[Leaf, ...], distribution: ActionDistribution, settings: PolicySettings) -> None:
        super().__init__(leaves, settings.image, settings.normalise)
        self.distribution = distribution
        self.policy = _trunk(self.width, distribution.heads, settings)
        self.value = _trunk(self.width, 1, settings)
        self.log_std = nn.Parameter(torch.zeros(distribution.deviations)) if distribution.deviations else None
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.orthogonal_(module.weight, _HIDDEN_GAIN)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for trunk, gain in ((self.policy, _POLICY_GAIN), (self.value, _VALUE_GAIN)):
            nn.init.orthogonal_(trunk[-1].weight, gain)  # pyright: ignore[reportArgumentType]

    def forward(self, observation: Mapping[str, Tensor] | Tensor) -> tuple[Tensor, Tensor]:
        """Outputs of the policy, float32 (B, outputs), and values, float32 (B,), of observations.

        Args:
            observation: columns by name, each (B, *column.shape); or, where the space is not nested, that single
                tensor.
        """
        features = self.features(observation)
        return self._outputs(features), self.value(features)[:, 0]

    def outputs(self, observation: Mapping[str, Tensor] | Tensor) -> Tensor:
        """The policy's part of ``forward``, for whoever acts only."""
        return self._outputs(self.features(observation))

    def values(self, observation: Mapping[str, Tensor] | Tensor) -> Tensor:
        """The value's part of ``forward``."""
        return self.value(self.features(observation))[:, 0]

    def _outputs(self, features: Tensor) -> Tensor:
        heads = self.policy(features)
        return heads if self.log_std is None else torch.cat([heads, self.log_std.expand_as(heads)], dim=1)


def _trunk(inputs: int, outputs: int, settings: PolicySettings) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise((inputs, *settings.hidden)):
        layers += [nn.Linear(before, after), activation(settings.activation)]
    return nn.Sequential(*layers, nn.Linear((inputs, *settings.hidden)[-1], outputs))


def build_policy(layout: Layout, settings: PolicySettings, seed: int | None = None) -> ActorCritic:
    """A fresh policy and value network for the run's spaces, on the CPU.

    Args:
        layout: observation space of Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of them; action space
            Discrete, MultiDiscrete, or Box of floats.
        settings: its shape.
        seed: seed of the initial weights; the global generator is neither read nor moved. None: the global generator is
            used.

    Raises:
        SpaceError: one of the spaces is of another kind, or an image is too small.
    """
    leaves, distribution = read_leaves(layout), action_distribution(layout)
    return seeded(lambda: ActorCritic(leaves, distribution, settings), seed)
