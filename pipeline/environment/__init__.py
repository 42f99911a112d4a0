"""What actors act in, and what is done to it between the environment and the agent.

The run's settings decide it, for the learner, which reads the spaces, the acting loop, evaluation, and clients with a
loop of their own alike.
"""

from pipeline.environment.actions import MappedActions, VectorMappedActions
from pipeline.environment.frames import Frames, StackedFrames, VectorStackedFrames, stacked_space
from pipeline.environment.making import check_module, declare, make_vector, read_layout, wrap
from pipeline.environment.masks import action_masks
from pipeline.environment.nested import last_observations, rows

__all__ = [
    "Frames",
    "MappedActions",
    "StackedFrames",
    "VectorMappedActions",
    "VectorStackedFrames",
    "action_masks",
    "check_module",
    "declare",
    "last_observations",
    "make_vector",
    "read_layout",
    "rows",
    "stacked_space",
    "wrap",
]
