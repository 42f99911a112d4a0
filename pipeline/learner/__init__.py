"""The learner: a fold over the samples topic that trains, publishes versions, and accounts for every record."""

from typing import TYPE_CHECKING

from pipeline.config import PipelineConfig
from pipeline.lazy import lazily

if TYPE_CHECKING:
    from pipeline.learner.dqn import DQNTrainingNode
    from pipeline.learner.node import TrainingNode
    from pipeline.learner.ppo import PPOTrainingNode

__all__ = ["DQNTrainingNode", "PPOTrainingNode", "TrainingNode", "new_node"]

__getattr__ = lazily(__name__, {"DQNTrainingNode": "dqn", "PPOTrainingNode": "ppo", "TrainingNode": "node"})


def new_node(config: PipelineConfig) -> "TrainingNode":
    """The training node of ``algorithm.name``, in its initial state.

    Raises:
        ConfigError: the run's name, the environment or a setting is not usable.
        SpaceError: the environment's spaces cannot be carried.
    """
    name = "PPOTrainingNode" if config.algorithm.name == "ppo" else "DQNTrainingNode"
    return __getattr__(name)(config)
