"""The learner: a fold over the samples topic that trains, publishes versions, and accounts for every record."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.learner.dqn import DQNTrainingNode
    from pipeline.learner.node import TrainingNode

__all__ = ["DQNTrainingNode", "TrainingNode"]

_HOMES = {"DQNTrainingNode": "dqn", "TrainingNode": "node"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
