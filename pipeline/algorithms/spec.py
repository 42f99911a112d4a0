"""From the pipeline's configuration to the algorithms' own settings."""

from pipeline.algorithms.settings import DQNSettings, NetworkSettings
from pipeline.config import AlgorithmConfig


def network_spec(config: AlgorithmConfig) -> NetworkSettings:
    """The network that learner and actors build alike."""
    return NetworkSettings(hidden=tuple(config.hidden))


def dqn_settings(config: AlgorithmConfig) -> DQNSettings:
    """DQN's settings."""
    return DQNSettings(
        network=network_spec(config),
        double=config.double,
        gamma=config.gamma,
        learning_rate=config.lr,
        adam_epsilon=config.adam_eps,
        batch_size=config.batch_size,
        target_interval=config.target_interval,
        target_rate=config.target_rate,
        gradient_clip=config.grad_clip,
        huber_delta=config.huber_delta,
    )
