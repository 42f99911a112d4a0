"""What flows through the pipeline: chunks of segments, versions, identities, spaces, n-step."""

from pipeline.experience.chunk import Chunk, Ending, Segments
from pipeline.experience.episode import EpisodeInfo
from pipeline.experience.identity import Identity, new_session
from pipeline.experience.layout import ACTED_MASK, ACTION_MASK, LOG_PROB, Layout
from pipeline.experience.nstep import NStepReader, Transitions
from pipeline.experience.rewards import RewardTransform
from pipeline.experience.spaces import (
    Column,
    flatten,
    flatten_space,
    space_from_json,
    space_to_json,
    unflatten,
)
from pipeline.experience.version import Version

__all__ = [
    "ACTED_MASK",
    "ACTION_MASK",
    "LOG_PROB",
    "Chunk",
    "Column",
    "Ending",
    "EpisodeInfo",
    "Identity",
    "Layout",
    "NStepReader",
    "RewardTransform",
    "Segments",
    "Transitions",
    "Version",
    "flatten",
    "flatten_space",
    "new_session",
    "space_from_json",
    "space_to_json",
    "unflatten",
]
