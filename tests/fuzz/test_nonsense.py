"""Each class of nonsense is refused for its reason."""

import pytest

from pipeline.broker import Record
from pipeline.config import load_config
from pipeline.environment import read_layout
from pipeline.learner.intake.arrival import Examiner
from pipeline.wire import Limits
from tests.fuzz.nonsense import MAX_BYTES, Nonsense, headers_of, nonsense, sound

CASES = list(nonsense("one", "0" * 32))
EXAMINER = Examiner(read_layout(load_config().environment), "one", Limits(max_bytes=MAX_BYTES))


def record(value: bytes, headers: object) -> Record:
    return Record("lab.one.samples", 0, 0, 1, b"mallory", value, headers)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_nonsense_is_refused_for_its_reason(case: Nonsense):
    error = EXAMINER.examine(record(case.value, case.headers)).error
    assert error is not None and error.reason is case.reason, error


def test_what_the_classes_are_made_from_is_sound():
    """So each differs from a good record in what its name says."""
    arrival = EXAMINER.examine(record(sound(), headers_of(1, "0" * 32, "one")))
    assert arrival.error is None and arrival.chunk is not None


def test_there_are_enough_and_no_two_alike():
    assert len(CASES) >= 50
    assert len({case.name for case in CASES}) == len(CASES)
    assert len({case.reason for case in CASES}) == 16
