"""The steps of a chunk as complete transitions: (s, a, r, s'), one a step."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.experience import Chunk, Ending, Layout

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Steps:
    """k steps, in the chunk's order; all arrays have k rows.

    Attributes:
        observation: s_t by column name.
        columns: action, reward and extras by column name.
        next_observation: s_{t+1} by the name of its observation column.
        environment: int32, index of the sub-environment within the actor.
        episode: int64, the actor's number for the episode.
        step: int32, the episode's step, from 0.
        terminated, truncated: bool, whether the episode ended with this step, and how.
    """

    observation: Columns
    columns: Columns
    next_observation: Columns
    environment: NDArray[np.int32]
    episode: NDArray[np.int64]
    step: NDArray[np.int32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.step)


def steps_of(chunk: Chunk, layout: Layout) -> Steps:
    """All steps of a chunk that satisfies ``chunk.validate(layout)``.

    Within a segment of k steps there are k + 1 observations: the next one of a step is the row after its own.
    """
    segments = chunk.segments
    lengths = segments.length
    index = np.arange(chunk.steps, dtype=np.int64)
    segment = np.repeat(np.arange(len(segments), dtype=np.int64), lengths)
    row = index + segment
    within = index - segments.step_offsets[segment]
    last = within == lengths[segment] - 1
    ending = segments.ending[segment]
    return Steps(
        observation={column.name: chunk.columns[column.name][row] for column in layout.observation},
        columns={column.name: chunk.columns[column.name] for column in layout.step_columns},
        next_observation={column.name: chunk.columns[column.name][row + 1] for column in layout.observation},
        environment=segments.environment[segment],
        episode=segments.episode[segment],
        step=(segments.first_step[segment] + within).astype(np.int32),
        terminated=last & (ending == Ending.TERMINATED),
        truncated=last & (ending == Ending.TRUNCATED),
    )
