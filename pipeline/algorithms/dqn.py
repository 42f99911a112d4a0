"""The learning side of DQN and what extends it, up to Rainbow."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.algorithms.adam import FlatAdam
from pipeline.algorithms.arrays import check_shapes, check_weights, to_arrays, to_generator, to_tensor
from pipeline.algorithms.batch import TransitionBatch
from pipeline.algorithms.flat import FlatParameters
from pipeline.algorithms.losses import (
    categorical_target,
    cross_entropy,
    divergence,
    double_q_learning,
    huber,
    masked,
    q_learning,
    weighted_mean,
)
from pipeline.algorithms.networks import QNetwork, build_network, discrete_actions
from pipeline.algorithms.normalisation import ObservationStatistics
from pipeline.algorithms.settings import DQNSettings
from pipeline.errors import ConfigError
from pipeline.experience import ACTION_MASK, Layout


class DQN:
    """Learns action values from batches of n-step transitions.

    DQN (Mnih et al., 2015) with the double estimator (van Hasselt et al., 2016) unless switched
    off. Every ``target_interval`` updates the target network moves to the online network, by
    ``target_rate`` of the way. Each of these is switched on by its setting, all of them are Rainbow
    (Hessel et al., 2018, arXiv 1710.02298): dueling, noisy and categorical networks (see
    ``QNetwork``), and importance weights and priorities for a prioritised buffer (Schaul et al.,
    2016, arXiv 1511.05952). n-step returns are the reader's.

    Noise is drawn anew for each of the three passes of an update: the one that chooses the next
    action, the one that values it, and the one that learns (Fortunato et al., 2018, section 3.1).

    Where the batch has a column ``action_mask``, bool (B, A), the next action is chosen among those
    that it allows at s_t.

    Guarantees: on the CPU, with one torch thread, same seed and same batches give the same weights
    to the last bit; ``state`` and ``load_state`` do not break that. Noise comes from a generator of
    its own, which is part of the state; torch's global one is neither read nor moved.
    """

    def __init__(self, layout: Layout, settings: DQNSettings, seed: int, device: str | torch.device = "cpu") -> None:
        """Make a learner with fresh weights.

        Args:
            layout: the run's columns; the action space has to be Discrete.
            settings: the learning rule's settings.
            seed: seed of the initial weights and of the noise, 0 or more.
            device: where to compute.

        Raises:
            SpaceError: the spaces are none that a network here reads.
        """
        self._settings = settings
        self._device = torch.device(device)
        self._action = layout.action[0].name
        self._first_action = int(discrete_actions(layout).start)
        self._online = build_network(layout, settings.network, seed).to(self._device)
        self._target = build_network(layout, settings.network, seed).to(self._device)
        self._target.requires_grad_(False)
        self._online_flat = FlatParameters(self._online)
        self._target_flat = FlatParameters(self._target)
        self._adam = FlatAdam(self._online_flat, settings.learning_rate, settings.adam_epsilon)
        self._updates = 0
        # Another stream than that of the initial weights.
        noise_seed = np.random.SeedSequence([seed, 1]).generate_state(1, np.uint64)[0]
        self._noise = torch.Generator()
        self._noise.manual_seed(int(noise_seed))
        self._priorities: NDArray[np.float32] | None = None

    @property
    def updates(self) -> int:
        """Updates made so far."""
        return self._updates

    @property
    def priorities(self) -> NDArray[np.float32] | None:
        """What the last update found of its batch, to draw transitions by: float32 (B,).

        Absolute TD errors, or, of distributions, the divergences from their targets, as in Rainbow. None where the
        settings say that transitions are not prioritised, and before the first update.
        """
        return self._priorities

    def configure(self, settings: DQNSettings) -> None:
        """Go on with other settings, from the next update.

        Raises:
            ConfigError: they make another network, or change whether transitions are prioritised, which is the buffer's
                matter too. Nothing was changed then.
        """
        if settings.network != self._settings.network:
            raise ConfigError("dqn: the settings make another network; only a new run can have that")
        if settings.prioritised != self._settings.prioritised:
            raise ConfigError("dqn: whether transitions are prioritised is settled when a learner starts")
        self._settings = settings

    def set_normalisation(self, statistics: ObservationStatistics) -> None:
        """Bring float observations to mean 0 and deviation 1 by these statistics from now on, in both networks."""
        mean, std = statistics.tensors(self._device)
        for network in (self._online, self._target):
            network.set_normalisation(mean, std)

    def update(
        self, batch: TransitionBatch, metrics: bool = False, learning_rate: float | None = None
    ) -> dict[str, float]:
        """One gradient step on a batch of B transitions.

        Args:
            batch: B transitions; its arrays are read during the call only.
            metrics: also report figures, which waits for the device.
            learning_rate: Adam's step size this time; None: the settings'.

        Returns:
            With ``metrics``: ``loss``, ``td_error`` (mean absolute; of distributions the mean
            divergence from their targets), ``q`` (mean value of the actions taken),
            ``gradient_norm`` (before clipping). Otherwise nothing.

        Raises:
            LearnerError: the batch's arrays do not fit together.
        """
        observation = self._tensors(batch.observation)
        next_observation = self._tensors(batch.next_observation)
        actions = self._tensor(batch.columns[self._action]).to(torch.int64)
        if self._first_action:
            actions = actions - self._first_action
        reward, discount = self._tensor(batch.reward), self._tensor(batch.discount)

        mask = self._mask(batch.columns)

        self._resample(self._target)
        self._resample(self._online)
        with torch.no_grad():
            outputs_t = self._target.outputs(next_observation)
            q_t = self._target.values(outputs_t)
            selector = self._online(next_observation) if self._settings.double else q_t
            if mask is not None:
                selector = masked(selector, mask)
        self._resample(self._online)
        outputs = self._online.outputs(observation)
        weights = self._tensor(batch.weights) if self._settings.prioritised else None
        if self._settings.network.categorical:
            target = categorical_target(reward, discount, self._online.support, outputs_t, selector)
            losses = cross_entropy(outputs, actions, target)
            error = divergence(losses, target)
            loss = losses.mean() if weights is None else weighted_mean(losses, weights)
        else:
            if self._settings.double or mask is not None:
                error = double_q_learning(outputs, actions, reward, discount, q_t, selector)
            else:
                error = q_learning(outputs, actions, reward, discount, q_t)
            loss = huber(error, self._settings.huber_delta, weights)
        self._online_flat.zero_gradient()
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        norm = self._online_flat.clip_gradient(self._settings.gradient_clip)
        rate = self._settings.learning_rate if learning_rate is None else learning_rate
        self._adam.configure(rate, self._settings.adam_epsilon)
        self._adam.step()
        self._updates += 1
        if self._updates % self._settings.target_interval == 0:
            self._target_flat.move_to(self._online_flat, self._settings.target_rate)
        if self._settings.prioritised:
            self._priorities = error.detach().abs().cpu().numpy()
        if not metrics:
            return {}
        q = self._online.values(outputs.detach())
        return {
            "loss": loss.item(),
            "td_error": error.detach().abs().mean().item(),
            "q": q.gather(1, actions[:, None]).mean().item(),
            "gradient_norm": norm.item(),
        }

    def weights(self) -> dict[str, NDArray[Any]]:
        """Copies of the online network's tensors by name, to be published."""
        return to_arrays(self._online.state_dict())

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that ``load_state`` needs to go on bit for bit, as arrays by name.

        Names begin with ``online/``, ``target/`` or ``adam/``; ``updates`` is an int64 scalar,
        ``noise``, only where the network is noisy, the generator's state as uint8.
        """
        state = {f"online/{name}": array for name, array in self.weights().items()}
        for name, array in to_arrays(self._target.state_dict()).items():
            state[f"target/{name}"] = array
        state |= self._adam.state()
        state["updates"] = np.array(self._updates, np.int64)
        if self._settings.network.noisy:
            state["noise"] = self._noise.get_state().numpy().copy()
        return state

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on as the learner that gave ``state``.

        Raises:
            CheckpointError: a name or shape is not this learner's, or the noise's generator is damaged.
                Nothing was changed then.
        """
        expected: dict[str, tuple[int, ...]] = {"updates": (), **self._adam.shapes()}
        for name, tensor in self._online.state_dict().items():
            expected[f"online/{name}"] = expected[f"target/{name}"] = tuple(tensor.shape)
        if self._settings.network.noisy:
            expected["noise"] = tuple(self._noise.get_state().shape)
        check_shapes("dqn", state, expected)
        noise = to_generator("dqn", state["noise"]) if self._settings.network.noisy else self._noise
        for prefix, network in (("online/", self._online), ("target/", self._target)):
            network.load_state_dict({name: to_tensor(state[prefix + name]) for name in network.state_dict()})
        self._updates = int(state["updates"])
        self._noise = noise
        self._priorities = None
        self._adam.load_state(state)

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Take over published weights, in both networks; the optimizer begins anew.

        Raises:
            CheckpointError: a name or shape is not this learner's. Nothing was changed then.
        """
        check_weights("dqn", weights, self._online)
        for network in (self._online, self._target):
            network.load_state_dict({name: to_tensor(array) for name, array in weights.items()})
        self._adam.restart()

    def _resample(self, network: QNetwork) -> None:
        """Give the network fresh noise, where it has any."""
        if network.noise_size:
            network.set_noise(torch.randn(network.noise_size, generator=self._noise).to(self._device))

    def _mask(self, columns: Mapping[str, NDArray[Any]]) -> Tensor | None:
        mask = columns.get(ACTION_MASK)
        return None if mask is None else self._tensor(mask)

    def _tensors(self, columns: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
        return {name: self._tensor(array) for name, array in columns.items()}

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)  # pyright: ignore[reportUnknownMemberType]
