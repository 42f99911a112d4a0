"""n-step transitions against a naive reference that knows whole episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import CheckpointError, ConfigError
from pipeline.experience import (
    Chunk,
    Column,
    Ending,
    Identity,
    Layout,
    NStepReader,
    Segments,
    Transitions,
    Version,
)

LAYOUT = Layout(
    spaces.Dict(a=spaces.Box(-np.inf, np.inf, (2,)), b=spaces.Discrete(1 << 40)),
    spaces.Discrete(1 << 40),
    (Column("log_probability", np.dtype(np.float32), ()), Column("action_mask", np.dtype(np.bool_), (24,))),
)
GAMMA = 0.9
SESSION = "0" * 32
FIRST = Version(1, 1)


@dataclass(frozen=True)
class Part:
    """One segment to be: which steps of which episode."""

    environment: int
    episode: int
    first: int
    length: int
    ending: Ending


def observation(part: Part, step: int) -> int:
    """A number that only this observation has."""
    return (part.environment * 100 + part.episode) * 1000 + step


def reward(number: int) -> float:
    return float(np.float32(np.sin(number)))


def mask(number: int) -> list[bool]:
    """A mask that only this observation has."""
    return [bool(number >> bit & 1) for bit in range(24)]


def make_chunk(parts: list[Part], version: Version = FIRST) -> Chunk:
    rows = [observation(p, p.first + k) for p in parts for k in range(p.length + 1)]
    steps = [observation(p, p.first + k) for p in parts for k in range(p.length)]
    chunk = Chunk(
        version,
        Segments(
            np.array([p.environment for p in parts], np.int32),
            np.array([p.episode for p in parts], np.int64),
            np.array([p.first for p in parts], np.int32),
            np.array([p.length for p in parts], np.int32),
            np.array([p.ending for p in parts], np.uint8),
        ),
        {
            "observation/a": np.array([[r, -r] for r in rows], np.float32),
            "observation/b": np.array(rows, np.int64),
            "action": np.array(steps, np.int64),
            "reward": np.array([reward(s) for s in steps], np.float32),
            "log_probability": -np.array(steps, np.float32),
            "action_mask": np.array([mask(s + 1) for s in steps], np.bool_).reshape(-1, 24),
        },
    )
    chunk.validate(LAYOUT)
    return chunk


def check_form(t: Transitions, n: int) -> None:
    """What is promised of any transitions."""
    assert (np.diff(t.start) > 0).all()
    assert (t.start < t.end).all() and (t.end <= t.start + n).all()
    rows = len(t.observations["observation/b"])
    assert not len(t) or t.end.max() < rows
    assert t.start.dtype == t.end.dtype == t.version_epoch.dtype == t.version_number.dtype == int
    assert t.reward.dtype == t.discount.dtype == np.float32
    assert t.columns.keys() == {"action", "log_probability", "action_mask"}
    ends = t.observations["observation/b"][t.end]
    assert t.columns["action_mask"].tolist() == [mask(number) for number in ends.tolist()]


def rows_of(t: Transitions) -> dict[int, tuple[int, float, float, Version]]:
    """Transitions by the number of their first observation."""
    result: dict[int, tuple[int, float, float, Version]] = {}
    numbers = t.observations["observation/b"]
    for index in range(len(t)):
        first = int(numbers[t.start[index]])
        assert first not in result, "a step became two transitions"
        assert t.columns["action"][index] == first
        assert t.columns["log_probability"][index] == np.float32(-first)
        assert t.observations["observation/a"][t.start[index]].tolist() == [first, -first]
        version = Version(int(t.version_epoch[index]), int(t.version_number[index]))
        result[first] = (
            int(numbers[t.end[index]]),
            float(t.reward[index]),
            float(t.discount[index]),
            version,
        )
    return result


def naive(
    part: Part, n: int, first: int, known: int, versions: list[Version]
) -> dict[int, tuple[int, float, float, Version]]:
    """Transitions of steps `first` … of an episode of which `known` steps are known."""
    result: dict[int, tuple[int, float, float, Version]] = {}
    for t in range(first, known):
        horizon = min(n, known - t)
        total = sum(GAMMA**k * reward(observation(part, t + k)) for k in range(horizon))
        done = part.ending == Ending.TERMINATED and t + horizon == known
        discount = 0.0 if done else GAMMA**horizon
        oldest = min(versions[t - first : t - first + horizon])
        last = observation(part, t + horizon)
        result[observation(part, t)] = (last, total, discount, oldest)
    return result


def assert_same(
    left: dict[int, tuple[int, float, float, Version]],
    right: dict[int, tuple[int, float, float, Version]],
) -> None:
    assert left.keys() == right.keys()
    for key, (last, total, discount, version) in left.items():
        assert last == right[key][0] and version == right[key][3]
        assert total == pytest.approx(right[key][1], abs=1e-5)
        assert discount == pytest.approx(right[key][2], abs=1e-6)


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[tuple[int, list[Part], Version]]]:
    """n, and chunks of one session: (sequence, parts, version), some of them lost."""
    n = draw(st.integers(1, 5))
    environments = draw(st.integers(1, 3))
    episode = [0] * environments
    step = [0] * environments
    number = 0
    history: list[tuple[int, list[Part], Version]] = []
    for sequence in range(draw(st.integers(1, 6))):
        parts: list[Part] = []
        for environment in range(environments):
            for _ in range(draw(st.integers(0, 3))):
                length = draw(st.integers(1, 6))
                ending = draw(st.sampled_from(Ending))
                parts.append(Part(environment, episode[environment], step[environment], length, ending))
                step[environment] += length
                if ending != Ending.OPEN:
                    episode[environment] += 1
                    step[environment] = 0
                else:
                    break
        number += draw(st.integers(0, 1))
        if parts and draw(st.integers(0, 5)):
            history.append((sequence, parts, Version(1, number)))
        elif not parts:
            history.append((sequence, [Part(99, sequence, 0, 1, Ending.TRUNCATED)], Version(1, 0)))
    return n, history


def expected(n: int, history: list[tuple[int, list[Part], Version]]) -> dict[int, tuple[int, float, float, Version]]:
    """Group what can be joined into runs of known steps, then go through each naively."""
    result: dict[int, tuple[int, float, float, Version]] = {}
    open_runs: dict[int, tuple[Part, int, list[Version]]] = {}

    def close(part: Part, known: int, versions: list[Version]) -> None:
        result.update(naive(part, n, known - len(versions), known, versions))

    before = None
    for sequence, parts, version in history:
        if before is not None and sequence != before + 1:
            for run in open_runs.values():
                close(*run)
            open_runs.clear()
        before = sequence
        for part in parts:
            versions: list[Version] = []
            if part.environment in open_runs:
                earlier, known, versions = open_runs.pop(part.environment)
                if (earlier.episode, known) != (part.episode, part.first):
                    close(earlier, known, versions)
                    versions = []
            run = (part, part.first + part.length, [*versions, *[version] * part.length])
            if part.ending == Ending.OPEN:
                open_runs[part.environment] = run
            else:
                close(*run)
    for run in open_runs.values():
        close(*run)
    return result


@settings(max_examples=300, deadline=None)
@given(histories())
def test_agrees_with_the_naive_reference(
    case: tuple[int, list[tuple[int, list[Part], Version]]],
) -> None:
    n, history = case
    reader = NStepReader(n, GAMMA)
    found: dict[int, tuple[int, float, float, Version]] = {}
    for sequence, parts, version in history:
        t = reader.read(Identity("a", SESSION, sequence), make_chunk(parts, version), LAYOUT)
        check_form(t, n)
        new = rows_of(t)
        assert not found.keys() & new.keys()
        found.update(new)
    rest = reader.flush(LAYOUT)
    check_form(rest, n)
    found.update(rows_of(rest))
    assert reader.waiting == 0
    assert_same(found, expected(n, history))


@settings(max_examples=50, deadline=None)
@given(histories(), st.integers(0, 5))
def test_state_goes_on_where_it_was(case: tuple[int, list[tuple[int, list[Part], Version]]], cut: int) -> None:
    n, history = case
    reader = NStepReader(n, GAMMA)
    for sequence, parts, version in history[:cut]:
        reader.read(Identity("a", SESSION, sequence), make_chunk(parts, version), LAYOUT)
    other = NStepReader(n, GAMMA)
    other.load_state(reader.state())
    assert other.waiting == reader.waiting
    for sequence, parts, version in history[cut:]:
        chunk = make_chunk(parts, version)
        one = reader.read(Identity("a", SESSION, sequence), chunk, LAYOUT)
        two = other.read(Identity("a", SESSION, sequence), chunk, LAYOUT)
        assert rows_of(one) == rows_of(two)
        assert np.array_equal(one.start, two.start)
    assert rows_of(reader.flush(LAYOUT)) == rows_of(other.flush(LAYOUT))


def read(reader: NStepReader, sequence: int, *parts: Part, session: str = SESSION) -> Transitions:
    return reader.read(Identity("a", session, sequence), make_chunk(list(parts)), LAYOUT)


def test_state_of_another_n_or_damaged_is_refused() -> None:
    reader = NStepReader(3, GAMMA)
    read(reader, 0, Part(0, 0, 0, 4, Ending.OPEN))
    state = reader.state()
    with pytest.raises(CheckpointError):
        NStepReader(2, GAMMA).load_state(state)
    for damaged in (
        {**state, "index": np.frombuffer(b"{", np.uint8)},
        {**state, "keys": state["keys"][:-1]},
        {},
    ):
        with pytest.raises(CheckpointError):
            NStepReader(3, GAMMA).load_state(damaged)


def test_bad_arguments_are_refused() -> None:
    for arguments in ((0, 0.9), (1, 1.5), (1, -0.1), (1, 0.9, 0)):
        with pytest.raises(ConfigError):
            NStepReader(*arguments)


def test_terminal_and_truncated_ends() -> None:
    reader = NStepReader(2, 0.5)
    t = read(reader, 0, Part(0, 0, 0, 2, Ending.TERMINATED), Part(1, 0, 0, 2, Ending.TRUNCATED))
    assert t.discount.tolist() == [0.0, 0.0, 0.25, 0.5]
    assert t.start.tolist() == [0, 1, 3, 4] and t.end.tolist() == [2, 2, 5, 5]


def test_gap_gives_waiting_steps_out_with_shorter_horizons() -> None:
    reader = NStepReader(3, 0.5)
    assert len(read(reader, 0, Part(0, 0, 0, 4, Ending.OPEN))) == 2
    assert reader.waiting == 2
    t = read(reader, 2, Part(0, 0, 9, 1, Ending.TERMINATED))
    assert t.discount.tolist() == [0.25, 0.5, 0.0]
    assert reader.waiting == 0


def test_older_chunk_is_read_by_itself() -> None:
    reader = NStepReader(3, 0.5)
    read(reader, 5, Part(0, 0, 10, 4, Ending.OPEN))
    t = read(reader, 4, Part(0, 0, 6, 4, Ending.OPEN))
    assert len(t) == 4 and t.discount.tolist() == [0.125, 0.125, 0.25, 0.5]
    assert len(read(reader, 6, Part(0, 0, 14, 1, Ending.TERMINATED))) == 3


def test_sessions_do_not_mix_and_the_oldest_leaves() -> None:
    reader = NStepReader(3, 0.5, max_streams=2)
    for index in range(2):
        assert len(read(reader, 0, Part(0, 0, 0, 2, Ending.OPEN), session=f"{index}" * 32)) == 0
    t = read(reader, 0, Part(0, 0, 0, 2, Ending.OPEN), session="2" * 32)
    assert len(t) == 2, "the oldest session's steps are given out"
    assert reader.waiting == 4


def test_waiting_environments_are_bounded() -> None:
    reader = NStepReader(3, 0.5, max_environments=4)
    found = 0
    for sequence in range(10):
        found += len(read(reader, sequence, Part(sequence, 0, 0, 2, Ending.OPEN)))
    assert reader.waiting == 8 and found == 12


def test_waiting_steps_do_not_hold_the_record() -> None:
    reader = NStepReader(3, 0.5)
    chunk = make_chunk([Part(0, 0, 0, 500, Ending.OPEN)])
    reader.read(Identity("a", SESSION, 0), chunk, LAYOUT)
    state: dict[str, np.ndarray[Any, Any]] = reader.state()
    assert len(state["keys"]) == 2
    tails: Any = reader._streams[("a", SESSION)].tails  # pyright: ignore[reportPrivateUsage]
    assert all(a.base is None for a in tails[0].steps.observations.values())
