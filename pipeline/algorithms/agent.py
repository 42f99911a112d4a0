"""The acting side of DQN: ε-greedy actions."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.algorithms.exchange import ExchangedWeights
from pipeline.algorithms.networks import build_network, discrete_actions
from pipeline.algorithms.settings import NetworkSettings
from pipeline.errors import SpaceError
from pipeline.experience import Layout, flatten


class Agent(ExchangedWeights):
    """Chooses actions epsilon-greedily for a vector of environments at once, on the CPU.

    A noisy network explores by its noise, which is drawn anew for each call and shared by the
    environments of the vector (Fortunato et al., 2018); epsilon may be 0 then.

    For small networks let torch use one thread (``torch.set_num_threads(1)``) in the process that
    acts: waking others costs more than the product itself.
    """

    def __init__(self, layout: Layout, settings: NetworkSettings, seed: int) -> None:
        """Make an agent with fresh weights.

        Args:
            layout: the run's columns; the action space has to be Discrete.
            settings: shape of the network, as the learner's.
            seed: seed of the initial weights and of exploration.

        Raises:
            SpaceError: the spaces are none that a network here reads.
        """
        self._layout = layout
        actions = discrete_actions(layout)
        self._first_action = int(actions.start)
        self._count = int(actions.n)
        self._dtype = layout.action[0].dtype
        self._network = build_network(layout, settings, seed)
        super().__init__(self._network)
        self._rng = np.random.Generator(np.random.PCG64(seed))

    def values(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Action values without noise, float32 (B, actions), of observation columns, each (B, *column.shape)."""
        return self._values(columns, None)

    def act_columns(
        self,
        columns: Mapping[str, NDArray[Any]],
        epsilon: float = 0.0,
        rng: np.random.Generator | None = None,
        *,
        explore: bool = True,
        mask: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Actions for observations that are already flattened into columns.

        Args:
            columns: observation columns by name, each (B, *column.shape).
            epsilon: probability of a uniformly random action, for each of the B on its own; at 0
                nothing random is drawn for it.
            rng: where randomness comes from; None: the agent's own generator.
            explore: False for greedy actions, without epsilon and noise, and with nothing random drawn.
            mask: which actions are allowed, (B, actions) of bool or of 0 and 1; a row that allows none
                allows all. None: all are allowed.

        Returns:
            Actions of the action space, (B,) of its dtype. Ties go to the lowest action.

        Raises:
            SpaceError: the mask is of another shape.
        """
        rng = self._rng if rng is None else rng
        noise_size = self._network.noise_size if explore else 0
        noise = torch.as_tensor(rng.standard_normal(noise_size, np.float32)) if noise_size else None
        values = self._values(columns, noise)
        allowed = None if mask is None else self._allowed(mask, len(values))
        actions = (values if allowed is None else np.where(allowed, values, -np.inf)).argmax(axis=1)
        if explore and epsilon > 0:
            random_here = rng.random(len(actions)) < epsilon
            if allowed is None:
                random = rng.integers(0, self._count, len(actions))
            else:
                random = np.where(allowed, rng.random(allowed.shape), -1.0).argmax(axis=1)
            actions = np.where(random_here, random, actions)
        return (actions + self._first_action).astype(self._dtype, copy=False)

    def act(
        self,
        observations: Any,
        epsilon: float = 0.0,
        rng: np.random.Generator | None = None,
        *,
        explore: bool = True,
        mask: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Actions for a batch of observations as a Gymnasium vector environment gives them.

        Args:
            observations: B observations of the run's space, nested as the space is.
            epsilon: as in ``act_columns``.
            rng: as in ``act_columns``.
            explore: as in ``act_columns``.
            mask: as in ``act_columns``.

        Returns:
            Actions, (B,) of the action space's dtype.

        Raises:
            SpaceError: the observations do not fit the space, or the mask is of another shape.
        """
        columns = flatten("observation", self._layout.observation_space, observations, batch=True)
        return self.act_columns(columns, epsilon, rng, explore=explore, mask=mask)

    def _values(self, columns: Mapping[str, NDArray[Any]], noise: Tensor | None) -> NDArray[np.float32]:
        with torch.inference_mode():
            tensors = {
                name: torch.from_numpy(array)  # pyright: ignore[reportUnknownMemberType]
                for name, array in columns.items()
            }
            if self._network.noise_size:
                self._network.set_noise(noise)
            return self._network(tensors).numpy()

    def _allowed(self, mask: NDArray[Any], count: int) -> NDArray[np.bool_]:
        allowed = np.asarray(mask, bool)
        if allowed.shape != (count, self._count):
            raise SpaceError(
                f"agent: the action mask has shape {allowed.shape} where {count} observations and {self._count} "
                f"actions ask for {(count, self._count)}"
            )
        return allowed | ~allowed.any(axis=1, keepdims=True)
