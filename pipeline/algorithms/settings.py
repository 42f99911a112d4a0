"""Settings of the algorithms. Imports no torch, so that configs and clients can read them.

The dataclasses are not frozen because Hydra cannot compose frozen ones.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipeline.errors import ConfigError

NETWORKS = ("mlp", "nature", "impala", "minatar")
"""Ways to read an image."""
ACTIVATIONS = ("relu", "tanh")
"""What may follow a hidden layer."""


@dataclass
class NetworkSettings:
    """Shape of the network that turns an observation into action values; learner and actors have the same."""

    hidden: tuple[int, ...] = (128, 128)
    """Units of each hidden layer, from the observation's features to the action values."""
    image: str = "mlp"
    """How image columns (three axes, uint8 or bool) become features: mlp (as they are), nature, impala, minatar."""
    dueling: bool = False
    """Value and advantages in two streams, each with the last hidden layer of its own (Wang et al., 2016)."""
    noisy: bool = False
    """Linear layers with learned noise (Fortunato et al., 2018)."""
    noisy_std: float = 0.5
    """The noise at the beginning, before it is divided by the root of a layer's inputs."""
    atoms: int = 1
    """Points of each action's distribution of returns (Bellemare et al., 2017); 1: values, no distributions."""
    v_min: float = -10.0
    """The least return of a distribution."""
    v_max: float = 10.0
    """The largest return of a distribution."""
    activation: str = "relu"
    """What follows each hidden layer: relu or tanh."""
    normalise: bool = False
    """Whether float observations are brought to mean 0 and deviation 1; the statistics are part of the weights."""

    def __post_init__(self) -> None:
        """Refuse what cannot be built.

        Raises:
            ConfigError: names the setting that is out of range.
        """
        self.hidden = _checked(self.hidden, self.image, self.activation)
        if not 0 <= self.noisy_std < math.inf:
            raise ConfigError(f"algorithm.noisy_std is {self.noisy_std}, but has to be 0 or more")
        if self.atoms < 1:
            raise ConfigError(f"algorithm.categorical.atoms is {self.atoms}, but has to be 1 or more")
        if self.atoms > 1 and not -math.inf < self.v_min < self.v_max < math.inf:
            raise ConfigError(
                f"algorithm.categorical.v_min is {self.v_min} and v_max {self.v_max}, but v_min has to be below v_max"
            )

    @property
    def categorical(self) -> bool:
        """Whether each action has a distribution of returns."""
        return self.atoms > 1


@dataclass
class PolicySettings:
    """Shape of the network that turns an observation into a policy and a value; learner and actors have the same."""

    hidden: tuple[int, ...] = (64, 64)
    """Units of each hidden layer; policy and value have layers of their own."""
    image: str = "mlp"
    """How image columns (three axes, uint8 or bool) become features: mlp (as they are), nature, impala, minatar."""
    activation: str = "tanh"
    """What follows each hidden layer: relu or tanh."""
    normalise: bool = False
    """Whether float observations are brought to mean 0 and deviation 1; the statistics are part of the weights."""

    def __post_init__(self) -> None:
        """Refuse what cannot be built.

        Raises:
            ConfigError: names the setting that is out of range.
        """
        self.hidden = _checked(self.hidden, self.image, self.activation)


def _checked(hidden: tuple[int, ...], image: str, activation: str) -> tuple[int, ...]:
    # Hydra hands tuples back as lists.
    hidden = tuple(hidden)
    if any(units < 1 for units in hidden):
        raise ConfigError(f"network.hidden is {hidden}, but every layer needs at least one unit")
    for name, value, choices in (("network", image, NETWORKS), ("activation", activation, ACTIVATIONS)):
        if value not in choices:
            raise ConfigError(f"algorithm.{name} is {value!r}, but has to be one of {', '.join(choices)}")
    return hidden


@dataclass
class DQNSettings:
    """Settings of the learning rule of DQN and its extensions. The n of n-step returns is the reader's."""

    network: NetworkSettings = field(default_factory=NetworkSettings)
    """Shape of the action-value network."""
    double: bool = True
    """Let the online network choose the action that the target network values."""
    gamma: float = 0.99
    """Discount per environment step; the reader turns it into n-step discounts."""
    learning_rate: float = 1e-3
    """Step size of Adam."""
    adam_epsilon: float = 1e-8
    """Term added to Adam's denominator."""
    batch_size: int = 128
    """Transitions per update."""
    target_interval: int = 1
    """Updates between two moves of the target network towards the online network."""
    target_rate: float = 0.01
    """Share of the way that each move takes; 1 copies the online network (Mnih et al., 2015)."""
    gradient_clip: float = 10.0
    """Largest global norm of a gradient; 0 leaves gradients as they are."""
    huber_delta: float = 1.0
    """TD error beyond which the loss grows linearly; 0 means squared errors throughout. Distributions have no use for
    it."""
    prioritised: bool = False
    """Weigh the losses by the batch's importance weights, and give priorities (Schaul et al., 2016)."""

    def __post_init__(self) -> None:
        """Refuse values out of range.

        Raises:
            ConfigError: names the first setting that is out of range, its value and its range.
        """
        checks = (
            ("gamma", self.gamma, 0.0 <= self.gamma <= 1.0, "between 0 and 1"),
            ("lr", self.learning_rate, self.learning_rate > 0, "above 0"),
            ("adam_eps", self.adam_epsilon, self.adam_epsilon > 0, "above 0"),
            ("batch_size", self.batch_size, self.batch_size >= 1, "1 or more"),
            ("target_interval", self.target_interval, self.target_interval >= 1, "1 or more"),
            ("target_rate", self.target_rate, 0 < self.target_rate <= 1, "above 0 and up to 1"),
            ("grad_clip", self.gradient_clip, self.gradient_clip >= 0, "0 or more"),
            ("huber_delta", self.huber_delta, self.huber_delta >= 0, "0 or more"),
        )
        _refuse(checks)


@dataclass
class PPOSettings:
    """Settings of the learning rule of PPO (Schulman et al., 2017)."""

    network: PolicySettings = field(default_factory=PolicySettings)
    """Shape of the policy and value network."""
    gamma: float = 0.99
    """Discount per environment step."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation (Schulman et al., 2016)."""
    learning_rate: float = 3e-4
    """Step size of Adam, where an update is not told another."""
    adam_epsilon: float = 1e-5
    """Term added to Adam's denominator."""
    epochs: int = 4
    """Passes over the transitions of an update."""
    minibatch_size: int = 256
    """Transitions in one gradient step, about: a rollout is divided evenly."""
    clip: float = 0.2
    """How far the probability ratio may move from 1 before its gradient is cut, where an update is not told another."""
    value_clip: float = 0.0
    """How far a value may move from that before the update until its gradient is cut; 0: no clipping."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    normalise_advantages: bool = True
    """Whether each minibatch's advantages are brought to mean 0 and deviation 1."""
    target_kl: float = 0.0
    """An update ends at the first minibatch that finds the policy moved further than 1.5 times this; 0: never."""
    gradient_clip: float = 0.5
    """Largest global norm of a gradient; 0 leaves gradients as they are."""

    def __post_init__(self) -> None:
        """Refuse values out of range.

        Raises:
            ConfigError: names the first setting that is out of range, its value and its range.
        """
        checks = (
            ("gamma", self.gamma, 0.0 <= self.gamma <= 1.0, "between 0 and 1"),
            ("ppo.gae_lambda", self.gae_lambda, 0.0 <= self.gae_lambda <= 1.0, "between 0 and 1"),
            ("lr", self.learning_rate, self.learning_rate > 0, "above 0"),
            ("adam_eps", self.adam_epsilon, self.adam_epsilon > 0, "above 0"),
            ("ppo.epochs", self.epochs, self.epochs >= 1, "1 or more"),
            ("ppo.minibatch_size", self.minibatch_size, self.minibatch_size >= 1, "1 or more"),
            ("ppo.clip", self.clip, self.clip > 0, "above 0"),
            ("ppo.value_clip", self.value_clip, self.value_clip >= 0, "0 or more"),
            ("ppo.value_coefficient", self.value_coefficient, self.value_coefficient >= 0, "0 or more"),
            ("ppo.entropy_coefficient", self.entropy_coefficient, self.entropy_coefficient >= 0, "0 or more"),
            ("ppo.target_kl", self.target_kl, self.target_kl >= 0, "0 or more"),
            ("grad_clip", self.gradient_clip, self.gradient_clip >= 0, "0 or more"),
        )
        _refuse(checks)


def _refuse(checks: Iterable[tuple[str, float, bool, str]]) -> None:
    for name, value, in_range, allowed in checks:
        if not in_range or not math.isfinite(value):
            raise ConfigError(f"algorithm.{name} is {value}, but has to be {allowed}")
