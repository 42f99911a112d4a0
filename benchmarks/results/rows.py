"""The rows of the table: environments, this pipeline's settings for them, and those of the peer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ZOO = "DLR-RM/rl-baselines3-zoo, hyperparams/{file}, commit 22e3ff2450fd92033f7f032915e1f64894a09584"


@dataclass(frozen=True)
class Linear:
    """A value that falls linearly from ``start`` to 0 over the published number of steps (the zoo's ``lin_``)."""

    start: float


@dataclass(frozen=True)
class Peer:
    """How stable-baselines3 learns a row's environment: its zoo's published settings.

    Attributes:
        algorithm: DQN or PPO.
        steps: the published number of environment steps. Schedules (ε, learning rate, clip range) end where they end
            there, also where the row's budget is larger.
        settings: the algorithm's arguments, as published.
        source: where they are published.
        environments: in parallel.
        normalise: whether observations and rewards go through ``VecNormalize`` (the zoo's ``normalize: true``).
    """

    algorithm: str
    steps: int
    settings: Mapping[str, Any]
    source: str
    environments: int = 1
    normalise: bool = False


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        name: also of ``conf/experiment/<name>.yaml``, this pipeline's settings.
        environment: the Gymnasium id.
        title: what this pipeline runs.
        threshold: the mean return of 100 greedy episodes that is waited for; None: the one at the end is reported.
        budget: environment steps after which a run ends, for both sides.
        every: environment steps between evaluations, for both sides.
        seeds: how many.
        peer: what is run beside it; None: nothing is published.
    """

    name: str
    environment: str
    title: str
    threshold: float | None
    budget: int
    every: int
    seeds: int
    peer: Peer | None = None


_DQN = ZOO.format(file="dqn.yml")
_PPO = ZOO.format(file="ppo.yml")
_WIDE = {"net_arch": [256, 256]}
_DQN_CARTPOLE = {
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1_000,
    "gamma": 0.99,
    "target_update_interval": 10,
    "train_freq": 256,
    "gradient_steps": 128,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
    "policy_kwargs": _WIDE,
}
# The zoo has the same for both.
_DQN_ACROBOT_AND_LANDER = {
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "gamma": 0.99,
    "target_update_interval": 250,
    "train_freq": 4,
    "gradient_steps": -1,
    "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
    "policy_kwargs": _WIDE,
}
_PPO_CARTPOLE = {
    "n_steps": 32,
    "batch_size": 256,
    "gae_lambda": 0.8,
    "gamma": 0.98,
    "n_epochs": 20,
    "ent_coef": 0.0,
    "learning_rate": Linear(1e-3),
    "clip_range": Linear(0.2),
}
_PPO_ACROBOT = {"n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0}
_PPO_LANDER = {
    "n_steps": 1024,
    "batch_size": 64,
    "gae_lambda": 0.98,
    "gamma": 0.999,
    "n_epochs": 4,
    "ent_coef": 0.01,
}

ROWS = (
    Row(
        "cartpole-dqn",
        "CartPole-v1",
        "DQN",
        475.0,
        200_000,
        1_000,
        5,
        Peer("DQN", 50_000, _DQN_CARTPOLE, _DQN),
    ),
    Row("cartpole-rainbow", "CartPole-v1", "Rainbow", 475.0, 200_000, 1_000, 5),
    Row(
        "cartpole-ppo",
        "CartPole-v1",
        "PPO",
        475.0,
        100_000,
        1_000,
        5,
        Peer("PPO", 100_000, _PPO_CARTPOLE, _PPO, environments=8),
    ),
    Row(
        "acrobot-dqn",
        "Acrobot-v1",
        "DQN",
        -100.0,
        200_000,
        2_000,
        5,
        Peer("DQN", 100_000, _DQN_ACROBOT_AND_LANDER, _DQN),
    ),
    Row(
        "acrobot-ppo",
        "Acrobot-v1",
        "PPO",
        -100.0,
        1_000_000,
        2_000,
        5,
        Peer("PPO", 1_000_000, _PPO_ACROBOT, _PPO, environments=16, normalise=True),
    ),
    Row(
        "lunarlander-dqn",
        "LunarLander-v3",
        "DQN",
        200.0,
        200_000,
        10_000,
        5,
        Peer("DQN", 100_000, _DQN_ACROBOT_AND_LANDER, _DQN),
    ),
    Row(
        "lunarlander-ppo",
        "LunarLander-v3",
        "PPO",
        200.0,
        500_000,
        20_000,
        5,
        Peer("PPO", 1_000_000, _PPO_LANDER, _PPO, environments=16),
    ),
    Row("minatar-rainbow", "MinAtar/Breakout-v1", "Rainbow", None, 500_000, 25_000, 3),
)
BY_NAME = {row.name: row for row in ROWS}
