"""Distributions of actions: what a policy network's outputs mean, for each kind of action space.

Sampling is done in numpy by whoever acts. Log-probabilities are computed by one function for actor and learner, of the
action as it is stored, so that both give the same action the same number.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from pipeline.algorithms.losses import masked
from pipeline.errors import SpaceError
from pipeline.experience import Layout

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class ActionDistribution(ABC):
    """What the network's outputs, float32 (B, outputs), say about actions.

    Masks are bool (B, actions): what is allowed. A row that allows nothing allows everything. None: everything.

    Attributes:
        heads: numbers that the policy's last layer gives.
        deviations: deviations that are learned beside them, the same for all observations; 0 if none. Outputs are the
            heads, and after them the logarithms of the deviations.
    """

    heads: int
    deviations: int = 0

    @abstractmethod
    def sample(
        self, outputs: NDArray[np.float32], rng: np.random.Generator | None, mask: NDArray[np.bool_] | None
    ) -> NDArray[Any]:
        """Actions of the space, (B, *action.shape) of its dtype; the likeliest ones where ``rng`` is None."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, actions: Tensor, mask: Tensor | None) -> Tensor:
        """Logarithms of the probabilities, or densities, of actions as ``sample`` gives them, (B,)."""

    @abstractmethod
    def entropy(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        """Entropies, (B,)."""


class Categorical(ActionDistribution):
    """Logits of each action of a Discrete space.

    Masked actions have probability 0 (Huang and Ontañón, 2022, arXiv 2006.14171).
    """

    def __init__(self, space: spaces.Discrete) -> None:
        self.heads = int(space.n)
        self._start = int(space.start)
        self._dtype = np.dtype(space.dtype)

    def sample(
        self, outputs: NDArray[np.float32], rng: np.random.Generator | None, mask: NDArray[np.bool_] | None
    ) -> NDArray[Any]:
        logits = outputs if mask is None else np.where(mask | ~mask.any(axis=1, keepdims=True), outputs, -np.inf)
        return (_choose(logits, rng) + self._start).astype(self._dtype)

    def log_prob(self, outputs: Tensor, actions: Tensor, mask: Tensor | None) -> Tensor:
        logits = outputs if mask is None else masked(outputs, mask)
        chosen = actions.to(torch.int64)[:, None] - self._start
        return logits.log_softmax(1).gather(1, chosen)[:, 0]

    def entropy(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        return _entropy(outputs if mask is None else masked(outputs, mask))


class MultiCategorical(ActionDistribution):
    """Logits of each choice of a MultiDiscrete space, whose parts are independent."""

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        self._counts = [int(n) for n in space.nvec.ravel()]
        self._shape = space.nvec.shape
        self._start = space.start.ravel().astype(np.int64)
        self._dtype = np.dtype(space.dtype)
        self.heads = sum(self._counts)

    def sample(
        self, outputs: NDArray[np.float32], rng: np.random.Generator | None, mask: NDArray[np.bool_] | None
    ) -> NDArray[Any]:
        _refuse_mask(mask)
        parts = np.split(outputs, np.cumsum(self._counts)[:-1], axis=1)
        chosen = np.stack([_choose(part, rng) for part in parts], axis=1) + self._start
        return chosen.reshape(-1, *self._shape).astype(self._dtype)

    def log_prob(self, outputs: Tensor, actions: Tensor, mask: Tensor | None) -> Tensor:
        _refuse_mask(mask)
        start = torch.as_tensor(self._start, device=actions.device)
        chosen = actions.reshape(len(actions), -1).to(torch.int64) - start
        logs = [part.log_softmax(1).gather(1, chosen[:, i, None]) for i, part in enumerate(self._parts(outputs))]
        return torch.cat(logs, dim=1).sum(1)

    def entropy(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        _refuse_mask(mask)
        return torch.stack([_entropy(part) for part in self._parts(outputs)]).sum(0)

    def _parts(self, outputs: Tensor) -> tuple[Tensor, ...]:
        return torch.split(outputs, self._counts, dim=1)  # pyright: ignore[reportUnknownMemberType]


class ClippedGaussian(ActionDistribution):
    """A Gaussian in each dimension of a Box, whose draws are clipped to the Box.

    The clipped action is what is stored, sent and learned from, and the distribution is that of the clipped action: all
    that is drawn beyond a bound counts to the bound, which has the probability of that tail, and between the bounds the
    density is the Gaussian's (Fujita and Maeda, 2018, arXiv 1802.07564). So nothing outside the space is ever on the
    log, and the probability ratio is exactly that of the actions that the environment was given. The inverse of a
    squashing function, which has no value at the bounds, is not needed.

    Where a dimension has both bounds, the network speaks in units in which they are -1 and 1; densities are in these
    units. The entropy is the Gaussian's before clipping: a bonus for it is one for wider deviations.
    """

    def __init__(self, space: spaces.Box) -> None:
        if np.dtype(cast(Any, space).dtype).kind != "f":
            raise SpaceError(f"network: a policy needs Box actions of floats, but the run's are {space}")
        self._space = space
        self._dtype = np.dtype(cast(Any, space).dtype)
        low, high = space.low.ravel().astype(np.float32), space.high.ravel().astype(np.float32)
        with np.errstate(over="ignore"):
            half = (high - low) / 2
        both = np.isfinite(half) & (half > 0)
        self._half = np.where(both, half, 1).astype(np.float32)
        self._centre = np.where(both, low + self._half, 0).astype(np.float32)
        self._low, self._high = low, high
        self._bounded = bool(np.isfinite(low).any() or np.isfinite(high).any())
        self.heads = self.deviations = len(low)

    def sample(
        self, outputs: NDArray[np.float32], rng: np.random.Generator | None, mask: NDArray[np.bool_] | None
    ) -> NDArray[Any]:
        _refuse_mask(mask)
        units, logs = outputs[:, : self.heads].astype(np.float64), outputs[:, self.heads :]
        if rng is not None:
            units = units + np.exp(logs) * rng.standard_normal(units.shape)
        actions = (units * self._half + self._centre).reshape(-1, *self._space.shape)
        return np.clip(actions.astype(self._dtype), self._space.low, self._space.high)

    def log_prob(self, outputs: Tensor, actions: Tensor, mask: Tensor | None) -> Tensor:
        _refuse_mask(mask)
        mean, logs = outputs.chunk(2, dim=1)
        low, high, half, centre = (
            torch.as_tensor(array, device=outputs.device) for array in (self._low, self._high, self._half, self._centre)
        )
        taken = actions.reshape(len(actions), -1).to(torch.float32)
        away = ((taken - centre) / half - mean) * torch.exp(-logs)
        log_prob = -0.5 * away.square() - logs - _HALF_LOG_2PI
        if self._bounded:
            log_prob = torch.where(taken <= low, _log_tail(away), log_prob)
            log_prob = torch.where(taken >= high, _log_tail(-away), log_prob)
        return log_prob.sum(1)

    def entropy(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        _refuse_mask(mask)
        return (outputs[:, self.heads :] + (0.5 + _HALF_LOG_2PI)).sum(1)


def action_distribution(layout: Layout) -> ActionDistribution:
    """The distribution that goes with the run's action space.

    Raises:
        SpaceError: the space is not Discrete, MultiDiscrete, or a Box of floats.
    """
    match layout.action_space:
        case spaces.Discrete() as space:
            return Categorical(space)
        case spaces.MultiDiscrete() as space:
            return MultiCategorical(space)
        case spaces.Box() as space:
            return ClippedGaussian(space)
        case space:
            raise SpaceError(
                f"network: a policy needs Discrete, MultiDiscrete or Box actions, but the run's are {space}"
            )


def _choose(logits: NDArray[np.float32], rng: np.random.Generator | None) -> NDArray[np.int64]:
    """One of each row, int64 (B,), in proportion to exp(logits); -inf is never chosen. Without ``rng``: the largest."""
    if rng is None:
        return logits.argmax(axis=1)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True), dtype=np.float64)
    sums = weights.cumsum(axis=1)
    # A draw is below the last sum, and what has no weight adds no step to the sums.
    return (sums <= rng.random((len(sums), 1)) * sums[:, -1:]).sum(axis=1)


def _entropy(logits: Tensor) -> Tensor:
    logs = logits.log_softmax(1)
    return -(logs.exp() * logs).sum(1)


def _log_tail(x: Tensor) -> Tensor:
    """Logarithm of the probability that a standard normal deviate is below x."""
    return torch.special.log_ndtr(x)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _refuse_mask(mask: object) -> None:
    if mask is not None:
        raise SpaceError("network: action masks need Discrete actions")
