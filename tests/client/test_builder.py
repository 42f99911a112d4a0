"""Chunks say exactly what was pushed, each observation once."""

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.client.builder import ChunkBuilder
from pipeline.client.transition import Transition
from pipeline.errors import InvalidSampleError
from pipeline.experience import Chunk, Ending, Layout, Version

LAYOUT = Layout(gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32), gymnasium.spaces.Discrete(3))
VERSION = Version(1, 4)


def steps_of(chunk: Chunk) -> dict[int, list[tuple[float, int, float, float, int, int, int]]]:
    """Per sub-environment: (observation, action, reward, next observation, episode, step, ending or -1)."""
    found: dict[int, list[tuple[float, int, float, float, int, int, int]]] = {}
    row = step = 0
    segments = chunk.segments
    for s in range(len(segments.length)):
        environment = int(segments.environment[s])
        length = int(segments.length[s])
        for k in range(length):
            last = k == length - 1
            found.setdefault(environment, []).append(
                (
                    float(chunk.columns["observation"][row + k, 0]),
                    int(chunk.columns["action"][step + k]),
                    float(chunk.columns["reward"][step + k]),
                    float(chunk.columns["observation"][row + k + 1, 0]),
                    int(segments.episode[s]),
                    int(segments.first_step[s]) + k,
                    int(segments.ending[s]) if last else -1,
                )
            )
        row += length + 1
        step += length
    return found


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 5),
    ends=st.lists(st.lists(st.sampled_from([0, 0, 0, 1, 2]), min_size=5, max_size=5), min_size=1, max_size=40),
    chunk_steps=st.integers(1, 30),
    partial=st.randoms(use_true_random=False),
)
def test_chunks_hold_what_was_pushed(count, ends, chunk_steps, partial):
    """Vectors, whole or partial, with endings anywhere, cut anywhere: the steps come out as they went in."""
    builder = ChunkBuilder(LAYOUT, chunk_steps, 1 << 20)
    value = np.arange(count, dtype=np.float32) * 1000
    pushed: dict[int, list[tuple[float, int, float, float, int]]] = {e: [] for e in range(count)}
    chunks: list[Chunk] = []
    for row in ends:
        who = np.array([e for e in range(count) if partial.random() < 0.8] or [0])
        if builder.full or not builder.reserve(count):
            chunk = builder.cut()
            if chunk is not None:
                chunks.append(chunk)
            assert builder.reserve(count)
        observation = np.stack([value, value], axis=1)[who]
        following = observation + 1
        ending = np.array(row[:count])[who]
        action = (value[who].astype(np.int64)) % 3
        builder.add(Transition(observation, action, value[who], following, ending == 1, ending == 2, who), VERSION)
        for at, e in enumerate(who):
            pushed[int(e)].append(
                (float(value[e]), int(action[at]), float(value[e]), float(value[e] + 1), int(ending[at]))
            )
            # After an ending the next episode begins somewhere else.
            value[e] += 1 if ending[at] == 0 else 7
    last = builder.cut()
    chunks += [last] if last is not None else []
    assert builder.cut() is None
    for chunk in chunks:
        chunk.validate(LAYOUT)
        assert chunk.version == VERSION
        assert len(chunk.columns["observation"]) == chunk.steps + len(chunk.segments.length)
    for e in range(count):
        found = [step for chunk in chunks for step in steps_of(chunk).get(e, [])]
        assert [step[:4] for step in found] == [step[:4] for step in pushed[e]]
        for (_, _, _, _, episode, number, ending), after, (_, _, _, _, wanted) in zip(
            found, [*found[1:], None][: len(found)], pushed[e], strict=True
        ):
            if wanted:
                assert ending == wanted
            else:
                assert ending in (-1, Ending.OPEN)
            if after is not None:
                same_episode = after[4] == episode
                assert same_episode == (wanted == 0)
                assert after[5] == (number + 1 if same_episode else 0)


def test_one_transition_at_a_time_equals_a_vector_of_one():
    """Both ways into the builder give the same chunk."""
    single, vector = ChunkBuilder(LAYOUT, 64, 1 << 20), ChunkBuilder(LAYOUT, 64, 1 << 20)
    for t in range(40):
        observation, following = np.full(2, t, np.float32), np.full(2, t + 1, np.float32)
        single.add(Transition(observation, t % 3, 1.0, following, t % 7 == 6, False), VERSION)
        vector.add(
            Transition(
                observation[None], np.array([t % 3]), np.ones(1), following[None], np.array([t % 7 == 6]), np.zeros(1)
            ),
            VERSION,
        )
    one, other = single.cut(), vector.cut()
    assert one is not None and other is not None
    assert steps_of(one) == steps_of(other)


def test_a_jump_without_an_ending_is_not_a_transition():
    """Steps that do not follow each other are never joined."""
    builder = ChunkBuilder(LAYOUT, 64, 1 << 20)
    a, b, far = (np.full(2, x, np.float32) for x in (0, 1, 50))
    builder.add(Transition(a, 0, 1.0, b, False, False), VERSION)
    builder.add(Transition(far, 0, 1.0, far, False, False), VERSION)
    chunk = builder.cut()
    assert chunk is not None
    assert chunk.segments.length.tolist() == [1, 1]
    assert chunk.segments.ending.tolist() == [Ending.OPEN, Ending.OPEN]
    assert chunk.segments.episode[0] != chunk.segments.episode[1]


@pytest.mark.parametrize(
    "change",
    [
        {"observation": np.zeros(3, np.float32)},
        {"observation": np.zeros((), np.float32)},
        {"observation": np.array([np.nan, 0], np.float32)},
        {"next_observation": np.array([np.inf, 0], np.float32)},
        {"action": 3},
        {"action": -1},
        {"action": 0.5},
        {"reward": float("nan")},
    ],
)
def test_a_sample_that_does_not_fit_is_refused_and_leaves_nothing(change):
    """A clear error, and the chunk holds only the good ones."""
    builder = ChunkBuilder(LAYOUT, 64, 1 << 20)
    good = {
        "observation": np.zeros(2, np.float32),
        "action": 1,
        "reward": 1.0,
        "next_observation": np.zeros(2, np.float32),
        "terminated": False,
        "truncated": False,
    }
    builder.add(Transition(**good), VERSION)
    with pytest.raises(InvalidSampleError):
        builder.add(Transition(**{**good, **change}), VERSION)
    chunk = builder.cut()
    assert chunk is not None and chunk.steps == 1
