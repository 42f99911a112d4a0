"""What the tests of telemetry are made of."""

from pipeline.experience import EpisodeInfo, Version
from pipeline.experience.chunk import Ending


def episode(number: int, total_return: float = 1.0, version: int = 0, steps: int = 10, actor: str = "a") -> EpisodeInfo:
    """An episode as an actor tells of it."""
    return EpisodeInfo(
        actor=actor,
        session="0" * 32,
        episode=number,
        environment=0,
        steps=steps,
        total_return=total_return,
        version=Version(1, version),
        ending=Ending.TERMINATED,
        started_ms=1_000 * number,
        ended_ms=1_000 * number + 500,
        info={"score": total_return / 2},
    )
