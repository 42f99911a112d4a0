"""The experience of one iteration: the accepted chunks of the version in force, brought into one order.

Chunks of several clients arrive interleaved by chance. :meth:`Rollouts.rollout` puts their segments in canonical order,
by (actor, session, environment, episode, first step), so the same chunks give the same arrays to the last bit, and
training the same weights, in whatever order they came.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.algorithms import Rollout
from pipeline.errors import CheckpointError, InvalidRecordError, LearnerError
from pipeline.experience import Chunk, Ending, Identity, Layout, RewardTransform
from pipeline.wire import decode_chunk, encode_chunk

_CHUNK = "chunk"


class _Piece(NamedTuple):
    """A segment and where it lies; sorts into canonical order, for sequence and place make it unique."""

    actor: str
    session: str
    environment: int
    episode: int
    first_step: int
    sequence: int
    place: int


class Rollouts:
    """Collects accepted chunks until they are trained on.

    Args:
        layout: the run's columns.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._chunks: dict[Identity, Chunk] = {}

    def __len__(self) -> int:
        """Transitions collected."""
        return sum(chunk.steps for chunk in self._chunks.values())

    def add(self, identity: Identity, chunk: Chunk) -> None:
        """Take in an accepted chunk; its arrays are kept, not copied."""
        self._chunks[identity] = chunk

    def clear(self) -> None:
        """A version was cut: begin anew."""
        self._chunks.clear()

    def rollout(self, rewards: RewardTransform) -> Rollout:
        """All that was collected, in canonical order.

        Args:
            rewards: makes of the log's rewards those that are learned from.

        Raises:
            LearnerError: nothing was.
        """
        if not self._chunks:
            raise LearnerError("there is nothing to train on: no chunk of this version was accepted")
        pieces = sorted(self._pieces())
        lengths = [int(self._chunk(piece).segments.length[piece.place]) for piece in pieces]
        endings = [int(self._chunk(piece).segments.ending[piece.place]) for piece in pieces]
        goes_on = [
            ending == Ending.OPEN and piece[:4] == following[:4] and piece.first_step + length == following.first_step
            for piece, following, length, ending in zip(pieces, pieces[1:], lengths, endings, strict=False)
        ]
        columns = {
            column.name: self._gathered(column.name, pieces, lengths, observed=False)
            for column in self._layout.step_columns
        }
        reward = rewards(columns.pop("reward")).astype(np.float32)
        return Rollout(
            observations={
                column.name: self._gathered(column.name, pieces, lengths, observed=True)
                for column in self._layout.observation
            },
            columns=columns,
            reward=reward,
            length=np.array(lengths, np.int64),
            ending=np.array(endings, np.uint8),
            continues=np.array([*goes_on, False], np.bool_),
        )

    # -- checkpoint ---------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, NDArray[Any]], list[list[Any]]]:
        """What a checkpoint keeps: each chunk's encoding as uint8, by a name, and the identities in the same order."""
        identities = sorted(self._chunks)
        tensors = {
            f"{_CHUNK}/{index:06d}": np.frombuffer(encode_chunk(self._chunks[identity], self._layout), np.uint8)
            for index, identity in enumerate(identities)
        }
        return tensors, [list(identity) for identity in identities]

    def load_state(self, tensors: Mapping[str, NDArray[Any]], identities: list[list[Any]]) -> None:
        """Take over what :meth:`state` gave.

        Raises:
            CheckpointError: it is damaged, or of another layout. Nothing was changed then.
        """
        chunks: dict[Identity, Chunk] = {}
        try:
            for index, (actor, session, sequence) in enumerate(identities):
                data = tensors[f"{_CHUNK}/{index:06d}"].tobytes()
                chunks[Identity(str(actor), str(session), int(sequence))] = decode_chunk(data, self._layout)
        except (InvalidRecordError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"rollouts: a chunk in the checkpoint cannot be read: {error!r}") from error
        self._chunks = chunks

    # -- inside -------------------------------------------------------------------------------------------------------

    def _pieces(self) -> Iterator[_Piece]:
        for (actor, session, sequence), chunk in self._chunks.items():
            table = chunk.segments
            rows = zip(table.environment.tolist(), table.episode.tolist(), table.first_step.tolist(), strict=True)
            for place, (environment, episode, first_step) in enumerate(rows):
                yield _Piece(actor, session, environment, episode, first_step, sequence, place)

    def _chunk(self, piece: _Piece) -> Chunk:
        return self._chunks[Identity(piece.actor, piece.session, piece.sequence)]

    def _gathered(self, name: str, pieces: list[_Piece], lengths: list[int], *, observed: bool) -> NDArray[Any]:
        """One column of all segments, one after the other: a copy in native byte order."""
        column = self._layout.by_name[name]
        target = np.empty((sum(lengths) + observed * len(pieces), *column.shape), column.dtype)
        row = 0
        for piece, length in zip(pieces, lengths, strict=True):
            chunk = self._chunk(piece)
            offsets = chunk.segments.row_offsets if observed else chunk.segments.step_offsets
            first, count = int(offsets[piece.place]), length + observed
            target[row : row + count] = chunk.columns[name][first : first + count]
            row += count
        return target
