"""What a setting may be, beyond its type."""

from omegaconf import DictConfig, OmegaConf

from pipeline.errors import ConfigError

CHOICES = {
    "services.kind": ("embedded", "local", "external"),
    "services.security": ("none", "tls"),
    "client.queue_policy": ("block", "drop_oldest", "drop_newest"),
    "log_level": ("debug", "info", "warning", "error"),
    "algorithm.name": ("dqn", "rainbow", "ppo"),
    "algorithm.activation": ("relu", "tanh"),
    "algorithm.sync.on_lost_client": ("continue", "stop"),
    "algorithm.network": ("mlp", "nature", "impala"),
    "replay.topic": (
        "samples",
        "episodes",
        "versions",
        "commands",
        "heartbeats",
        "progress",
        "telemetry",
        "dead-letters",
    ),
}

POSITIVE = (
    "kafka.partitions",
    "kafka.replication",
    "environment.envs",
    "algorithm.n_step",
    "algorithm.batch_size",
    "algorithm.buffer_rows",
    "algorithm.updates_per_version",
    "algorithm.target_interval",
    "algorithm.categorical.atoms",
    "algorithm.prioritised.beta_updates",
    "algorithm.ppo.rollout_steps",
    "algorithm.ppo.max_rollout",
    "algorithm.ppo.epochs",
    "algorithm.ppo.minibatch_size",
    "algorithm.sync.clients",
    "algorithm.sync.min_clients",
    "environment.frame_stack",
    "kafka.dead_letter_bytes",
    "learner.version_window",
    "learner.prefetch_chunks",
    "client.chunk_steps",
    "client.chunk_bytes",
    "client.queue_bytes",
    "telemetry.window_episodes",
    "learner.keep_checkpoints",
    "cleanup.keep_last",
    "demo.clients",
    "demo.evaluation_episodes",
)


def check_ranges(tree: DictConfig) -> None:
    """Refuse values out of range.

    Raises:
        ConfigError: names the setting, its value, and what it may be.
    """
    for name, choices in CHOICES.items():
        value = OmegaConf.select(tree, name)
        if value not in choices:
            raise ConfigError(f"{name}={value!r} is not one of {', '.join(choices)}.")
    for name in POSITIVE:
        value = OmegaConf.select(tree, name)
        if value < 1:
            raise ConfigError(f"{name}={value} must be at least 1.")
