"""Versions computed again from a log in memory: identical, or the first that differs, or why they cannot be."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from pipeline.broker import Record
from pipeline.experience import Version
from pipeline.offline.computing import Altered, Different, Identical, Unreachable
from pipeline.offline.difference import counters_that_differ, first_tensor_that_differs
from pipeline.wire import JournalCounters
from tests.learner.made import lead
from tests.offline.recording import Recording


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording(tmp_path_factory.mktemp("recorded"))


def test_all_versions_are_identical(recorded: Recording):
    newest = recorded.node.version
    assert newest.number > 10
    assert recorded.check() == [Identical(Version(1, 0), newest)]


def test_a_range_begins_at_the_checkpoint_before_it(recorded: Recording):
    asked: list[dict[int, int]] = []
    verifier = recorded.verifier()
    verifier = dataclasses.replace(
        verifier, open_samples=lambda positions: asked.append(dict(positions)) or recorded.log.at(positions)
    )
    wanted = [v for v in verifier.lineage.versions if 7 <= v.number <= 9]
    assert verifier.check(wanted) == [Identical(Version(1, 7), Version(1, 9))]
    assert all(min(positions.values()) > 0 for positions in asked)


def test_progress_counts_the_wanted_versions(recorded: Recording):
    verifier = recorded.verifier()
    done: list[int] = []
    verifier.check(verifier.lineage.versions[4:8], lambda count, now="": done.append(count))
    assert sum(done) == 4


def altered(recording: Recording, partition: int, offset: int, flip: int) -> None:
    """Flip bits in the highest byte of a record's first reward, or the lowest."""
    record = recording.log.partitions[partition][offset]
    chunk = recording.node.examiner().examine(record).chunk
    assert chunk is not None
    value = bytearray(record.value)
    value[value.find(chunk.columns["reward"].tobytes()) + (3 if flip > 1 else 0)] ^= flip
    recording.log.partitions[partition][offset] = dataclasses.replace(record, value=bytes(value))


def test_the_first_version_that_differs(tmp_path: Path):
    """One byte of one sample: everything before is identical, nothing after it is claimed."""
    recording = Recording(tmp_path, every=1000)
    altered(recording, 0, 8, 0x80)
    findings = recording.check()
    identical, different = findings[0], findings[-1]
    assert isinstance(identical, Identical) and isinstance(different, Different)
    assert identical.first == Version(1, 0)
    assert 3 < identical.last.number < recording.node.version.number
    assert different.computed.announced.number == identical.last.number + 1
    then = recording.verifier().lineage.journal(different.computed.announced.number)
    assert then is not None
    assert "reward sum" in counters_that_differ(then.counters, different.counters)
    assert "tensor" in first_tensor_that_differs(recording.node.weights(), different.computed.tensors)


def test_other_samples_are_noticed_even_where_nothing_was_learned_of_them(tmp_path: Path):
    """The last bit of one reward, which the buffer forgot before it was drawn; or which was lost in rounding."""
    recording = Recording(tmp_path, every=1000)
    altered(recording, 0, 8, 1)
    findings = recording.check()
    assert not all(isinstance(finding, Identical) for finding in findings)
    told = findings[1]
    assert isinstance(told, Altered | Different)


def test_where_the_log_has_lost_its_beginning_a_checkpoint_helps(tmp_path: Path):
    recording = Recording(tmp_path, 3, "algorithm.buffer_rows=40")
    recording.forget(0, 4)
    unreachable, identical = recording.check()
    assert isinstance(unreachable, Unreachable) and isinstance(identical, Identical)
    assert unreachable.first == Version(1, 0) and "no longer holds" in unreachable.why
    assert identical.first.number == unreachable.last.number + 1
    assert identical.last == recording.node.version


def test_without_log_or_checkpoint_it_says_why(tmp_path: Path):
    recording = Recording(tmp_path, every=1000)
    recording.forget(1, 2)
    [unreachable] = recording.check()
    assert isinstance(unreachable, Unreachable)
    assert unreachable.last == recording.node.version
    assert "no checkpoint" in unreachable.why and "2 records are gone" in unreachable.why


def test_a_broken_line_is_taken_up_behind_the_break(tmp_path: Path):
    """As after a restart whose state could not be reached: the run went on from published weights."""
    recording = Recording(tmp_path)
    node = recording.node
    break_at = node.version.number + 1
    node.journal.begin(node.positions, broken="as the test says")
    lead(node, 2)
    recording.every = 1
    recording.live(12)
    assert node.version.number > break_at + 1
    findings = recording.check(first=break_at - 2)
    assert findings == [
        Identical(Version(1, break_at - 2), Version(1, break_at - 1)),
        Unreachable(Version(2, break_at), Version(2, break_at), "as the test says"),
        *findings[2:],
    ]
    assert isinstance(findings[-1], Identical) and findings[-1].last == node.version


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path):
    recording = Recording(tmp_path)
    newest = max(recording.node.folder.checkpoints.iterdir())
    state = newest / "state.json"
    state.write_bytes(state.read_bytes().replace(b'"updates"', b'"updatez"'))
    last = recording.node.version
    assert recording.check(first=last.number) == [Identical(last, last)]


def test_tensors_are_compared_bit_by_bit():
    then = {"a": np.zeros(3, np.float32), "b": np.arange(6, dtype=np.float32).reshape(2, 3)}
    now = {"a": np.zeros(3, np.float32), "b": then["b"].copy()}
    assert "packing" in first_tensor_that_differs(then, now)
    now["b"][1, 2] += 0.5
    assert first_tensor_that_differs(then, now) == "tensor b: 1 of 6 values, by at most 0.5"
    now["a"][1] = -0.0
    assert first_tensor_that_differs(then, now) == "tensor a, the first of 2 of 2: 1 of 3 values, by at most 0"
    assert "missing" in first_tensor_that_differs(then, {"b": then["b"]})
    assert "float64[3] now" in first_tensor_that_differs(then, {**then, "a": np.zeros(3)})


def test_counters_in_words():
    assert counters_that_differ(JournalCounters(), JournalCounters()) == ""
    said = counters_that_differ(JournalCounters(accepted=1234), JournalCounters(accepted=1, reward_sum=0.5))
    assert said == "accepted 1,234 then and 1 now, reward sum 0.0 then and 0.5 now"


def test_records_are_not_changed_by_reading(recorded: Recording):
    before: list[Record] = list(recorded.log.partitions[0])
    recorded.check(first=3, last=4)
    assert recorded.log.partitions[0] == before
