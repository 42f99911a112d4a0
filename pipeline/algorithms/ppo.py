"""The learning side of PPO."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.algorithms.adam import FlatAdam
from pipeline.algorithms.arrays import check_shapes, check_weights, to_arrays, to_generator, to_tensor
from pipeline.algorithms.flat import FlatParameters
from pipeline.algorithms.gae import generalised_advantages
from pipeline.algorithms.normalisation import ObservationStatistics
from pipeline.algorithms.policy import build_policy
from pipeline.algorithms.policy_losses import clipped_surrogate, moved, standardised, value_errors
from pipeline.algorithms.rollout import Rollout
from pipeline.algorithms.settings import PPOSettings
from pipeline.errors import ConfigError
from pipeline.experience import ACTED_MASK, LOG_PROB, Layout

_ROWS = 4096
"""Observations that are valued in one pass, so that images do not need memory for all of them at once."""
_FIGURES = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction", "gradient_norm")


class PPO:
    """Learns policy and values from rollouts of one version (Schulman et al., 2017, arXiv 1707.06347).

    One update is a whole iteration: advantages by :func:`generalised_advantages` with the values that the network has
    at its beginning; then ``epochs`` passes over the rollout in an order drawn anew for each, in minibatches of about
    ``minibatch_size``, each a gradient step on the clipped objective, the value loss and the entropy bonus. A rollout
    is divided evenly, so that no minibatch is much smaller than the others, whatever its size.

    Guarantees: on the CPU, with one torch thread, same state and same rollout give the same weights to the last bit;
    ``state`` and ``load_state`` do not break that. Orders come from a generator of its own, which is part of the state;
    torch's global one is neither read nor moved.
    """

    def __init__(self, layout: Layout, settings: PPOSettings, seed: int, device: str | torch.device = "cpu") -> None:
        """Make a learner with fresh weights.

        Args:
            layout: the run's columns.
            settings: the learning rule's settings.
            seed: seed of the initial weights and of the orders, 0 or more.
            device: where to compute.

        Raises:
            SpaceError: the spaces are none that a network here reads.
        """
        self._settings = settings
        self._device = torch.device(device)
        self._action = layout.action[0].name
        self._network = build_policy(layout, settings.network, seed).to(self._device)
        self._flat = FlatParameters(self._network)
        self._adam = FlatAdam(self._flat, settings.learning_rate, settings.adam_epsilon)
        self._updates = 0
        # Another stream than that of the initial weights.
        self._orders = torch.Generator()
        self._orders.manual_seed(int(np.random.SeedSequence([seed, 1]).generate_state(1, np.uint64)[0]))

    @property
    def updates(self) -> int:
        """Updates, which are whole iterations, made so far."""
        return self._updates

    def configure(self, settings: PPOSettings) -> None:
        """Go on with other settings, from the next update.

        Raises:
            ConfigError: they make another network. Nothing was changed then.
        """
        if settings.network != self._settings.network:
            raise ConfigError("ppo: the settings make another network; only a new run can have that")
        self._settings = settings

    def set_normalisation(self, statistics: ObservationStatistics) -> None:
        """Bring float observations to mean 0 and deviation 1 by these statistics from now on.

        It changes the policy. So it has to come after the update and before the weights are published: acting and
        learning from what was acted have to see observations alike.
        """
        self._network.set_normalisation(*statistics.tensors(self._device))

    def update(
        self,
        rollout: Rollout,
        *,
        learning_rate: float | None = None,
        clip: float | None = None,
        breathe: Callable[[], None] | None = None,
    ) -> dict[str, float]:
        """Learn from a rollout that the present weights have made.

        Args:
            rollout: its arrays are read during the call only.
            learning_rate: Adam's step size this time, 0 or more; None: the settings'.
            clip: how far probability ratios may move this time, 0 or more; None: the settings'.
            breathe: called after every pass through the network, for what must not wait for the whole update.

        Returns:
            Means over the minibatches of ``policy_loss``, ``value_loss``, ``entropy``, ``kl`` (how far the policy has
            moved), ``clip_fraction`` (of ratios beyond the clip) and ``gradient_norm`` (before clipping);
            ``explained_variance`` of the returns by the values before the update; ``minibatches`` that made a step.

        Raises:
            LearnerError: the rollout's arrays do not fit together.
        """
        settings = self._settings
        clip = settings.clip if clip is None else clip
        self._adam.configure(settings.learning_rate if learning_rate is None else learning_rate, settings.adam_epsilon)
        observations = {name: self._tensor(array) for name, array in rollout.observations.items()}
        breathe = _go_on if breathe is None else breathe
        values = self._values(observations, breathe)
        advantages = generalised_advantages(
            values,
            rollout.reward,
            rollout.length,
            rollout.ending,
            rollout.continues,
            settings.gamma,
            settings.gae_lambda,
        )
        before = values[rollout.rows]
        returns = advantages + before
        mask = rollout.columns.get(ACTED_MASK)
        steps = _Steps(
            observations,
            self._tensor(rollout.rows),
            self._tensor(rollout.columns[self._action]),
            self._tensor(rollout.columns[LOG_PROB]),
            None if mask is None else self._tensor(mask),
            self._tensor(before),
            self._tensor(advantages),
            self._tensor(returns),
        )
        figures = self._descend(steps, clip, breathe)
        self._updates += 1
        return figures | {"explained_variance": _explained_variance(before, returns)}

    def weights(self) -> dict[str, NDArray[Any]]:
        """Copies of the network's tensors by name, to be published."""
        return to_arrays(self._network.state_dict())

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that ``load_state`` needs to go on bit for bit, as arrays by name.

        Names begin with ``network/`` or ``adam/``; ``updates`` is an int64 scalar, ``orders`` the generator's state as
        uint8.
        """
        state = {f"network/{name}": array for name, array in self.weights().items()}
        state |= self._adam.state()
        state["updates"] = np.array(self._updates, np.int64)
        state["orders"] = self._orders.get_state().numpy().copy()
        return state

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on as the learner that gave ``state``.

        Raises:
            CheckpointError: a name or shape is not this learner's, or the generator is damaged. Nothing was changed
                then.
        """
        expected: dict[str, tuple[int, ...]] = {"updates": (), "orders": tuple(self._orders.get_state().shape)}
        expected |= self._adam.shapes()
        for name, tensor in self._network.state_dict().items():
            expected[f"network/{name}"] = tuple(tensor.shape)
        check_shapes("ppo", state, expected)
        self._orders = to_generator("ppo", state["orders"])
        names = self._network.state_dict()
        self._network.load_state_dict({name: to_tensor(state[f"network/{name}"]) for name in names})
        self._adam.load_state(state)
        self._updates = int(state["updates"])

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Take over published weights; the optimizer begins anew.

        Raises:
            CheckpointError: a name or shape is not this learner's. Nothing was changed then.
        """
        check_weights("ppo", weights, self._network)
        self._network.load_state_dict({name: to_tensor(array) for name, array in weights.items()})
        self._adam.restart()

    def _values(self, observations: Mapping[str, Tensor], breathe: Callable[[], None]) -> NDArray[np.float32]:
        count = len(next(iter(observations.values())))
        parts: list[Tensor] = []
        for first in range(0, count, _ROWS):
            with torch.no_grad():
                columns = {name: column[first : first + _ROWS] for name, column in observations.items()}
                parts.append(self._network.values(columns))
            breathe()
        return torch.cat(parts).cpu().numpy()

    def _descend(self, steps: "_Steps", clip: float, breathe: Callable[[], None]) -> dict[str, float]:
        settings = self._settings
        count = len(steps.rows)
        parts = max(1, round(count / settings.minibatch_size))
        figures: list[Tensor] = []
        for _ in range(settings.epochs):
            order = torch.randperm(count, generator=self._orders).to(self._device)
            for part in order.tensor_split(parts):
                found = self._step(steps.take(part), clip)
                if found is None:
                    return _means(figures)
                figures.append(found)
                breathe()
        return _means(figures)

    def _step(self, steps: "_Steps", clip: float) -> Tensor | None:
        """One gradient step; its figures, or None, and no step, where the policy has moved too far."""
        settings = self._settings
        outputs, values = self._network(steps.observations)
        distribution = self._network.distribution
        log_prob = distribution.log_prob(outputs, steps.actions, steps.mask)
        kl = moved(log_prob, steps.log_prob)
        if settings.target_kl and float(kl) > 1.5 * settings.target_kl:
            return None
        advantages = standardised(steps.advantages) if settings.normalise_advantages else steps.advantages
        policy_loss = clipped_surrogate(log_prob, steps.log_prob, advantages, clip).mean()
        value_loss = value_errors(values, steps.values, steps.returns, settings.value_clip).mean()
        entropy = distribution.entropy(outputs, steps.mask).mean()
        loss = policy_loss + settings.value_coefficient * value_loss - settings.entropy_coefficient * entropy
        self._flat.zero_gradient()
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        norm = self._flat.clip_gradient(settings.gradient_clip)
        self._adam.step()
        with torch.no_grad():
            beyond = ((log_prob - steps.log_prob).exp() - 1).abs() > clip
            return torch.stack([policy_loss, value_loss, entropy, kl, beyond.float().mean(), norm])

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)  # pyright: ignore[reportUnknownMemberType]


@dataclass(frozen=True, eq=False)
class _Steps:
    """Steps as tensors: all of a rollout, or, as ``take`` gives them, a minibatch with its own observations."""

    observations: dict[str, Tensor]
    rows: Tensor
    actions: Tensor
    log_prob: Tensor
    mask: Tensor | None
    values: Tensor
    advantages: Tensor
    returns: Tensor

    def take(self, part: Tensor) -> "_Steps":
        rows = self.rows[part]
        return _Steps(
            {name: column[rows] for name, column in self.observations.items()},
            rows,
            self.actions[part],
            self.log_prob[part],
            None if self.mask is None else self.mask[part],
            self.values[part],
            self.advantages[part],
            self.returns[part],
        )


def _go_on() -> None:
    """Nothing waits for this update."""


def _means(figures: list[Tensor]) -> dict[str, float]:
    means = torch.stack(figures).mean(0) if figures else torch.zeros(len(_FIGURES))
    named = {name: float(mean) for name, mean in zip(_FIGURES, means, strict=True)}
    return {**named, "minibatches": float(len(figures))}


def _explained_variance(values: NDArray[np.float32], returns: NDArray[np.float32]) -> float:
    variance = float(returns.var())
    return 1 - float((returns - values).var()) / variance if variance else 0.0
