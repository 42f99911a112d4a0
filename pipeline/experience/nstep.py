"""n-step transitions, computed by the reader from chunks of any actor.

The return of the step at time t is r_t + g r_{t+1} + … + g^{k-1} r_{t+k-1}, where g is gamma and
k is n, or less where the episode or what is known of it ends before. It bootstraps from the
observation k steps later with discount g^k, or 0 where the episode terminated there (Sutton and
Barto, Reinforcement Learning, 2nd ed., section 7.1; truncation bootstraps: Pardo et al. 2018,
arXiv:1712.00378).
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import CheckpointError, ConfigError
from pipeline.experience.chunk import Chunk, Ending
from pipeline.experience.identity import Identity
from pipeline.experience.layout import ACTION_MASK, Layout
from pipeline.experience.rewards import RewardTransform
from pipeline.experience.spaces import Column
from pipeline.experience.version import NUMBER_LIMIT

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Transitions:
    """T transitions over R shared observation rows.

    Attributes:
        observations: arrays of R rows by column name; each observation once.
        start: int64[T], row of s_t; strictly increasing.
        end: int64[T], row of the observation to bootstrap from; start < end <= start + n.
        columns: arrays of T rows by column name: action and extras of the step at `start`; but of
            ``action_mask`` the window's last one, which belongs to the observation at `end`.
        reward: float32[T], the n-step return of the transformed rewards, without the bootstrap.
        discount: float32[T], gamma^k, or 0 after termination.
        version_epoch: int64[T], epoch of the oldest version that acted in the window.
        version_number: int64[T], its number.
    """

    observations: Columns
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    columns: Columns
    reward: NDArray[np.float32]
    discount: NDArray[np.float32]
    version_epoch: NDArray[np.int64]
    version_number: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False)
class _Steps:
    """k consecutive steps and their k + 1 observations; `keys` are version keys, int64[k]."""

    observations: Columns
    columns: Columns
    keys: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, eq=False)
class _Tail:
    """The last steps of an open segment, which wait for what follows."""

    episode: int
    next_step: int
    steps: _Steps


@dataclass(eq=False)
class _Stream:
    """What is known of one session of an actor: its newest chunk, and tails by environment."""

    sequence: int
    tails: dict[int, _Tail] = field(default_factory=dict[int, _Tail])


class NStepReader:
    """Turns chunks into n-step transitions, in the order in which chunks are read.

    Every step of every chunk read becomes exactly one transition, now or, for the last n - 1
    steps of an open segment, when its continuation is read: a segment of the same session,
    environment and episode that begins at the next step, with no gap in the session's sequence
    in between. Where a chunk of the session shows that the continuation is lost, the waiting
    steps are given out with the shorter horizon, bootstrapping from the last observation known.
    The same happens to the session that was heard of longest ago when there are more than
    `max_streams`, and to a session's longest waiting environments beyond `max_environments`.

    A chunk whose sequence is not above the session's newest is read by itself and leaves what
    waits as it is. Removing duplicates is the caller's part.

    Args:
        n: steps in a window, at least 1.
        gamma: discount per step, 0 to 1.
        max_streams: sessions that may have steps waiting.
        max_environments: sub-environments of one session that may have steps waiting.
        rewards: what is done to each step's reward before it is summed; None: nothing. Steps wait with the rewards that
            they came with.

    Raises:
        ConfigError: a figure is out of range.
    """

    def __init__(
        self,
        n: int,
        gamma: float,
        max_streams: int = 4096,
        max_environments: int = 4096,
        rewards: RewardTransform | None = None,
    ) -> None:
        if n < 1 or not 0.0 <= gamma <= 1.0 or max_streams < 1 or max_environments < 1:
            raise ConfigError(
                f"n-step reader: n is {n}, gamma {gamma}, max_streams {max_streams}, "
                f"max_environments {max_environments}; expected gamma in 0 … 1, all others >= 1"
            )
        self.n = n
        self.gamma = gamma
        self.max_streams = max_streams
        self.max_environments = max_environments
        self.rewards = rewards or RewardTransform()
        self._streams: OrderedDict[tuple[str, str], _Stream] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Steps that wait for their continuation."""
        return sum(len(t.steps) for s in self._streams.values() for t in s.tails.values())

    def read(self, identity: Identity, chunk: Chunk, layout: Layout) -> Transitions:
        """The transitions that this chunk completes, with those that waited for it.

        Args:
            identity: of the chunk.
            chunk: satisfies ``chunk.validate(layout)``.
            layout: the run's columns; the same in every call.

        Returns:
            Copies and views of the chunk's arrays; views only of a chunk's own arrays, so they
            may be read-only.
        """
        assembly = _Assembly(self.n, chunk, layout)
        stream_key = (identity.actor, identity.session)
        known = self._streams.get(stream_key)
        if known is not None and identity.sequence <= known.sequence:
            for index in range(len(chunk.segments)):
                assembly.segment(index, None, keep=False)
            return assembly.transitions(self.gamma, self.rewards)
        stream = _Stream(identity.sequence)
        before: dict[int, _Tail] = {}
        if known is not None:
            if identity.sequence == known.sequence + 1:
                before = known.tails
            else:
                for tail in known.tails.values():
                    assembly.flush(tail.steps)
        self._read_segments(chunk, before, stream, assembly)
        self._streams[stream_key] = stream
        self._streams.move_to_end(stream_key)
        if len(self._streams) > self.max_streams:
            for tail in self._streams.popitem(last=False)[1].tails.values():
                assembly.flush(tail.steps)
        return assembly.transitions(self.gamma, self.rewards)

    def flush(self, layout: Layout) -> Transitions:
        """All waiting steps, with shorter horizons: for the end of a run."""
        assembly = _Assembly(self.n, None, layout)
        for stream in self._streams.values():
            for tail in stream.tails.values():
                assembly.flush(tail.steps)
            stream.tails = {}
        return assembly.transitions(self.gamma, self.rewards)

    def _read_segments(self, chunk: Chunk, before: dict[int, _Tail], stream: _Stream, assembly: _Assembly) -> None:
        segments = chunk.segments
        environments = segments.environment.tolist()
        episodes = segments.episode.tolist()
        firsts = segments.first_step.tolist()
        last_of = {environment: index for index, environment in enumerate(environments)}
        waiting = dict(before)
        joined: dict[int, _Tail] = {}
        for index, environment in enumerate(environments):
            tail = waiting.get(environment)
            if tail and (tail.episode, tail.next_step) == (episodes[index], firsts[index]):
                joined[index] = waiting.pop(environment)
        for environment, tail in waiting.items():
            if environment in last_of:
                assembly.flush(tail.steps)
            else:
                # The chunk says nothing of this environment: its episode may still go on.
                stream.tails[environment] = tail
        for index, environment in enumerate(environments):
            keep = last_of[environment] == index
            steps = assembly.segment(index, joined.get(index), keep)
            if steps is not None:
                next_step = firsts[index] + int(segments.length[index])
                stream.tails[environment] = _Tail(episodes[index], next_step, steps)
        while len(stream.tails) > self.max_environments:
            assembly.flush(stream.tails.pop(next(iter(stream.tails))).steps)

    def state(self) -> dict[str, NDArray[Any]]:
        """All that waits, as plain arrays by name, for a checkpoint.

        ``index`` is JSON text as uint8; the other arrays are the waiting steps one after another.
        """
        index: list[dict[str, Any]] = []
        waiting: list[_Steps] = []
        for (actor, session), stream in self._streams.items():
            tails: list[list[int]] = []
            for environment, tail in stream.tails.items():
                tails.append([environment, tail.episode, tail.next_step, len(tail.steps)])
                waiting.append(tail.steps)
            index.append({"actor": actor, "session": session, "sequence": stream.sequence, "tails": tails})
        text = json.dumps({"n": self.n, "gamma": self.gamma, "streams": index})
        arrays: dict[str, NDArray[Any]] = {"index": np.frombuffer(text.encode(), np.uint8).copy()}
        if waiting:
            arrays["keys"] = np.concatenate([steps.keys for steps in waiting])
            for name in waiting[0].observations:
                parts = [steps.observations[name] for steps in waiting]
                arrays[f"observations:{name}"] = np.concatenate(parts)
            for name in waiting[0].columns:
                parts = [steps.columns[name] for steps in waiting]
                arrays[f"columns:{name}"] = np.concatenate(parts)
        return arrays

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `state` gave.

        Raises:
            CheckpointError: it is of another n or gamma, or damaged.
        """
        try:
            index: Any = json.loads(state["index"].tobytes())
            if (index["n"], index["gamma"]) != (self.n, self.gamma):
                raise CheckpointError(
                    f"waiting steps are of n {index['n']}, gamma {index['gamma']}; "
                    f"this reader has n {self.n}, gamma {self.gamma}"
                )
            self._streams = _streams_from(index["streams"], state)
        except (KeyError, TypeError, ValueError) as error:
            detail = f"the waiting steps in the checkpoint are damaged: {error}"
            raise CheckpointError(detail) from error


class _Assembly:
    """Gathers pieces of one `read` and computes all their transitions at once.

    A piece is consecutive steps of one episode, some of which, the first, become transitions now.
    Each column is a list of parts, which are joined in the end.
    """

    def __init__(self, n: int, chunk: Chunk | None, layout: Layout) -> None:
        self._n = n
        self._layout = layout
        # For each piece: its first row, its first step, its length, how many steps become
        # transitions, and whether the episode terminated at its end.
        self._pieces: list[tuple[int, int, int, int, bool]] = []
        self._rows = 0
        self._steps = 0
        self._observations: dict[str, list[NDArray[Any]]] = {c.name: [] for c in layout.observation}
        self._columns: dict[str, list[NDArray[Any]]] = {c.name: [] for c in layout.step_columns}
        self._keys: list[NDArray[np.int64]] = []
        # Rows and steps of the chunk that stand next to each other and are not among the parts yet.
        self._row_range = (0, 0)
        self._step_range = (0, 0)
        if chunk is not None:
            segments = chunk.segments
            self._chunk_observations = {name: chunk.columns[name] for name in self._observations}
            self._chunk_columns = {name: chunk.columns[name] for name in self._columns}
            self._chunk_keys = np.full(segments.steps, chunk.version.key, np.int64)
            self._segments: list[tuple[int, int, int, int]] = list(
                zip(
                    segments.row_offsets.tolist(),
                    segments.step_offsets.tolist(),
                    segments.length.tolist(),
                    segments.ending.tolist(),
                    strict=True,
                )
            )

    def flush(self, steps: _Steps) -> None:
        """Give out waiting steps whose continuation is lost."""
        self._add_waiting(steps, None)
        self._add_piece(len(steps), len(steps), False)

    def segment(self, index: int, tail: _Tail | None, keep: bool) -> _Steps | None:
        """Give out a segment after its tail; what cannot be completed is returned if `keep`."""
        row, step, length, ending = self._segments[index]
        carried = 0 if tail is None else len(tail.steps)
        total = carried + length
        kept = min(self._n - 1, total) if keep and ending == Ending.OPEN else 0
        if total > kept:
            if tail is not None:
                # The continuation sends the last observation again as its first.
                self._add_waiting(tail.steps, -1)
            self._add_own(row, step, length)
            self._add_piece(total, total - kept, ending == Ending.TERMINATED)
        if kept == 0:
            return None
        own = self._own_end(row + length, step + length, min(kept, length))
        return own if kept <= length else _join_last(cast("_Tail", tail).steps, own, kept)

    def transitions(self, gamma: float, transform: RewardTransform) -> Transitions:
        """Compute the transitions of all pieces."""
        self._close_range()
        rows, steps, lengths, emitted, terminated = np.array(self._pieces, np.int64).reshape(-1, 5).T
        piece = np.repeat(np.arange(len(emitted)), emitted)
        # With what came before taken off, counting through all transitions counts within each piece.
        before = np.cumsum(emitted) - emitted
        number = np.arange(len(piece))
        start = (rows - before)[piece] + number
        step = (steps - before)[piece] + number
        left = (lengths + before)[piece] - number
        horizon = np.minimum(left, self._n)

        columns = {column.name: _joined(self._columns[column.name], column) for column in self._layout.step_columns}
        rewards = transform(columns["reward"])
        all_keys = np.concatenate(self._keys) if self._keys else np.empty(0, np.int64)
        total = rewards[step]
        keys = all_keys[step]
        furthest = horizon - 1
        for ahead in range(1, self._n):
            # Past the horizon the window's last step stands in, with weight 0.
            other = step + np.minimum(ahead, furthest)
            total += np.where(furthest >= ahead, gamma**ahead * rewards[other], 0.0)
            np.minimum(keys, all_keys[other], out=keys)
        discount = np.array([gamma**k for k in range(self._n + 1)], np.float64)[horizon]
        discount[(horizon == left) & (terminated != 0)[piece]] = 0.0
        return Transitions(
            observations={c.name: _joined(self._observations[c.name], c) for c in self._layout.observation},
            start=start,
            end=start + horizon,
            columns={
                name: array[step + furthest if name == ACTION_MASK else step]
                for name, array in columns.items()
                if name != "reward"
            },
            reward=total.astype(np.float32),
            discount=discount.astype(np.float32),
            version_epoch=keys >> 40,
            version_number=keys & (NUMBER_LIMIT - 1),
        )

    def _add_piece(self, length: int, emitted: int, terminated: bool) -> None:
        self._pieces.append((self._rows, self._steps, length, emitted, terminated))
        self._rows += length + 1
        self._steps += length

    def _add_waiting(self, steps: _Steps, last: int | None) -> None:
        self._close_range()
        for name, array in steps.observations.items():
            self._observations[name].append(array[:last])
        for name, array in steps.columns.items():
            self._columns[name].append(array)
        self._keys.append(steps.keys)

    def _add_own(self, row: int, step: int, length: int) -> None:
        if self._row_range[1] != row:
            self._close_range()
            self._row_range, self._step_range = (row, row), (step, step)
        self._row_range = (self._row_range[0], row + length + 1)
        self._step_range = (self._step_range[0], step + length)

    def _close_range(self) -> None:
        first, last = self._row_range
        if first == last:
            return
        for name, array in self._chunk_observations.items():
            self._observations[name].append(array[first:last])
        first, last = self._step_range
        for name, array in self._chunk_columns.items():
            self._columns[name].append(array[first:last])
        self._keys.append(self._chunk_keys[first:last])
        self._row_range = self._step_range = (0, 0)

    def _own_end(self, row: int, step: int, count: int) -> _Steps:
        """Copies of the last steps of a segment: a waiting slice must not keep its whole record in memory."""
        return _Steps(
            {name: array[row - count : row + 1].copy() for name, array in self._chunk_observations.items()},
            {name: array[step - count : step].copy() for name, array in self._chunk_columns.items()},
            self._chunk_keys[step - count : step].copy(),
        )


def _joined(parts: list[NDArray[Any]], column: Column) -> NDArray[Any]:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty((0, *column.shape), column.dtype)


def _join_last(before: _Steps, after: _Steps, count: int) -> _Steps:
    """The last `count` steps of both together; `after` begins with the last observation of `before`."""
    missing = count - len(after)
    return _Steps(
        {n: np.concatenate([before.observations[n][-missing - 1 : -1], a]) for n, a in after.observations.items()},
        {n: np.concatenate([before.columns[n][-missing:], a]) for n, a in after.columns.items()},
        np.concatenate([before.keys[-missing:], after.keys]),
    )


def _streams_from(
    index: list[dict[str, Any]], state: Mapping[str, NDArray[Any]]
) -> OrderedDict[tuple[str, str], _Stream]:
    observations = _under("observations:", state)
    columns = _under("columns:", state)
    streams: OrderedDict[tuple[str, str], _Stream] = OrderedDict()
    row = step = 0
    for item in index:
        stream = _Stream(int(item["sequence"]))
        for environment, episode, next_step, length in item["tails"]:
            steps = _Steps(
                {name: array[row : row + length + 1].copy() for name, array in observations.items()},
                {name: array[step : step + length].copy() for name, array in columns.items()},
                state["keys"][step : step + length].copy(),
            )
            if len(steps) != length or any(len(a) != length for a in steps.columns.values()):
                raise ValueError("fewer steps than the index says")
            stream.tails[environment] = _Tail(episode, next_step, steps)
            row += length + 1
            step += length
        streams[(item["actor"], item["session"])] = stream
    return streams


def _under(prefix: str, state: Mapping[str, NDArray[Any]]) -> Columns:
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
