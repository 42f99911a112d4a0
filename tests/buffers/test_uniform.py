"""The uniform buffer: the contract of all buffers, and uniformity."""

import json

import numpy as np
import pytest

from pipeline.buffers import BufferState, UniformBuffer
from pipeline.errors import CheckpointError, ConfigError
from tests.buffers.contract import (
    LAYOUT,
    ReplayBufferContract,
    check_batch,
    copy_of,
    make_transitions,
)


class TestUniformBuffer(ReplayBufferContract):
    def make(self, capacity: int, seed: int = 0) -> UniformBuffer:
        return UniformBuffer(capacity, LAYOUT, seed)


@pytest.mark.parametrize("lengths", [[9] * 10, [1] * 50])
@pytest.mark.parametrize("filled", [False, True])
def test_every_transition_is_equally_likely(lengths: list[int], filled: bool) -> None:
    """Both ways of drawing: by rejection, and from a list where few rows start a transition."""
    buffer = UniformBuffer(100, LAYOUT, seed=1)
    if filled:
        # A refill that has only begun: most rows hold nothing yet.
        buffer.start_at(1000)
        lengths = lengths[:1]
    transitions, _ = make_transitions(0, lengths)
    buffer.insert(transitions)
    count, draws = len(transitions), 40_000
    actions = np.concatenate([buffer.sample(100).columns["action"].copy() for _ in range(400)])
    found = np.array([np.count_nonzero(actions == a) for a in transitions.columns["action"]])
    expected = draws / count
    # Five standard deviations of a binomial count; the seed is fixed, so this does not flicker.
    assert np.abs(found - expected).max() <= 5 * np.sqrt(expected)


def test_scratch_is_reused_for_the_same_batch_size() -> None:
    buffer = UniformBuffer(100, LAYOUT, seed=0)
    buffer.insert(make_transitions(0, [20])[0])
    first = buffer.sample(8)
    assert buffer.sample(8) is first
    assert len(buffer.sample(9).reward) == 9


def test_refill_from_the_middle_of_the_log() -> None:
    """Only the chunks that reach into the newest rows are needed to go on bit for bit."""
    chunks = []
    starts = []
    row = 0
    for size in (9, 3, 8, 5, 7, 6):
        starts.append(row)
        transitions, row = make_transitions(row, [size])
        chunks.append(transitions)
    buffer = UniformBuffer(20, LAYOUT, seed=5)
    for chunk in chunks:
        buffer.insert(chunk)
        buffer.sample(4)
    needed = max(i for i, start in enumerate(starts) if start <= row - 20)
    assert needed > 0
    restored = UniformBuffer(20, LAYOUT, seed=0)
    restored.start_at(starts[needed])
    for chunk in chunks[needed:]:
        restored.insert(chunk)
    restored.load_state(buffer.state())
    assert len(restored) == len(buffer)
    left, right = copy_of(buffer.sample(32)), copy_of(restored.sample(32))
    for name, array in left.items():
        np.testing.assert_array_equal(array, right[name])


def test_state_is_json() -> None:
    buffer = UniformBuffer(20, LAYOUT, seed=5)
    buffer.insert(make_transitions(0, [8])[0])
    buffer.sample(3)
    state = buffer.state()
    text = json.dumps({"written": state.written, "generator": state.generator})
    buffer_again = UniformBuffer(20, LAYOUT, seed=0)
    buffer_again.insert(make_transitions(0, [8])[0])
    buffer_again.load_state(BufferState(**json.loads(text)))
    expected = copy_of(buffer.sample(16))
    for name, array in copy_of(buffer_again.sample(16)).items():
        np.testing.assert_array_equal(array, expected[name])


def test_an_empty_buffer_takes_over_the_row_counter() -> None:
    buffer = UniformBuffer(20, LAYOUT, seed=5)
    buffer.insert(make_transitions(0, [30])[0])
    restored = UniformBuffer(20, LAYOUT, seed=0)
    restored.load_state(buffer.state())
    assert (restored.written, len(restored)) == (31, 0)
    restored.insert(make_transitions(31, [6])[0])
    assert len(restored) == 6
    check_batch(restored.sample(50))


def test_a_larger_insert_keeps_the_newest() -> None:
    buffer = UniformBuffer(10, LAYOUT, seed=0)
    transitions, row = make_transitions(0, [7, 7, 7])
    kept = buffer.insert(transitions)
    batch = buffer.sample(200)
    check_batch(batch)
    assert kept == len(buffer) == 8
    assert batch.columns["action"].min() == row - 10


@pytest.mark.parametrize("generator", [{}, {"bit_generator": "MT19937", "state": {}}])
def test_a_foreign_generator_state_is_refused(generator: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match="PCG64"):
        UniformBuffer(10, LAYOUT, 0).load_state(BufferState(0, generator))


def test_refuses_senseless_sizes() -> None:
    with pytest.raises(ConfigError, match="capacity is 1"):
        UniformBuffer(1, LAYOUT, 0)
    with pytest.raises(ConfigError, match="seed is -1"):
        UniformBuffer(10, LAYOUT, -1)


def test_start_at_is_for_empty_buffers() -> None:
    buffer = UniformBuffer(10, LAYOUT, 0)
    with pytest.raises(CheckpointError, match="rows start at 0"):
        buffer.start_at(-1)
    buffer.insert(make_transitions(0, [3])[0])
    with pytest.raises(CheckpointError, match="already holds 3"):
        buffer.start_at(5)
