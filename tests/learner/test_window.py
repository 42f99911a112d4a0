"""The window of the log that a replay buffer is made of, and the refill from it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.broker import Record
from pipeline.buffers import UniformBuffer
from pipeline.errors import CheckpointError
from pipeline.experience import Chunk, Ending, Identity, Layout, NStepReader, Segments, Version
from pipeline.learner.durable.window import LogWindow, Refill, Run, refill
from pipeline.wire import decode_chunk, encode_chunk

LAYOUT = Layout(spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(1 << 30))
REFUSED = b"refused"


@dataclass(frozen=True)
class Step:
    """One record of a partition: how many steps it has, and whether it is accepted."""

    partition: int
    steps: int
    accepted: bool


class Log:
    """The samples topic in memory, each partition one actor's stream of one endless episode."""

    def __init__(self) -> None:
        self.records: dict[int, list[Record]] = {}
        self._steps: dict[int, int] = {}

    def append(self, step: Step) -> Record:
        partition, values = step.partition, self.records.setdefault(step.partition, [])
        first = self._steps.get(partition, 0)
        value = encode_chunk(chunk(partition, first, step.steps), LAYOUT) if step.accepted else REFUSED
        self._steps[partition] = first + (step.steps if step.accepted else 0)
        record = Record("samples", partition, len(values), 0, None, value, None)
        values.append(record)
        return record


class MemorySource:
    """Gives a log out as `OrderedReader` does; some records may be gone."""

    def __init__(self, log: Log, gone: frozenset[tuple[int, int]] = frozenset()) -> None:
        self._log = log
        self._gone = gone
        self._position: dict[int, int] = {}
        self.taken: list[tuple[int, int]] = []

    def seek(self, partition: int, offset: int) -> None:
        assert offset > self._position.get(partition, -1), "a refill never goes back"
        self._position[partition] = offset

    def take(self, partition: int, next_offset: int) -> Iterator[tuple[Record, int]]:
        skipped = 0
        for offset in range(self._position[partition], next_offset):
            self._position[partition] = offset + 1
            if (partition, offset) in self._gone:
                skipped += 1
                continue
            self.taken.append((partition, offset))
            yield self._log.records[partition][offset], skipped
            skipped = 0


class Learner:
    """What a learner does with accepted records, and no more."""

    def __init__(self, capacity: int, n: int = 3) -> None:
        self.n = n
        self.buffer = UniformBuffer(capacity, LAYOUT, seed=3)
        self.reader = NStepReader(n, 0.9)
        self.window = LogWindow(capacity)

    def apply(self, record: Record) -> None:
        decoded = decode(record)
        if decoded is None:
            return
        row = self.buffer.written
        if self.window.due(row):
            self.window.anchor(row, self.reader.state())
        self.window.note(record.partition, record.offset, row)
        self.buffer.insert(self.reader.read(*decoded, LAYOUT))

    def restarted(self, source: MemorySource) -> tuple["Learner", Refill]:
        """Another learner, from this one's checkpoint and the log."""
        arrays, values = self.window.state()
        window = LogWindow(1)
        window.load_state(arrays, json.loads(json.dumps(values)))
        other = Learner(self.buffer.capacity, self.n)
        state = self.buffer.state()
        result = refill(window, state.written, source, decode, other.reader, other.buffer, LAYOUT)
        other.buffer.load_state(state, exact=result.exact)
        other.window = result.window
        return other, result


def chunk(environment: int, first: int, steps: int) -> Chunk:
    """A piece of an episode whose observations can be told from all others."""
    rows = (environment << 20) + first + np.arange(steps + 1)
    segments = Segments(
        np.array([environment], np.int32),
        np.zeros(1, np.int64),
        np.array([first], np.int32),
        np.array([steps], np.int32),
        np.array([Ending.OPEN], np.uint8),
    )
    columns = {
        "observation": np.stack([rows, -rows], axis=1).astype(np.float32),
        "action": rows[:-1],
        "reward": rows[:-1].astype(np.float32),
    }
    return Chunk(Version(1, 1), segments, columns)


def decode(record: Record) -> tuple[Identity, Chunk] | None:
    """Content of a record; the actor sends its accepted chunks without gaps."""
    if record.value == REFUSED:
        return None
    content = decode_chunk(record.value, LAYOUT)
    # Sequences grow, with a gap now and then where a record was refused.
    return Identity(f"actor-{record.partition}", "0" * 32, record.offset), content


def assert_same(left: Mapping[str, Any], right: Mapping[str, Any]) -> None:
    assert left.keys() == right.keys()
    for name, array in left.items():
        np.testing.assert_array_equal(array, right[name], err_msg=name)


def sampled(buffer: UniformBuffer) -> dict[str, Any]:
    batch = buffer.sample(16)
    arrays = {"reward": batch.reward, "rows": batch.rows, "discount": batch.discount, **batch.columns}
    return {name: array.copy() for name, array in arrays.items()}


def plan(partitions: int = 3) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.builds(Step, st.integers(0, partitions - 1), st.integers(1, 9), st.booleans()), max_size=60)


@settings(deadline=None)
@given(before=plan(), after=plan(), capacity=st.integers(2, 120), n=st.integers(1, 5))
def test_a_refill_gives_the_same_buffer_reader_and_future(
    before: list[Step], after: list[Step], capacity: int, n: int
) -> None:
    """Interrupted anywhere, with refused records in between: rows, batches and what comes later are the same."""
    log, learner = Log(), Learner(capacity, n)
    for step in before:
        learner.apply(log.append(step))
    source = MemorySource(log)
    restarted, result = learner.restarted(source)
    assert (result.exact, result.trouble, result.lost) == (True, "", 0)
    assert_same(restarted.reader.state(), learner.reader.state())
    for step in after:
        record = log.append(step)
        learner.apply(record)
        restarted.apply(record)
        assert len(restarted.buffer) == len(learner.buffer)
    assert restarted.buffer.written == learner.buffer.written
    if len(learner.buffer):
        assert_same(sampled(restarted.buffer), sampled(learner.buffer))
    # Again, from what the restarted one knows.
    twice, again = restarted.restarted(MemorySource(log))
    assert again.exact
    assert twice.buffer.written == learner.buffer.written
    assert_same(twice.reader.state(), learner.reader.state())


@settings(deadline=None)
@given(before=plan(), gone=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 15)), max_size=20), data=st.data())
def test_where_records_are_gone_the_rest_comes_back(
    before: list[Step], gone: set[tuple[int, int]], data: st.DataObject
) -> None:
    """Counted, said, and the learner can go on and be restarted exactly from there."""
    log, learner = Log(), Learner(data.draw(st.integers(2, 120)))
    for step in before:
        learner.apply(log.append(step))
    wanted = {
        (run.partition, run.first + i)
        for run in learner.window.needed(learner.buffer.written)[1]
        for i in range(run.count)
    }
    gone &= wanted
    restarted, result = learner.restarted(MemorySource(log, frozenset(gone)))
    assert result.lost == len(gone)
    assert result.records == len(wanted - gone)
    assert result.exact == (not gone)
    assert bool(result.trouble) == (not result.exact)
    log_step = log.append(Step(0, 4, True))
    restarted.apply(log_step)
    twice, again = restarted.restarted(MemorySource(log, frozenset(gone)))
    assert again.exact
    assert twice.buffer.written == restarted.buffer.written
    assert_same(twice.reader.state(), restarted.reader.state())
    if len(restarted.buffer):
        assert_same(sampled(twice.buffer), sampled(restarted.buffer))


def test_records_in_a_row_are_one_run_and_gaps_split() -> None:
    window = LogWindow(1000)
    window.anchor(0, {})
    for row, (partition, offset) in enumerate([(0, 5), (0, 6), (1, 9), (0, 7), (0, 9), (0, 10)]):
        window.note(partition, offset, row)
    assert window.needed(6)[1] == [Run(0, 5, 2, 0), Run(1, 9, 1, 2), Run(0, 7, 1, 3), Run(0, 9, 2, 4)]
    assert window.records == 6
    assert window.starts(6) == {0: 5, 1: 9}


def test_the_window_stays_as_long_as_the_ring() -> None:
    """Bounded runs, anchors and reading beyond what is needed, however long the run."""
    log, learner = Log(), Learner(capacity=160)
    for index in range(2000):
        learner.apply(log.append(Step(index % 2, 4, True)))
        arrays, values = learner.window.state()
        assert len(values["anchors"]) <= 18
        assert learner.window.records <= 160 // 5 + 2 * 160 // 16
    source = MemorySource(log)
    _, result = learner.restarted(source)
    assert result.exact
    assert result.records * 5 <= 160 + 160 // 16 + 10
    assert len(arrays["first"]) == len(learner.window)


def test_a_record_that_is_refused_now_counts_as_lost() -> None:
    log, learner = Log(), Learner(capacity=50)
    for _ in range(6):
        learner.apply(log.append(Step(0, 3, True)))
    record = log.records[0][4]
    log.records[0][4] = Record(record.topic, 0, 4, 0, None, REFUSED, None)
    restarted, result = learner.restarted(MemorySource(log))
    assert (result.lost, result.records, result.exact) == (1, 5, False)
    assert "1 of 1 records are gone or refused now, partition 0, offset 4" in result.trouble
    assert restarted.buffer.written < learner.buffer.written


def test_a_record_of_another_length_is_noticed() -> None:
    log, learner = Log(), Learner(capacity=50)
    for _ in range(4):
        learner.apply(log.append(Step(0, 3, True)))
    record = log.records[0][1]
    log.records[0][1] = Record(record.topic, 0, 1, 0, None, encode_chunk(chunk(0, 3, 2), LAYOUT), None)
    _, result = learner.restarted(MemorySource(log))
    assert (result.lost, result.exact) == (0, False)
    assert "row 9 came where row 10 was expected, partition 0, offset 2" in result.trouble


def test_a_last_record_of_another_length_is_noticed() -> None:
    log, learner = Log(), Learner(capacity=50)
    for _ in range(4):
        learner.apply(log.append(Step(0, 3, True)))
    record = log.records[0][3]
    log.records[0][3] = Record(record.topic, 0, 3, 0, None, encode_chunk(chunk(0, 9, 2), LAYOUT), None)
    _, result = learner.restarted(MemorySource(log))
    assert (result.lost, result.exact) == (0, False)
    assert "the buffer ends at row 21, the checkpoint's at row 22" in result.trouble


def test_a_buffer_of_another_size_is_filled_but_not_the_same() -> None:
    log, learner = Log(), Learner(capacity=50)
    for _ in range(30):
        learner.apply(log.append(Step(0, 3, True)))
    buffer = UniformBuffer(20, LAYOUT, seed=0)
    result = refill(
        learner.window, learner.buffer.written, MemorySource(log), decode, NStepReader(3, 0.9), buffer, LAYOUT
    )
    assert (result.exact, buffer.written) == (False, learner.buffer.written)
    assert "had 50" in result.trouble


def test_progress_is_told_up_to_the_end() -> None:
    log, learner = Log(), Learner(capacity=4000)
    for index in range(600):
        learner.apply(log.append(Step(index % 2, 3, True)))
    told: list[tuple[int, int]] = []
    reader, buffer = NStepReader(3, 0.9), UniformBuffer(4000, LAYOUT, seed=0)
    refill(
        learner.window,
        learner.buffer.written,
        MemorySource(log),
        decode,
        reader,
        buffer,
        LAYOUT,
        lambda *figures: told.append(figures),
    )
    assert told == [(256, 600), (512, 600), (600, 600)]


def test_an_empty_window_refills_nothing() -> None:
    learner = Learner(capacity=50)
    restarted, result = learner.restarted(MemorySource(Log()))
    assert (result.exact, result.records, len(restarted.buffer)) == (True, 0, 0)


def test_another_n_is_refused() -> None:
    log, learner = Log(), Learner(capacity=50)
    learner.apply(log.append(Step(0, 3, True)))
    with pytest.raises(CheckpointError, match="n 3"):
        refill(
            learner.window,
            learner.buffer.written,
            MemorySource(log),
            decode,
            NStepReader(2, 0.9),
            UniformBuffer(50, LAYOUT, 0),
            LAYOUT,
        )


@pytest.mark.parametrize("fault", ["missing", "length", "count", "anchors", "no-anchor", "row", "capacity"])
def test_a_damaged_state_is_refused(fault: str) -> None:
    log, learner = Log(), Learner(capacity=50)
    for index in range(20):
        learner.apply(log.append(Step(index % 2, 3, True)))
    arrays, values = learner.window.state()
    if fault == "missing":
        del arrays["row"]
    elif fault == "length":
        arrays["row"] = arrays["row"][:-1]
    elif fault == "count":
        arrays["count"][0] = 0
    elif fault == "anchors":
        values["anchors"].reverse()
    elif fault == "no-anchor":
        values["anchors"] = []
    elif fault == "row":
        values["anchors"][0][0] -= 1
    else:
        values["capacity"] = 0
    window = LogWindow(10)
    with pytest.raises(CheckpointError, match="damaged"):
        window.load_state(arrays, values)
    assert (len(window), window.capacity) == (0, 10)
