"""Records of every topic as lines and as JSON."""

import json

import pytest

from pipeline.broker import Record
from pipeline.experience import Ending, EpisodeInfo, Version
from pipeline.offline.ranges import Range, Selection
from pipeline.offline.show import decoder_of, lines
from pipeline.wire import (
    Command,
    DeadLetter,
    Heartbeat,
    Journal,
    JournalCommand,
    JournalStep,
    Limits,
    ModelVersionRecord,
    Outcome,
    TelemetryWindow,
    encode_episode,
)
from tests.offline.made import LAYOUT, RUN, SESSION, FakeLog, chunk_of

TIME = 1_767_225_600_123


def record(value: bytes, topic: str = "versions", offset: int = 17) -> Record:
    return Record(f"rl.{RUN}.{topic}", 0, offset, TIME, None, value, None)


def shown(topic: str, *records: Record, as_json: bool = False, selection: Selection | None = None) -> list[str]:
    decoder = decoder_of(topic, LAYOUT, RUN, Limits())
    return list(lines(iter(records), decoder, selection or Selection(), as_json))


def version_record(number: int = 412, **fields: object) -> ModelVersionRecord:
    journal = Journal(
        Version(1, number - 1), steps=(JournalStep(0, 5), JournalStep(-1, 1)), commands=(JournalCommand("id", "stop"),)
    )
    values = {"parent_number": number - 1, "transitions": 48_400, "updates": 12_100, "journal": journal.encode()}
    return ModelVersionRecord(RUN, 1, number, "key", 1000, "ab" * 32, **{**values, **fields})  # type: ignore[arg-type]


def test_a_sample():
    log = FakeLog()
    chunk = log.add(1, 17, chunk_of([3, 2], [Ending.TERMINATED, Ending.OPEN], Version(1, 4)))
    [line] = shown("samples", log.partitions[1][0])
    reward = chunk.columns["reward"].sum()
    assert line.startswith("samples[1]@0 2026-01-01T00:00:0")
    assert f"a/{SESSION[:8]}#17 version 1.4: 5 steps in 2 segments, 1 terminated, reward {reward:.4g}"[:-2] in line
    [text] = shown("samples", log.partitions[1][0], as_json=True)
    found = json.loads(text)
    assert (found["partition"], found["offset"]) == (1, 0)
    found = found["record"]
    assert found["headers"]["sequence"] == 17
    assert found["columns"]["observation/image"] == chunk.columns["observation/image"].tolist()
    assert found["segments"][0] == {
        "environment": 0,
        "episode": 100,
        "first_step": 0,
        "length": 3,
        "ending": "terminated",
    }


def test_a_refused_sample_says_why():
    log = FakeLog()
    log.add(0, 3, value=b"hello")
    [line] = shown("samples", log.partitions[0][0])
    assert "#3 refused: not-ours:" in line and "(5 bytes)" in line
    found = json.loads(shown("samples", log.partitions[0][0], as_json=True)[0])
    assert found["refused"] == "not-ours" and found["record"]["headers"]["actor"] == "a"
    [line] = shown("samples", record(b"hello", "samples"))
    assert "refused: bad-headers" in line


def test_versions_claims_and_pins():
    claim = ModelVersionRecord(RUN, 2, 411, "", 0, "", kind="claim", platform="x86_64, torch 2.6")
    pin = ModelVersionRecord(RUN, 1, 400, "", 0, "", kind="pin", note="best of 50 episodes")
    found = shown("versions", *(record(each.encode()) for each in (version_record(), claim, pin)))
    assert "version 1.412, parent 411: 48,400 transitions, 12,100 updates, 1,000 bytes, sha256 abababababab" in found[0]
    assert "journal of 2 steps and 1 command in" in found[0]
    assert "claim of epoch 2, newest number then 411; x86_64, torch 2.6" in found[1]
    assert "pin of version 1.400, best of 50 episodes" in found[2]
    journal = json.loads(shown("versions", record(version_record().encode()), as_json=True)[0])["record"]["journal"]
    assert journal["parent"] == "1.411" and journal["steps"][0] == {"source": 0, "next_offset": 5, "updates": 0}


def test_a_journal_that_cannot_be_read_is_said():
    [line] = shown("versions", record(version_record(journal=b"nonsense").encode()))
    assert "journal refused: not-ours" in line


@pytest.mark.parametrize(
    ("topic", "value", "expected"),
    [
        (
            "episodes",
            encode_episode(
                EpisodeInfo("a", SESSION, 7, 2, 200, 195.5, Version(1, 3), Ending.TRUNCATED, 0, 1, {"score": 3.0})
            ),
            f"a/{SESSION[:8]} environment 2 episode 7: return 195.5 in 200 steps, truncated, version 1.3, score 3",
        ),
        (
            "commands",
            Command("id-1", "quicksave", '{"a": 1}', issuer="me").encode(),
            'quicksave {"a": 1} (id id-1) by me',
        ),
        (
            "progress",
            Heartbeat(RUN, "here", "learner", SESSION, 5, 0, 1, 9, 1234, outcomes=(Outcome("x", True, "/s"),)).encode(),
            f"learner here/{SESSION[:8]}#5: version 1.9, 1,234 transitions, 0 dropped, 0 rejected; command x: done, /s",
        ),
        (
            "telemetry",
            TelemetryWindow(RUN, 0, 1, 50, 123.4, 99.0, 200.0, 12, 5_000).encode(),
            "50 episodes: mean return 123.4, best 200, mean steps 99, version 12, 5,000 transitions",
        ),
        (
            "dead-letters",
            DeadLetter(
                RUN, "rl.made.samples", 2, 14, 0, "not-finite", "NaN", "mallory", "cd" * 32, b"\xc3\x01<b>"
            ).encode(),
            "samples[2]@14 of mallory: not-finite: NaN; sha256 cdcdcdcdcdcd, begins b'\\xc3\\x01<b>'",
        ),
    ],
)
def test_the_other_topics(topic: str, value: bytes, expected: str):
    [line] = shown(topic, record(value, topic))
    assert line == f"{topic}[0]@17 2026-01-01T00:00:00.123Z {expected}"
    assert json.loads(shown(topic, record(value, topic), as_json=True)[0])["offset"] == 17
    [refused] = shown(topic, record(b"\0", topic))
    assert "refused: " in refused


def test_what_is_no_number_is_null_in_json():
    window = TelemetryWindow(RUN, 0, 1, 0, float("nan"), 0.0, float("-inf"), 0, 0)
    found = json.loads(shown("telemetry", record(window.encode()), as_json=True)[0])["record"]
    assert found["mean_return"] is None and found["best_return"] is None


def test_a_range_of_versions_and_a_limit():
    records = [record(version_record(number).encode(), offset=number) for number in range(410, 420)]
    records.insert(3, record(b"nonsense", offset=3))
    found = shown("versions", *records, selection=Selection(versions=Range(412, None), limit=3))
    assert [line.partition(" ")[0] for line in found] == ["versions[0]@412", "versions[0]@413", "versions[0]@414"]


def test_a_terminal_is_not_written_to_by_an_actor():
    """Names and texts come from the wire."""
    command = Command("id\x1b[2J", "quicksave", "{}", issuer="me\n\x07")
    [line] = shown("commands", record(command.encode(), "commands"))
    assert line.isprintable()
