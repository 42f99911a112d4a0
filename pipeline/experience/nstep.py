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
from pipeline.experience.layout import Layout
from pipeline.experience.version import NUMBER_LIMIT

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Transitions:
    """T transitions over R shared observation rows.

    Attributes:
        observations: arrays of R rows by column name; each observation once.
        start: int64[T], row of s_t; strictly increasing.
        end: int64[T], row of the observation to bootstrap from; start < end <= start + n.
        columns: arrays of T rows by column name: action and extras of the step at `start`.
        reward: float32[T], the n-step return, without the bootstrap.
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


@dataclass(frozen=True)
class _Piece:
    """Consecutive steps of one episode: some `length` steps from row `row` and step `step`.

    `emitted` of them, the first, become transitions now.
    """

    row: int
    step: int
    length: int
    emitted: int
    terminated: bool


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

    Raises:
        ConfigError: a figure is out of range.
    """

    def __init__(self, n: int, gamma: float, max_streams: int = 4096, max_environments: int = 4096) -> None:
        if n < 1 or not 0.0 <= gamma <= 1.0 or max_streams < 1 or max_environments < 1:
            raise ConfigError(
                f"n-step reader: n is {n}, gamma {gamma}, max_streams {max_streams}, "
                f"max_environments {max_environments}; expected gamma in 0 … 1, all others >= 1"
            )
        self.n = n
        self.gamma = gamma
        self.max_streams = max_streams
        self.max_environments = max_environments
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
            return assembly.transitions(self.gamma)
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
        return assembly.transitions(self.gamma)

    def flush(self, layout: Layout) -> Transitions:
        """All waiting steps, with shorter horizons: for the end of a run."""
        assembly = _Assembly(self.n, None, layout)
        for stream in self._streams.values():
            for tail in stream.tails.values():
                assembly.flush(tail.steps)
            stream.tails = {}
        return assembly.transitions(self.gamma)

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
    """Gathers pieces of one `read` and computes all their transitions at once."""

    def __init__(self, n: int, chunk: Chunk | None, layout: Layout) -> None:
        self._n = n
        self._chunk = chunk
        self._observation_names = [column.name for column in layout.observation]
        self._step_names = [column.name for column in layout.step_columns]
        self._layout = layout
        self._pieces: list[_Piece] = []
        self._sources: list[_Steps] = []
        self._rows = 0
        self._steps = 0
        if chunk is not None:
            self._keys = np.full(chunk.steps, chunk.version.key, np.int64)
            self._row_offsets: list[int] = chunk.segments.row_offsets.tolist()
            self._step_offsets: list[int] = chunk.segments.step_offsets.tolist()
            self._lengths: list[int] = chunk.segments.length.tolist()
            self._endings: list[int] = chunk.segments.ending.tolist()

    def flush(self, steps: _Steps) -> None:
        """Give out waiting steps whose continuation is lost."""
        self._add([steps], len(steps), len(steps), False)

    def segment(self, index: int, tail: _Tail | None, keep: bool) -> _Steps | None:
        """Give out a segment after its tail; what cannot be completed is returned if `keep`."""
        row, step, length = (
            self._row_offsets[index],
            self._step_offsets[index],
            self._lengths[index],
        )
        ending = self._endings[index]
        own = self._slice(row, step, length)
        parts = [own] if tail is None else [_without_last(tail.steps), own]
        carried = 0 if tail is None else len(tail.steps)
        total = carried + length
        kept = min(self._n - 1, total) if keep and ending == Ending.OPEN else 0
        if total > kept:
            self._add(parts, total, total - kept, ending == Ending.TERMINATED)
        if kept == 0:
            return None
        if kept <= length:
            return _copy(self._slice(row + length - kept, step + length - kept, kept))
        return _tail_of(_join(parts), kept)

    def transitions(self, gamma: float) -> Transitions:
        """Compute the transitions of all pieces."""
        joined = _join(self._sources) if self._sources else self._nothing()
        pieces = self._pieces
        emitted = np.array([piece.emitted for piece in pieces], np.int64)
        count = int(emitted.sum())
        # Position of each transition within its piece: 0, 1, … for each piece anew.
        ordinal = np.arange(count, dtype=np.int64)
        ordinal -= np.repeat(np.cumsum(emitted) - emitted, emitted)
        left = np.repeat(np.array([p.length for p in pieces], np.int64), emitted) - ordinal
        horizon = np.minimum(left, self._n)
        start = np.repeat(np.array([p.row for p in pieces], np.int64), emitted) + ordinal
        step = np.repeat(np.array([p.step for p in pieces], np.int64), emitted) + ordinal
        terminated = np.repeat(np.array([p.terminated for p in pieces], np.bool_), emitted)

        rewards = joined.columns["reward"].astype(np.float64)
        total = rewards[step]
        keys = joined.keys[step]
        for ahead in range(1, self._n):
            # Past the horizon the window's last step stands in, with weight 0.
            other = step + np.minimum(ahead, horizon - 1)
            total += np.where(ahead < horizon, gamma**ahead * rewards[other], 0.0)
            np.minimum(keys, joined.keys[other], out=keys)
        powers = np.array([gamma**k for k in range(self._n + 1)], np.float64)
        discount = np.where(terminated & (horizon == left), 0.0, powers[horizon])
        return Transitions(
            observations=joined.observations,
            start=start,
            end=start + horizon,
            columns={name: array[step] for name, array in joined.columns.items() if name != "reward"},
            reward=total.astype(np.float32),
            discount=discount.astype(np.float32),
            version_epoch=keys >> 40,
            version_number=keys & (NUMBER_LIMIT - 1),
        )

    def _add(self, parts: list[_Steps], length: int, emitted: int, terminated: bool) -> None:
        self._pieces.append(_Piece(self._rows, self._steps, length, emitted, terminated))
        self._sources.extend(parts)
        self._rows += length + 1
        self._steps += length

    def _slice(self, row: int, step: int, length: int) -> _Steps:
        columns = cast("Chunk", self._chunk).columns
        return _Steps(
            {name: columns[name][row : row + length + 1] for name in self._observation_names},
            {name: columns[name][step : step + length] for name in self._step_names},
            self._keys[step : step + length],
        )

    def _nothing(self) -> _Steps:
        layout = self._layout
        return _Steps(
            {c.name: np.empty((0, *c.shape), c.dtype) for c in layout.observation},
            {c.name: np.empty((0, *c.shape), c.dtype) for c in layout.step_columns},
            np.empty(0, np.int64),
        )


def _join(parts: list[_Steps]) -> _Steps:
    if len(parts) == 1:
        return parts[0]
    observations, columns = parts[0].observations, parts[0].columns
    return _Steps(
        {name: np.concatenate([p.observations[name] for p in parts]) for name in observations},
        {name: np.concatenate([p.columns[name] for p in parts]) for name in columns},
        np.concatenate([p.keys for p in parts]),
    )


def _copy(steps: _Steps) -> _Steps:
    # A waiting slice must not keep the whole record that it is a view of in memory.
    return _Steps(
        {name: array.copy() for name, array in steps.observations.items()},
        {name: array.copy() for name, array in steps.columns.items()},
        steps.keys.copy(),
    )


def _without_last(steps: _Steps) -> _Steps:
    """Without the last observation, which the continuation sends again as its first."""
    observations = {name: array[:-1] for name, array in steps.observations.items()}
    return _Steps(observations, steps.columns, steps.keys)


def _tail_of(steps: _Steps, count: int) -> _Steps:
    return _copy(
        _Steps(
            {name: array[-count - 1 :] for name, array in steps.observations.items()},
            {name: array[-count:] for name, array in steps.columns.items()},
            steps.keys[-count:],
        )
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
                {name: array[row : row + length + 1] for name, array in observations.items()},
                {name: array[step : step + length] for name, array in columns.items()},
                state["keys"][step : step + length],
            )
            if len(steps) != length or any(len(a) != length for a in steps.columns.values()):
                raise ValueError("fewer steps than the index says")
            stream.tails[environment] = _Tail(episode, next_step, _copy(steps))
            row += length + 1
            step += length
        streams[(item["actor"], item["session"])] = stream
    return streams


def _under(prefix: str, state: Mapping[str, NDArray[Any]]) -> Columns:
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
