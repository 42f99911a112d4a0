"""Learning rules: settings, networks, losses, DQN, PPO, and the acting sides.

Names are imported on first use, so that reading settings or a schedule does not import torch.
"""

from typing import TYPE_CHECKING

from pipeline.algorithms.schedules import LinearSchedule
from pipeline.algorithms.settings import DQNSettings, NetworkSettings, PolicySettings, PPOSettings
from pipeline.lazy import lazily

if TYPE_CHECKING:
    from pipeline.algorithms.agent import Agent
    from pipeline.algorithms.batch import TransitionBatch
    from pipeline.algorithms.dqn import DQN
    from pipeline.algorithms.gae import generalised_advantages
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
    from pipeline.algorithms.normalisation import ObservationStatistics
    from pipeline.algorithms.policy import ActorCritic, build_policy
    from pipeline.algorithms.policy_agent import PolicyAgent
    from pipeline.algorithms.policy_losses import clipped_surrogate, value_errors
    from pipeline.algorithms.ppo import PPO
    from pipeline.algorithms.rollout import Rollout

__all__ = [
    "DQN",
    "PPO",
    "ActorCritic",
    "Agent",
    "DQNSettings",
    "LinearSchedule",
    "NetworkSettings",
    "ObservationStatistics",
    "PPOSettings",
    "PolicyAgent",
    "PolicySettings",
    "QNetwork",
    "Rollout",
    "TransitionBatch",
    "build_network",
    "build_policy",
    "categorical_target",
    "clipped_surrogate",
    "cross_entropy",
    "double_q_learning",
    "double_q_loss",
    "generalised_advantages",
    "masked",
    "project",
    "q_learning",
    "q_loss",
    "value_errors",
]

__getattr__ = lazily(
    __name__,
    {
        "ActorCritic": "policy",
        "Agent": "agent",
        "DQN": "dqn",
        "ObservationStatistics": "normalisation",
        "PPO": "ppo",
        "PolicyAgent": "policy_agent",
        "QNetwork": "networks",
        "Rollout": "rollout",
        "TransitionBatch": "batch",
        "build_network": "networks",
        "build_policy": "policy",
        "categorical_target": "losses",
        "clipped_surrogate": "policy_losses",
        "cross_entropy": "losses",
        "double_q_learning": "losses",
        "double_q_loss": "losses",
        "generalised_advantages": "gae",
        "masked": "losses",
        "project": "losses",
        "q_learning": "losses",
        "q_loss": "losses",
        "value_errors": "policy_losses",
    },
)
