"""What a setting may be, beyond its type."""

import math

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
    "algorithm.network": ("mlp", "nature", "impala", "minatar"),
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

ABOVE_ZERO = ("algorithm.sync.client_timeout_s", "algorithm.sync.collect_fraction")
"""Numbers that have to be more than 0."""

LISTS = {"learner.trackers": ("tensorboard", "wandb")}
"""Settings with any number of these."""

BETWEEN = {
    "algorithm.lr_decay_transitions": (0, math.inf),
    "algorithm.transitions_per_update": (0, math.inf),
    "algorithm.exploration.start": (0, 1),
    "algorithm.exploration.end": (0, 1),
    "algorithm.exploration.transitions": (0, math.inf),
    "algorithm.prioritised.beta": (0, 1),
    "algorithm.ppo.clip_decay_transitions": (0, math.inf),
    "algorithm.sync.discovery_s": (0, math.inf),
    "algorithm.sync.client_timeout_s": (0, math.inf),
    "algorithm.sync.collect_fraction": (0, 1),
    "algorithm.sync.collect_grace_s": (0, math.inf),
    "learner.stale_warning": (0, 1),
    "cleanup.every_s": (0, math.inf),
}
"""The least and the largest value."""


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
    for name in ABOVE_ZERO:
        value = OmegaConf.select(tree, name)
        if not value > 0:
            raise ConfigError(f"{name}={value} must be above 0.")
    for name, (least, most) in BETWEEN.items():
        value = OmegaConf.select(tree, name)
        if not least <= value <= most:
            allowed = f"from {least} to {most}" if most < math.inf else f"{least} or more"
            raise ConfigError(f"{name}={value} must be {allowed}.")
    for name, choices in LISTS.items():
        for value in OmegaConf.select(tree, name):
            if value not in choices:
                raise ConfigError(f"{name}: {value!r} is not one of {', '.join(choices)}.")
