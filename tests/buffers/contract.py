"""What every replay buffer promises, as tests to inherit.

A test class derives from `ReplayBufferContract` and gives `make`. Every transition made here can be
told from all others: its action is a serial number, and its observations, reward and discount
follow from it.
"""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.buffers import Batch, ReplayBuffer
from pipeline.errors import CheckpointError, LearnerError
from pipeline.experience import Column, Layout, Transitions

LAYOUT = Layout(
    spaces.Dict({"a": spaces.Box(-np.inf, np.inf, (2,), np.float32), "b": spaces.Discrete(1000)}),
    spaces.Discrete(1 << 30),
    (Column("log_probability", np.dtype(np.float32), ()),),
)


def make_transitions(first: int, lengths: list[int], n: int = 3) -> tuple[Transitions, int]:
    """Segments of the given lengths whose observation rows are numbered from ``first`` on.

    Returns the transitions and the number of the next row.
    """
    start: list[int] = []
    end: list[int] = []
    row = 0
    for length in lengths:
        start += range(row, row + length)
        end += [min(row + step + n, row + length) for step in range(length)]
        row += length + 1
    numbers = first + np.arange(row)
    starts, ends = np.array(start, np.int64), np.array(end, np.int64)
    serial = numbers[starts]
    transitions = Transitions(
        observations={
            "observation/a": np.stack([numbers, -numbers], axis=1).astype(np.float32),
            "observation/b": numbers % 1000,
        },
        start=starts,
        end=ends,
        columns={"action": serial, "log_probability": (serial * 0.5).astype(np.float32)},
        reward=(serial * 2).astype(np.float32),
        discount=(ends - starts).astype(np.float32),
        version_epoch=np.ones(len(starts), np.int64),
        version_number=serial,
    )
    return transitions, first + row


def check_batch(batch: Batch) -> None:
    """Every transition is one that `make_transitions` made, whole and unmixed."""
    serial = batch.columns["action"]
    ends = serial + batch.discount.astype(np.int64)
    for observation, numbers in ((batch.observation, serial), (batch.next_observation, ends)):
        np.testing.assert_array_equal(observation["observation/a"][:, 0], numbers)
        np.testing.assert_array_equal(observation["observation/a"][:, 1], -numbers)
        np.testing.assert_array_equal(observation["observation/b"], numbers % 1000)
    np.testing.assert_array_equal(batch.reward, serial * 2)
    np.testing.assert_array_equal(batch.columns["log_probability"], serial * np.float32(0.5))
    assert (batch.weights > 0).all() and batch.weights.max() == 1


def copy_of(batch: Batch) -> dict[str, Any]:
    """The batch's arrays, copied out of the buffer's scratch space, by name."""
    arrays = {
        **batch.observation,
        **batch.columns,
        "reward": batch.reward,
        "rows": batch.rows,
        "weights": batch.weights,
    }
    arrays |= {f"next/{name}": array for name, array in batch.next_observation.items()}
    return {name: array.copy() for name, array in arrays.items()}


class ReplayBufferContract:
    """Inherited by the test class of every buffer."""

    def make(self, capacity: int, seed: int = 0) -> ReplayBuffer:
        """An empty buffer of `LAYOUT`."""
        raise NotImplementedError

    def test_starts_empty_and_refuses_to_sample(self) -> None:
        buffer = self.make(10)
        assert (len(buffer), buffer.rows, buffer.capacity) == (0, 0, 10)
        with pytest.raises(LearnerError, match="nothing to sample"):
            buffer.sample(1)

    def test_refuses_an_empty_batch(self) -> None:
        buffer = self.make(10)
        buffer.insert(make_transitions(0, [4])[0])
        with pytest.raises(LearnerError, match="batch size is 0"):
            buffer.sample(0)

    def test_gives_back_what_was_inserted(self) -> None:
        buffer = self.make(100)
        transitions, _ = make_transitions(0, [5, 1, 7])
        assert buffer.insert(transitions) == 13
        assert (len(buffer), buffer.rows) == (13, 16)
        batch = buffer.sample(500)
        check_batch(batch)
        assert set(batch.columns["action"].tolist()) == set(transitions.columns["action"].tolist())

    def test_dtypes_and_shapes_are_the_layout_s(self) -> None:
        buffer = self.make(100)
        buffer.insert(make_transitions(0, [5])[0])
        batch = buffer.sample(4)
        for column in LAYOUT.observation:
            for array in (batch.observation[column.name], batch.next_observation[column.name]):
                assert (array.dtype, array.shape) == (column.dtype, (4, *column.shape))
        for array in (batch.reward, batch.discount, batch.weights, batch.columns["log_probability"]):
            assert (array.dtype, array.shape) == (np.dtype(np.float32), (4,))
        assert batch.rows.dtype == np.int64

    # The contract is run by every buffer's class: that is no accident.
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(
        capacity=st.integers(2, 40),
        chunks=st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=5), min_size=1, max_size=12),
        n=st.integers(1, 5),
    )
    def test_holds_the_newest_rows_and_nothing_dangles(self, capacity: int, chunks: list[list[int]], n: int) -> None:
        """Against a model: the transitions whose start is among the newest `capacity` rows."""
        buffer = self.make(capacity)
        serials: list[int] = []
        row = 0
        for lengths in chunks:
            transitions, row = make_transitions(row, lengths, n)
            serials += transitions.columns["action"].tolist()
            buffer.insert(transitions)
            held = {serial for serial in serials if serial >= row - capacity}
            assert len(buffer) == len(held)
            assert buffer.rows == min(row, capacity)
            if held:
                batch = buffer.sample(32)
                check_batch(batch)
                assert set(batch.columns["action"].tolist()) <= held

    def test_does_not_depend_on_how_rows_were_grouped(self) -> None:
        together, apart = self.make(16), self.make(16)
        together.insert(make_transitions(0, [4] * 9)[0])
        row = 0
        for _ in range(9):
            transitions, row = make_transitions(row, [4])
            apart.insert(transitions)
        for _ in range(5):
            left, right = copy_of(together.sample(8)), copy_of(apart.sample(8))
            for name, array in left.items():
                np.testing.assert_array_equal(array, right[name])

    def test_same_seed_same_batches_other_seed_others(self) -> None:
        drawn: list[list[int]] = []
        for seed in (3, 3, 4):
            buffer = self.make(100, seed)
            buffer.insert(make_transitions(0, [40, 40])[0])
            drawn.append(buffer.sample(64).columns["action"].tolist())
        assert drawn[0] == drawn[1] != drawn[2]

    def test_goes_on_bit_for_bit_after_a_refill(self) -> None:
        """As after a crash: the state is loaded and the log is read again from the start."""
        chunks: list[Transitions] = []
        row = 0
        for size in range(1, 9):
            transitions, row = make_transitions(row, [size, 3])
            chunks.append(transitions)
        buffer, restored = self.make(30), self.make(30, seed=99)
        for chunk in chunks[:6]:
            buffer.insert(chunk)
            restored.insert(chunk)
            buffer.sample(5)
        restored.load_state(buffer.state())
        for chunk in chunks[6:]:
            buffer.insert(chunk)
            restored.insert(chunk)
            left, right = copy_of(buffer.sample(9)), copy_of(restored.sample(9))
            for name, array in left.items():
                np.testing.assert_array_equal(array, right[name])

    def test_a_state_of_another_position_is_refused(self) -> None:
        buffer, other = self.make(30), self.make(30)
        buffer.insert(make_transitions(0, [4])[0])
        other.insert(make_transitions(0, [5])[0])
        with pytest.raises(CheckpointError, match="row 5"):
            other.load_state(buffer.state())

    def test_after_an_inexact_refill_it_goes_on_with_its_own_rows(self) -> None:
        """The log had lost some rows: the generator is taken over, the row counter is not."""
        buffer, other = self.make(30), self.make(30, seed=99)
        buffer.insert(make_transitions(0, [4, 20, 8])[0])
        other.insert(make_transitions(5, [20, 8])[0])
        other.load_state(buffer.state(), exact=False)
        assert (other.written, len(other)) == (30, 28)
        assert other.state().generator == buffer.state().generator
        check_batch(other.sample(50))

    @pytest.mark.parametrize("lengths", [[5, 3], [9, 9, 9, 9, 9]])
    def test_contents_make_the_same_buffer(self, lengths: list[int]) -> None:
        """Before and after the ring has gone round: without the log, bit for bit."""
        buffer, restored = self.make(20), self.make(20, seed=99)
        transitions, row = make_transitions(0, lengths)
        buffer.insert(transitions)
        buffer.sample(7)
        restored.load_contents(buffer.contents())
        restored.load_state(buffer.state())
        assert (restored.written, len(restored)) == (buffer.written, len(buffer))
        for _ in range(4):
            right = copy_of(restored.sample(9))
            for name, array in copy_of(buffer.sample(9)).items():
                np.testing.assert_array_equal(array, right[name], err_msg=name)
            transitions, row = make_transitions(row, [3])
            buffer.insert(transitions)
            restored.insert(transitions)

    def test_contents_are_copies(self) -> None:
        buffer = self.make(20)
        buffer.insert(make_transitions(0, [5])[0])
        contents = buffer.contents()
        buffer.insert(make_transitions(6, [9, 9])[0])
        assert contents["observation:observation/b"].tolist() == list(range(6))
        assert contents["delta"].tolist() == [3, 3, 3, 2, 1, 0]

    @pytest.mark.parametrize("fault", ["full", "missing", "unknown", "dtype", "rows", "written", "dangles"])
    def test_contents_that_do_not_fit_are_refused(self, fault: str) -> None:
        buffer, other = self.make(20), self.make(20)
        buffer.insert(make_transitions(0, [6])[0])
        contents = buffer.contents()
        if fault == "full":
            other.insert(make_transitions(0, [3])[0])
        elif fault == "missing":
            del contents["column:action"]
        elif fault == "unknown":
            contents["column:other"] = contents["reward"]
        elif fault == "dtype":
            contents["reward"] = contents["reward"].astype(np.float64)
        elif fault == "rows":
            contents["reward"] = contents["reward"][:-1]
        elif fault == "written":
            contents["written"] = np.array([-1], np.int64)
        else:
            contents["delta"][-1] = 1
        before = len(other)
        with pytest.raises(CheckpointError, match="contents"):
            other.load_contents(contents)
        assert len(other) == before

    def test_an_empty_insert_changes_nothing(self) -> None:
        buffer = self.make(10)
        assert buffer.insert(make_transitions(0, [])[0]) == 0
        assert (len(buffer), buffer.rows) == (0, 0)

    @pytest.mark.parametrize("fault", ["missing", "length", "shape", "beyond", "order", "backwards"])
    def test_refuses_what_does_not_fit_and_stays_whole(self, fault: str) -> None:
        buffer = self.make(20)
        buffer.insert(make_transitions(0, [6])[0])
        bad, _ = make_transitions(7, [4])
        changed: dict[str, Any] = dict(vars(bad))
        if fault == "missing":
            changed["columns"] = {"action": bad.columns["action"]}
        elif fault == "length":
            changed["reward"] = bad.reward[:-1]
        elif fault == "shape":
            changed["observations"] = bad.observations | {"observation/a": bad.observations["observation/a"][:, :1]}
        elif fault == "beyond":
            changed["end"] = bad.end + 3
        elif fault == "order":
            changed["start"] = bad.start[::-1].copy()
        else:
            changed["end"] = bad.start.copy()
        with pytest.raises(LearnerError, match="nothing was inserted"):
            buffer.insert(Transitions(**changed))
        assert (len(buffer), buffer.rows) == (6, 7)
        check_batch(buffer.sample(50))
