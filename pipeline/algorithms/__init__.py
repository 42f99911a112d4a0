"""Learning rules: settings, networks, losses, DQN, and the acting side.

Names are imported on first use, so that reading settings or a schedule does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pipeline.algorithms.schedules import LinearSchedule
from pipeline.algorithms.settings import DQNSettings, NetworkSettings

if TYPE_CHECKING:
    from pipeline.algorithms.agent import Agent
    from pipeline.algorithms.batch import TransitionBatch
    from pipeline.algorithms.dqn import DQN
    from pipeline.algorithms.losses import (
        categorical_target,
        cross_entropy,
        double_q_learning,
        double_q_loss,
        masked,
        project,
        q_learning,
        q_loss,
    )
    from pipeline.algorithms.networks import QNetwork, build_network

__all__ = [
    "DQN",
    "Agent",
    "DQNSettings",
    "LinearSchedule",
    "NetworkSettings",
    "QNetwork",
    "TransitionBatch",
    "build_network",
    "categorical_target",
    "cross_entropy",
    "double_q_learning",
    "double_q_loss",
    "masked",
    "project",
    "q_learning",
    "q_loss",
]

_HOMES = {
    "Agent": "agent",
    "DQN": "dqn",
    "QNetwork": "networks",
    "TransitionBatch": "batch",
    "build_network": "networks",
    "categorical_target": "losses",
    "cross_entropy": "losses",
    "double_q_learning": "losses",
    "double_q_loss": "losses",
    "masked": "losses",
    "project": "losses",
    "q_learning": "losses",
    "q_loss": "losses",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
