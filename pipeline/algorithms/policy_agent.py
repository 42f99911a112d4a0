"""The acting side of PPO: actions and their log-probabilities."""

from collections.abc import Mapping
from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from pipeline.algorithms.exchange import ExchangedWeights
from pipeline.algorithms.policy import build_policy
from pipeline.algorithms.settings import PolicySettings
from pipeline.errors import SpaceError
from pipeline.experience import Layout, flatten


class PolicyAgent(ExchangedWeights):
    """Draws actions from a policy, for one environment or a vector of them at once, on the CPU.

    For small networks let torch use one thread (``torch.set_num_threads(1)``) in the process that acts: waking others
    costs more than the product itself.
    """

    def __init__(self, layout: Layout, settings: PolicySettings, seed: int) -> None:
        """Make an agent with fresh weights.

        Args:
            layout: the run's columns.
            settings: shape of the network, as the learner's.
            seed: seed of the initial weights and of the draws.

        Raises:
            SpaceError: the spaces are none that a network here reads.
        """
        self._layout = layout
        self._network = build_policy(layout, settings, seed)
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._actions = self._network.distribution.heads
        super().__init__(self._network)

    def act(
        self,
        observation: Any,
        *,
        greedy: bool = False,
        mask: NDArray[Any] | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Any, Any]:
        """Actions for one observation, or for E of them as a Gymnasium vector environment gives them.

        Args:
            observation: a value of the run's observation space, or E of them, nested as the space is.
            greedy: the likeliest actions, with nothing random drawn.
            mask: which actions of a Discrete space are allowed, (actions,) or (E, actions) of bool or of 0 and 1; a row
                that allows none allows all. None: all are allowed. With ``environment.action_masks`` it is what the
                column ``acted_mask`` has to hold.
            rng: where randomness comes from; None: the agent's own generator.

        Returns:
            The action, of the action space's dtype, and the logarithm of its probability or density, float32: a single
            one of each, or (E, *action.shape) and (E,). Both are what a transition has to hold. Actions of a Box are
            clipped to it (see :class:`pipeline.algorithms.distributions.ClippedGaussian`).

        Raises:
            SpaceError: the observation does not fit the space, or the mask is of another shape.
        """
        space = self._layout.observation_space
        single = _is_single(space, observation)
        columns = flatten("observation", space, observation, batch=not single)
        if single:
            columns = {name: array[None] for name, array in columns.items()}
            mask = None if mask is None else np.asarray(mask)[None]
        actions, log_prob = self.act_columns(columns, greedy=greedy, mask=mask, rng=rng)
        return (actions[0], log_prob[0]) if single else (actions, log_prob)

    def act_columns(
        self,
        columns: Mapping[str, NDArray[Any]],
        *,
        greedy: bool = False,
        mask: NDArray[Any] | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """As ``act``, for observations that are already flattened into columns, each (E, *column.shape)."""
        distribution = self._network.distribution
        with torch.inference_mode():
            tensors = {
                name: torch.from_numpy(array)  # pyright: ignore[reportUnknownMemberType]
                for name, array in columns.items()
            }
            outputs = self._network.outputs(tensors)
            allowed = None if mask is None else self._allowed(mask, len(outputs))
            drawn = None if greedy else self._rng if rng is None else rng
            actions = distribution.sample(outputs.numpy(), drawn, allowed)
            masks = None if allowed is None else torch.as_tensor(allowed)
            log_prob = distribution.log_prob(outputs, torch.as_tensor(actions), masks)
        return actions, log_prob.numpy()

    def _allowed(self, mask: NDArray[Any], count: int) -> NDArray[np.bool_]:
        allowed = np.asarray(mask, bool)
        if allowed.shape != (count, self._actions):
            raise SpaceError(
                f"agent: the action mask has shape {allowed.shape} where {count} observations and {self._actions} "
                f"actions ask for {(count, self._actions)}"
            )
        return allowed


def _is_single(space: gym.Space[Any], value: Any) -> bool:
    """Whether a value is one of the space, and not several stacked; its first part tells."""
    match space:
        case spaces.Dict():
            key = next(iter(space.spaces))
            return _is_single(space.spaces[key], value[key])
        case spaces.Tuple():
            return _is_single(cast("Any", space).spaces[0], value[0])
        case _:
            return np.ndim(value) == len(space.shape or ())
