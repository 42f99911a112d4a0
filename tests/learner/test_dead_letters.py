"""Dead letters: one for a refused record, and few for a flood of them."""

from pipeline.broker import Record, Topics
from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.learner.intake.dead_letters import BURST, DeadLetters
from pipeline.learner.reports.metrics import LearnerMetrics
from pipeline.wire import DeadLetter

RECORD = Record("lab.one.samples", 2, 7, 1_000, None, b"x" * 5_000, None)


class Sink:
    """Takes what a producer would send."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []

    def send(self, topic: str, value: bytes) -> None:
        assert topic == "lab.one.dead-letters"
        self.letters.append(DeadLetter.decode(value))


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def letters(sink: Sink, clock: Clock, per_s: float = 2.0) -> DeadLetters:
    return DeadLetters(sink, Topics("lab", "one"), "one", per_s, LearnerMetrics(0), clock)  # type: ignore[arg-type]


def refusal(reason: RejectReason = RejectReason.NOT_OURS) -> InvalidRecordError:
    return InvalidRecordError(reason, "d" * 900)


def test_a_letter_says_where_why_and_how_it_begins():
    """The record's coordinates, hash and first KiB, however long the record and the sentence are."""
    sink = Sink()
    letters(sink, Clock()).write(RECORD, "mallory", refusal())
    (letter,) = sink.letters
    assert (letter.topic, letter.partition, letter.offset, letter.actor) == ("lab.one.samples", 2, 7, "mallory")
    assert letter.head == RECORD.value[:1024] and len(letter.detail) == 500 and letter.reason == "not-ours"


def test_a_flood_is_cut_off_and_counted():
    """A burst, then so many a second; what is withheld is said once a minute, and the log is not flooded either."""
    sink, clock = Sink(), Clock()
    written = letters(sink, clock)
    for _ in range(BURST + 1_000):
        written.write(RECORD, "mallory", refusal())
    assert (written.written, written.withheld) == (BURST, 1_000)
    clock.now += 5.0
    for _ in range(100):
        written.write(RECORD, "mallory", refusal())
    assert (written.written, written.withheld) == (BURST + 10, 1_090)


def test_the_first_of_each_reason_gets_through(caplog):
    """A flood of one kind does not hide that there is another."""
    sink, clock = Sink(), Clock()
    written = letters(sink, clock)
    with caplog.at_level("WARNING"):
        for _ in range(BURST + 10):
            written.write(RECORD, "mallory", refusal())
        for reason in RejectReason:
            written.write(RECORD, "mallory", refusal(reason))
            written.write(RECORD, "mallory", refusal(reason))
    assert {letter.reason for letter in sink.letters} == {reason.value for reason in RejectReason}
    assert len(sink.letters) == BURST + len(RejectReason) - 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
