"""From the pipeline's configuration to the algorithms' own settings."""

from pipeline.algorithms.settings import DQNSettings, NetworkSettings, PolicySettings, PPOSettings
from pipeline.config import AlgorithmConfig
from pipeline.errors import ConfigError


def network_spec(config: AlgorithmConfig) -> NetworkSettings:
    """The network that learner and actors build alike.

    Raises:
        ConfigError: a setting is out of range.
    """
    categorical = config.categorical
    if categorical.enabled and categorical.atoms < 2:
        raise ConfigError(
            f"algorithm.categorical.atoms is {categorical.atoms}, but a distribution needs 2 or more; switch it off "
            "with algorithm.categorical.enabled=false"
        )
    return NetworkSettings(
        hidden=tuple(config.hidden),
        image=config.network,
        dueling=config.dueling,
        noisy=config.noisy,
        noisy_std=config.noisy_std,
        atoms=categorical.atoms if categorical.enabled else 1,
        v_min=categorical.v_min,
        v_max=categorical.v_max,
        activation=config.activation,
        normalise=config.normalise_observations,
    )


def policy_spec(config: AlgorithmConfig) -> PolicySettings:
    """The policy and value network that learner and actors of PPO build alike.

    Raises:
        ConfigError: a setting is out of range.
    """
    return PolicySettings(
        hidden=tuple(config.hidden),
        image=config.network,
        activation=config.activation,
        normalise=config.normalise_observations,
    )


def dqn_settings(config: AlgorithmConfig) -> DQNSettings:
    """The learning rule's settings.

    Raises:
        ConfigError: a setting is out of range.
    """
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
        prioritised=config.prioritised.enabled,
    )


def ppo_settings(config: AlgorithmConfig) -> PPOSettings:
    """PPO's settings.

    Raises:
        ConfigError: a setting is out of range.
    """
    ppo = config.ppo
    return PPOSettings(
        network=policy_spec(config),
        gamma=config.gamma,
        gae_lambda=ppo.gae_lambda,
        learning_rate=config.lr,
        adam_epsilon=config.adam_eps,
        epochs=ppo.epochs,
        minibatch_size=ppo.minibatch_size,
        clip=ppo.clip,
        value_clip=ppo.value_clip,
        value_coefficient=ppo.value_coefficient,
        entropy_coefficient=ppo.entropy_coefficient,
        normalise_advantages=ppo.normalise_advantages,
        target_kl=ppo.target_kl,
        gradient_clip=config.grad_clip,
    )
