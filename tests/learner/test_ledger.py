"""The learner's ledger holds one line per judged record, across recoveries."""

from pathlib import Path

import pytest

from pipeline.broker import Record
from pipeline.errors import InvalidRecordError, LearnerError, RejectReason
from pipeline.experience import Version
from pipeline.learner.intake.arrival import Arrival
from pipeline.learner.intake.ledger import LearnerLedger
from pipeline.wire import RecordHeaders

SESSION = "a" * 32


def arrival(partition: int, offset: int) -> Arrival:
    headers = RecordHeaders("run", "a", SESSION, offset, Version(1, 4), "0" * 16, 10)
    return Arrival(Record("s", partition, offset, 0, b"a", b"", None), headers, None, None, 0)


def test_lines_survive_and_are_dropped_by_position(tmp_path: Path):
    """rewind() keeps what lies before the positions, drops a line without an end, and appending goes on."""
    path = tmp_path / "ledger"
    ledger = LearnerLedger(path)
    for partition, offset in [(0, 0), (0, 1), (1, 0), (0, 2)]:
        ledger.write(4, arrival(partition, offset), "accepted")
    assert path.read_text().splitlines()[0] == f"4 0 0 a {SESSION} 0 10 accepted"
    ledger.close()
    with path.open("a") as file:
        file.write("4 0 3 a")

    ledger = LearnerLedger(path)
    ledger.rewind({0: 2})
    ledger.write(4, arrival(0, 2), "stale")
    assert [line.split()[1:3] + line.split()[-1:] for line in path.read_text().splitlines()] == [
        ["0", "0", "accepted"],
        ["0", "1", "accepted"],
        ["0", "2", "stale"],
    ]
    ledger.rewind({})
    assert path.read_text() == ""
    ledger.close()
    assert [each.name for each in tmp_path.iterdir()] == ["ledger"]


def test_a_record_without_headers_has_a_line_too(tmp_path: Path):
    ledger = LearnerLedger(tmp_path / "ledger")
    error = InvalidRecordError(RejectReason.BAD_HEADERS, "as the test says")
    ledger.write(0, Arrival(Record("s", 2, 9, 0, None, b"", None), None, None, error, 0), error.reason.value)
    ledger.close()
    assert (tmp_path / "ledger").read_text() == "0 2 9 - - -1 0 bad-headers\n"


def test_a_ledger_that_cannot_be_opened_is_said(tmp_path: Path):
    with pytest.raises(LearnerError, match=r"learner\.ledger"):
        LearnerLedger(tmp_path)
