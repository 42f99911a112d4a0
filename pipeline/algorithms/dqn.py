"""(Double) DQN's learning side."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pipeline.algorithms.batch import TransitionBatch
from pipeline.algorithms.losses import double_q_learning, huber, q_learning
from pipeline.algorithms.networks import build_network, discrete_actions
from pipeline.algorithms.settings import DQNSettings
from pipeline.errors import CheckpointError
from pipeline.experience import Layout


class DQN:
    """Learns action values from batches of n-step transitions.

    DQN (Mnih et al., 2015) with the double estimator (van Hasselt et al., 2016) unless switched
    off. The network copies itself into the target network every ``target_interval`` updates.

    Guarantees: on the CPU, with one torch thread, same seed and same batches give the same weights
    to the last bit; ``state`` and ``load_state`` do not break that.
    """

    def __init__(
        self, layout: Layout, settings: DQNSettings, seed: int, device: str | torch.device = "cpu"
    ) -> None:
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
        self._optimizer = torch.optim.Adam(
            self._online.parameters(),
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
            actions taken), ``gradient_norm`` (before clipping; 0 when clipping is off). Otherwise
            nothing.

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
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = self._clip()
        self._optimizer.step()
        self._updates += 1
        if self._updates % self._settings.target_interval == 0:
            _copy(self._online, self._target)
        if not metrics:
            return {}
        return {
            "loss": loss.item(),
            "td_error": td_error.detach().abs().mean().item(),
            "q": q.detach().gather(1, actions[:, None]).mean().item(),
            "gradient_norm": 0.0 if norm is None else norm.item(),
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
        for name, parameter in self._online.named_parameters():
            moments: Mapping[str, Tensor] = self._optimizer.state.get(parameter, {})
            for key, array in _arrays(moments).items():
                state[f"adam/{name}/{key}"] = array
        state["updates"] = np.array(self._updates, np.int64)
        return state

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on as the learner that gave ``state``.

        Raises:
            CheckpointError: a name or shape is not this learner's. Nothing was changed then.
        """
        moments = ("step", "exp_avg", "exp_avg_sq")
        expected: dict[str, tuple[int, ...]] = {"updates": ()}
        for name, tensor in self._online.state_dict().items():
            expected[f"online/{name}"] = expected[f"target/{name}"] = tuple(tensor.shape)
        if any(name.startswith("adam/") for name in state):
            for name, parameter in self._online.named_parameters():
                for key in moments:
                    shape = () if key == "step" else tuple(parameter.shape)
                    expected[f"adam/{name}/{key}"] = shape
        found = {name: tuple(array.shape) for name, array in state.items()}
        if found != expected:
            wrong = sorted(
                name
                for name in found.keys() | expected.keys()
                if found.get(name) != expected.get(name)
            )
            raise CheckpointError(
                f"dqn: the checkpoint is of another network: {', '.join(wrong[:5])} "
                f"{'…' if len(wrong) > 5 else ''} missing, unknown or of another shape; load it "
                "with the settings and spaces of its run"
            )

        def part(prefix: str) -> dict[str, Tensor]:
            return {
                name.removeprefix(prefix): torch.from_numpy(np.array(array))
                for name, array in state.items()
                if name.startswith(prefix)
            }

        self._online.load_state_dict(part("online/"))
        self._target.load_state_dict(part("target/"))
        self._optimizer.state.clear()
        for name, parameter in self._online.named_parameters():
            kept = part(f"adam/{name}/")
            if kept:
                # Adam's step counter stays where the optimizer would have made it.
                self._optimizer.state[parameter] = {
                    key: tensor.to(parameter.device) for key, tensor in kept.items()
                }
        self._updates = int(state["updates"])

    def _clip(self) -> Tensor | None:
        if self._settings.gradient_clip == 0:
            return None
        return nn.utils.clip_grad_norm_(self._online.parameters(), self._settings.gradient_clip)

    def _tensors(self, columns: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
        return {name: self._tensor(array) for name, array in columns.items()}

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _copy(source: nn.Module, destination: nn.Module) -> None:
    with torch.no_grad():
        for kept, new in zip(destination.parameters(), source.parameters(), strict=True):
            kept.copy_(new)


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}
