"""What is told of a whole episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.experience.chunk import Ending
from pipeline.experience.version import Version


@dataclass(frozen=True)
class EpisodeInfo:
    """Summary of one episode of one sub-environment.

    Attributes:
        actor: the actor's name.
        session: the actor's session, 32 hexadecimal characters.
        episode: the actor's number for the episode.
        environment: index of the sub-environment within the actor.
        steps: number of steps.
        total_return: undiscounted sum of rewards.
        version: the version that acted in the last step.
        ending: terminated or truncated; open where the actor gave the episode up.
        started_ms, ended_ms: the actor's unix time in milliseconds; for display only.
        info: further figures by name, such as the environment's own score.
    """

    actor: str
    session: str
    episode: int
    environment: int
    steps: int
    total_return: float
    version: Version
    ending: Ending
    started_ms: int
    ended_ms: int
    info: Mapping[str, float] = field(default_factory=dict[str, float])
