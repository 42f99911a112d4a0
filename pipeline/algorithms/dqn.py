"""(Double) DQN's learning side."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.algorithms.batch import TransitionBatch
from pipeline.algorithms.flat import FlatParameters
from pipeline.algorithms.losses import double_q_learning, huber, q_learning
from pipeline.algorithms.networks import build_network, discrete_actions
from pipeline.algorithms.settings import DQNSettings
from pipeline.errors import CheckpointError
from pipeline.experience import Layout

_MOMENTS = ("exp_avg", "exp_avg_sq")


class DQN:
    """Learns action values from batches of n-step transitions.

    DQN (Mnih et al., 2015) with the double estimator (van Hasselt et al., 2016) unless switched
    off. Every ``target_interval`` updates the target network moves to the online network, by
    ``target_rate`` of the way.

    Guarantees: on the CPU, with one torch thread, same seed and same batches give the same weights
    to the last bit; ``state`` and ``load_state`` do not break that.
    """

    def __init__(self, layout: Layout, settings: DQNSettings, seed: int, device: str | torch.device = "cpu") -> None:
        """Make a learner with fresh weights.

        Args:
            layout: the run's columns; the action space has to be Discrete.
            settings: the learning rule's settings.
            seed: seed of the initial weights.
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
        self._optimizer = torch.optim.Adam(
            [self._online_flat.parameter],
            lr=settings.learning_rate,
            eps=settings.adam_epsilon,
            fused=self._device.type in ("cpu", "cuda"),
        )
        self._updates = 0

    @property
    def updates(self) -> int:
        """Updates made so far."""
        return self._updates

    def update(self, batch: TransitionBatch, metrics: bool = False) -> dict[str, float]:
        """One gradient step on a batch of B transitions.

        Args:
            batch: B transitions; its arrays are read during the call only.
            metrics: also report figures, which waits for the device.

        Returns:
            With ``metrics``: ``loss``, ``td_error`` (mean absolute), ``q`` (mean value of the
            actions taken), ``gradient_norm`` (before clipping). Otherwise nothing.

        Raises:
            LearnerError: the batch's arrays do not fit together.
        """
        observation = self._tensors(batch.observation)
        next_observation = self._tensors(batch.next_observation)
        actions = self._tensor(batch.columns[self._action]).to(torch.int64)
        if self._first_action:
            actions = actions - self._first_action
        reward, discount = self._tensor(batch.reward), self._tensor(batch.discount)

        with torch.no_grad():
            value = self._target(next_observation)
            selector = self._online(next_observation) if self._settings.double else None
        q = self._online(observation)
        if selector is None:
            td_error = q_learning(q, actions, reward, discount, value)
        else:
            td_error = double_q_learning(q, actions, reward, discount, value, selector)
        loss = huber(td_error, self._settings.huber_delta)
        gradient = self._online_flat.zero_gradient()
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        norm = gradient.square().sum().sqrt()
        if self._settings.gradient_clip:
            # The small term keeps a zero gradient from dividing by zero.
            factor = self._settings.gradient_clip / (norm + 1e-6)
            gradient.mul_(torch.clamp_max(factor, 1.0))
        self._optimizer.step()  # pyright: ignore[reportUnknownMemberType]
        self._updates += 1
        if self._updates % self._settings.target_interval == 0:
            self._target_flat.move_to(self._online_flat, self._settings.target_rate)
        if not metrics:
            return {}
        return {
            "loss": loss.item(),
            "td_error": td_error.detach().abs().mean().item(),
            "q": q.detach().gather(1, actions[:, None]).mean().item(),
            "gradient_norm": norm.item(),
        }

    def weights(self) -> dict[str, NDArray[Any]]:
        """Copies of the online network's tensors by name, to be published."""
        return _arrays(self._online.state_dict())

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that ``load_state`` needs to go on bit for bit, as arrays by name.

        Names begin with ``online/``, ``target/`` or ``adam/``; ``updates`` is an int64 scalar.
        """
        state = {f"online/{name}": array for name, array in self.weights().items()}
        for name, array in _arrays(self._target.state_dict()).items():
            state[f"target/{name}"] = array
        moments: Mapping[str, Tensor] = self._optimizer.state.get(self._online_flat.parameter, {})
        for name in _MOMENTS:
            state[f"adam/{name}"] = np.zeros(self._online_flat.size, np.float32)
        for name, array in _arrays(moments).items():
            if name in _MOMENTS:
                state[f"adam/{name}"] = array
        state["adam/step"] = np.array(float(moments["step"]) if moments else 0.0, np.float32)
        state["updates"] = np.array(self._updates, np.int64)
        return state

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on as the learner that gave ``state``.

        Raises:
            CheckpointError: a name or shape is not this learner's. Nothing was changed then.
        """
        expected: dict[str, tuple[int, ...]] = {"updates": (), "adam/step": ()}
        for name in _MOMENTS:
            expected[f"adam/{name}"] = (self._online_flat.size,)
        for name, tensor in self._online.state_dict().items():
            expected[f"online/{name}"] = expected[f"target/{name}"] = tuple(tensor.shape)
        found = {name: tuple(array.shape) for name, array in state.items()}
        wrong = [name for name in sorted(found.keys() | expected.keys()) if found.get(name) != expected.get(name)]
        if wrong:
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            raise CheckpointError(
                f"dqn: the checkpoint is of another network: {', '.join(wrong[:5])}{more} missing, "
                "unknown or of another shape; load it with the settings and spaces of its run"
            )
        for prefix, network in (("online/", self._online), ("target/", self._target)):
            network.load_state_dict({name: _tensor(state[prefix + name]) for name in network.state_dict()})
        self._updates = int(state["updates"])
        self._optimizer.state.clear()
        if state["adam/step"]:
            device = self._device
            self._optimizer.state[self._online_flat.parameter] = {
                "step": torch.tensor(float(state["adam/step"]), device=device),
                **{name: _tensor(state[f"adam/{name}"]).to(device) for name in _MOMENTS},
            }

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Take over published weights, in both networks; the optimizer begins anew.

        Raises:
            CheckpointError: a name or shape is not this learner's. Nothing was changed then.
        """
        expected = {name: tuple(tensor.shape) for name, tensor in self._online.state_dict().items()}
        if expected != {name: tuple(array.shape) for name, array in weights.items()}:
            raise CheckpointError("dqn: the published weights are of another network; use the settings of their run")
        for network in (self._online, self._target):
            network.load_state_dict({name: _tensor(array) for name, array in weights.items()})
        self._optimizer.state.clear()

    def _tensors(self, columns: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
        return {name: self._tensor(array) for name, array in columns.items()}

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)  # pyright: ignore[reportUnknownMemberType]


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.tensor(np.asarray(array))


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}
