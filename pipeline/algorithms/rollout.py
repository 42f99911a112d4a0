"""What PPO asks of an iteration's experience."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import LearnerError


@dataclass(frozen=True, eq=False)
class Rollout:
    """Steps that were all made under one version, as segments: consecutive steps of one episode.

    As in a chunk, k steps of a segment have k + 1 observations, and everything stands segment after segment. The
    algorithm reads the arrays during the call only, and never writes to them.

    Attributes:
        observations: by column name, each (steps + S, *column.shape).
        columns: action, ``log_prob`` float32, and where actions are masked ``acted_mask`` bool (actions,), by column
            name, each (steps, *column.shape).
        reward: float32 (steps,), as it is to be learned from: scaled and clipped already.
        length: int64 (S,), steps of each segment, at least 1.
        ending: uint8 (S,), values of :class:`pipeline.experience.Ending`.
        continues: bool (S,): segment s + 1 goes on where segment s, which is open, ends: the same environment and
            episode, the next step. Never of the last segment.

    Raises:
        LearnerError: the arrays do not fit together.
    """

    observations: Mapping[str, NDArray[Any]]
    columns: Mapping[str, NDArray[Any]]
    reward: NDArray[np.float32]
    length: NDArray[np.int64]
    ending: NDArray[np.uint8]
    continues: NDArray[np.bool_]

    def __post_init__(self) -> None:
        segments = len(self.length)
        if not segments or self.length.min() < 1:
            raise LearnerError("rollout: there have to be segments, each of one step or more")
        steps = int(self.length.sum())
        arrays: list[tuple[str, NDArray[Any], int]] = [
            ("reward", self.reward, steps),
            ("ending", self.ending, segments),
            ("continues", self.continues, segments),
        ]
        arrays += [(name, array, steps) for name, array in self.columns.items()]
        arrays += [(name, array, steps + segments) for name, array in self.observations.items()]
        for name, array, count in arrays:
            if len(array) != count:
                raise LearnerError(
                    f"rollout: {name!r} has {len(array)} rows where {segments} segments of {steps} steps need {count}"
                )
        if self.continues[-1] or (self.continues & (self.ending != 0)).any():
            raise LearnerError("rollout: only an open segment can be gone on with, and only by the one after it")

    @property
    def steps(self) -> int:
        """Number of steps in all segments together."""
        return len(self.reward)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The observation row that each step acted on, int64 (steps,); the one after it is what the step led to."""
        return np.arange(self.steps) + np.repeat(np.arange(len(self.length)), self.length)
