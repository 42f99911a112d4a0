"""The learner: a fold over the samples topic that trains, publishes versions, and accounts for every record."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pipeline.config import PipelineConfig

if TYPE_CHECKING:
    from pipeline.learner.dqn import DQNTrainingNode
    from pipeline.learner.node import TrainingNode
    from pipeline.learner.ppo import PPOTrainingNode

__all__ = ["DQNTrainingNode", "PPOTrainingNode", "TrainingNode", "new_node"]

_HOMES = {"DQNTrainingNode": "dqn", "PPOTrainingNode": "ppo", "TrainingNode": "node"}


def new_node(config: PipelineConfig) -> "TrainingNode":
    """The training node of ``algorithm.name``, in its initial state.

    Raises:
        ConfigError: the run's name, the environment or a setting is not usable.
        SpaceError: the environment's spaces cannot be carried.
    """
    home, name = ("ppo", "PPOTrainingNode") if config.algorithm.name == "ppo" else ("dqn", "DQNTrainingNode")
    return getattr(import_module(f"{__name__}.{home}"), name)(config)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
