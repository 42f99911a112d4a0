"""The prioritised buffer: the contract of all buffers, the chances of being drawn, and priorities across a refill."""

import numpy as np
import pytest

from pipeline.buffers import BufferState, PrioritizedBuffer, UniformBuffer
from pipeline.errors import CheckpointError, ConfigError, LearnerError
from pipeline.experience import Transitions
from tests.buffers.contract import LAYOUT, ReplayBufferContract, check_batch, copy_of, make_transitions


class TestPrioritizedBuffer(ReplayBufferContract):
    def make(self, capacity: int, seed: int = 0) -> PrioritizedBuffer:
        return PrioritizedBuffer(capacity, LAYOUT, seed)


def rows_of(buffer: PrioritizedBuffer) -> np.ndarray:
    """The rows that start a transition."""
    return np.flatnonzero(buffer.contents()["delta"])


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("lengths", [[9] * 12, [1] * 60])
def test_drawn_in_proportion_to_the_priorities(alpha: float, lengths: list[int]) -> None:
    buffer = PrioritizedBuffer(100, LAYOUT, seed=1, alpha=alpha)
    buffer.insert(make_transitions(0, lengths)[0])
    rows = rows_of(buffer)
    priorities = np.random.default_rng(0).random(len(rows)) * 10
    buffer.update_priorities(rows, priorities)
    found = np.zeros(100)
    for _ in range(400):
        batch = buffer.sample(100)
        check_batch(batch)
        np.add.at(found, batch.rows, 1)
    chances = (priorities + 1e-6) ** alpha
    expected = 40_000 * chances / chances.sum()
    assert found.sum() == found[rows].sum()
    # Five standard deviations of a binomial count, which stratified draws stay below; the seed is fixed.
    assert (np.abs(found[rows] - expected) <= 5 * np.sqrt(expected) + 1).all()


def test_weights_make_up_for_the_chances() -> None:
    """(N P)^-beta over the highest of the batch."""
    buffer = PrioritizedBuffer(100, LAYOUT, seed=1, alpha=0.7, beta=0.5)
    buffer.insert(make_transitions(0, [30])[0])
    rows = rows_of(buffer)
    priorities = np.linspace(0.1, 5, len(rows))
    buffer.update_priorities(rows, priorities)
    for beta in (0.5, 1.0, 0.0):
        buffer.beta = beta
        batch = buffer.sample(64)
        chances = (priorities + 1e-6) ** 0.7
        chances /= chances.sum()
        expected = (len(rows) * chances[batch.rows]) ** -beta
        np.testing.assert_allclose(batch.weights, expected / expected.max(), rtol=1e-5)
        assert batch.weights.max() == 1


def test_new_transitions_have_the_highest_priority() -> None:
    """So that they are seen soon; the highest is remembered when its transition has gone."""
    buffer = PrioritizedBuffer(20, LAYOUT, seed=0, alpha=1.0)
    _, row = make_transitions(0, [9])
    buffer.insert(make_transitions(0, [9])[0])
    buffer.update_priorities(np.arange(9), np.full(9, 0.01))
    buffer.update_priorities(np.array([4]), np.array([50.0]))
    for _ in range(5):
        transitions, row = make_transitions(row, [9])
        buffer.insert(transitions)
    assert np.allclose(np.unique(buffer.state().arrays["priorities"]), [0, 50])


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_batches_go_on_after_a_refill_with_priorities(alpha: float) -> None:
    """Training that changes priorities, a restart, and the same training: the same batches, weights and rows."""
    chunks: list[Transitions] = []
    row = 0
    for size in range(1, 30):
        transitions, row = make_transitions(row, [size % 7 + 1, 3])
        chunks.append(transitions)
    buffer = PrioritizedBuffer(50, LAYOUT, seed=5, alpha=alpha)
    restored = PrioritizedBuffer(50, LAYOUT, seed=99, alpha=alpha)

    def train(which: PrioritizedBuffer) -> dict[str, np.ndarray]:
        batch = copy_of(which.sample(16))
        which.update_priorities(batch["rows"], np.abs(np.sin(batch["action"] * 7.3)) * 3)
        return batch

    for chunk in chunks[:20]:
        buffer.insert(chunk)
        restored.insert(chunk)
        train(buffer)
    restored.load_state(buffer.state())
    for chunk in chunks[20:]:
        buffer.insert(chunk)
        restored.insert(chunk)
        left, right = train(buffer), train(restored)
        for name, array in left.items():
            np.testing.assert_array_equal(array, right[name], err_msg=name)


def test_after_an_inexact_refill_all_have_the_highest_priority() -> None:
    buffer, other = PrioritizedBuffer(30, LAYOUT, 0, alpha=1.0), PrioritizedBuffer(30, LAYOUT, 0, alpha=1.0)
    buffer.insert(make_transitions(0, [12])[0])
    buffer.update_priorities(np.arange(12), np.linspace(0, 4, 12))
    other.insert(make_transitions(5, [6])[0])
    other.load_state(buffer.state(), exact=False)
    assert np.allclose(other.state().arrays["priorities"], [4] * 6 + [0])


def test_a_state_is_not_changed_by_what_comes_after_it() -> None:
    buffer = PrioritizedBuffer(30, LAYOUT, 0)
    buffer.insert(make_transitions(0, [12])[0])
    state = buffer.state()
    before = state.arrays["priorities"].copy()
    buffer.update_priorities(np.arange(12), np.linspace(0, 4, 12))
    np.testing.assert_array_equal(state.arrays["priorities"], before)


@pytest.mark.parametrize(
    ("rows", "priorities"),
    [([6], [1.0]), ([20], [1.0]), ([-1], [1.0]), ([0, 1], [1.0]), ([0], [-1.0]), ([0], [np.nan])],
)
def test_senseless_priorities_are_refused(rows: list[int], priorities: list[float]) -> None:
    buffer = PrioritizedBuffer(20, LAYOUT, 0)
    buffer.insert(make_transitions(0, [6])[0])
    before = buffer.state().arrays["priorities"]
    with pytest.raises(LearnerError, match="prioritised replay buffer"):
        buffer.update_priorities(np.array(rows), np.array(priorities))
    np.testing.assert_array_equal(buffer.state().arrays["priorities"], before)


def test_huge_and_tiny_priorities_stay_in_range() -> None:
    buffer = PrioritizedBuffer(20, LAYOUT, 0, alpha=10.0, beta=1.0)
    buffer.insert(make_transitions(0, [6])[0])
    buffer.update_priorities(np.arange(6), np.array([0, 1e-9, 1, 1e5, 1e30, 1e300]))
    batch = buffer.sample(32)
    check_batch(batch)
    assert np.isfinite(batch.weights).all() and (batch.weights > 0).all()


@pytest.mark.parametrize("fault", ["uniform", "shape", "rows", "nan", "highest"])
def test_foreign_or_damaged_priorities_are_refused(fault: str) -> None:
    buffer, other = PrioritizedBuffer(20, LAYOUT, 0), PrioritizedBuffer(20, LAYOUT, 3)
    for each in (buffer, other):
        each.insert(make_transitions(0, [6, 2])[0])
    state = buffer.state()
    arrays = dict(state.arrays)
    if fault == "uniform":
        uniform = UniformBuffer(20, LAYOUT, 0)
        uniform.insert(make_transitions(0, [6, 2])[0])
        arrays = dict(uniform.state().arrays)
    elif fault == "shape":
        arrays["priorities"] = arrays["priorities"][:-1]
    elif fault == "rows":
        arrays["priorities"] = arrays["priorities"][::-1].copy()
    elif fault == "nan":
        arrays["priorities"][0] = np.nan
    else:
        arrays["highest"] = np.zeros(1, np.float32)
    before = copy_of(other.sample(4))
    generator = other.state().generator
    with pytest.raises(CheckpointError, match="priorities"):
        other.load_state(BufferState(state.written, state.generator, arrays))
    assert other.state().generator == generator
    assert before.keys() == copy_of(other.sample(4)).keys()


@pytest.mark.parametrize("changes", [{"alpha": -0.1}, {"beta": 1.1}, {"epsilon": 0.0}, {"alpha": float("nan")}])
def test_refuses_senseless_settings(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="prioritised"):
        PrioritizedBuffer(10, LAYOUT, 0, **changes)
