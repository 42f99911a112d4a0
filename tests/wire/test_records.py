"""Typed records and headers."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.experience import Ending, EpisodeInfo, Identity, Version
from pipeline.wire import (
    Command,
    DeadLetter,
    Heartbeat,
    ModelVersionRecord,
    Position,
    RecordHeaders,
    RunManifest,
    TelemetryWindow,
    decode_episode,
    encode_episode,
    fingerprint,
)

RECORDS: list[Any] = [
    ModelVersionRecord("r", 1, 2, "r/weights/000001-000000002", 100, "a" * 64),
    ModelVersionRecord("r", 1, 2, "k", 1, "0" * 64, 1, 10, 5, 99, "weights", b"\0\1", "best"),
    ModelVersionRecord("r", 2, 2, "", 0, "", kind="claim"),
    RunManifest("r", "n", 1, 2, "{}", "{}", ("ab", "cd"), "h:1", "b", True, "dqn", "cartpole"),
    Command("id-1", "set", '{"x": 1}', 12, "me"),
    Heartbeat("r", "n", "actor", "0" * 32, 3, 4, 1, 2, 5, 6),
    Heartbeat("r", "n", "learner", "0" * 32, 3, 4, positions=(Position("s", 1, 2),)),
    TelemetryWindow("r", 1, 2, 3, 4.5, 5.5, 6.5, 7, 8, {"loss": 0.5}),
    DeadLetter("r", "t", 0, 5, 6, "not-ours", "detail", "actor", "b" * 64, b"\xff" * 1024),
]
EPISODE = EpisodeInfo("a", "0" * 32, 5, 1, 200, 199.5, Version(1, 7), Ending.TRUNCATED, 1, 2, {"score": 2.0})
HEADERS = RecordHeaders("run", "actor-1", "0f" * 16, 12, Version(1, 3), fingerprint("chunk"), 256)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_round_trips(record: Any) -> None:
    data = record.encode()
    assert type(record).decode(data) == record
    assert type(record).decode(memoryview(data)) == record
    for length in range(len(data)):
        with pytest.raises(InvalidRecordError):
            type(record).decode(data[:length])


def test_episode_round_trip() -> None:
    data = encode_episode(EPISODE)
    assert decode_episode(data) == EPISODE
    broken = dataclasses.replace(EPISODE, total_return=float("nan"))
    with pytest.raises(InvalidRecordError) as caught:
        decode_episode(encode_episode(broken))
    assert caught.value.reason is RejectReason.NOT_FINITE
    with pytest.raises(InvalidRecordError):
        decode_episode(encode_episode(dataclasses.replace(EPISODE, steps=-1)))
    many = dataclasses.replace(EPISODE, info={str(i): 0.0 for i in range(300)})
    with pytest.raises(InvalidRecordError):
        decode_episode(encode_episode(many))


@pytest.mark.parametrize(
    "record",
    [
        dataclasses.replace(RECORDS[0], epoch=-1),
        dataclasses.replace(RECORDS[0], sha256="x"),
        dataclasses.replace(RECORDS[0], key=""),
        dataclasses.replace(RECORDS[0], size=-1),
        dataclasses.replace(RECORDS[3], epoch=1 << 40),
        dataclasses.replace(RECORDS[4], id=""),
        dataclasses.replace(RECORDS[5], dropped=-1),
        dataclasses.replace(RECORDS[5], version_number=-1),
        dataclasses.replace(RECORDS[8], head=bytes(1025)),
    ],
)
def test_figures_that_nobody_sends_are_refused(record: Any) -> None:
    data = record.encode()
    with pytest.raises(InvalidRecordError) as caught:
        type(record).decode(data)
    assert caught.value.reason is RejectReason.MALFORMED


def test_records_are_not_taken_for_each_other() -> None:
    with pytest.raises(InvalidRecordError) as caught:
        Command.decode(RECORDS[0].encode())
    assert caught.value.reason is RejectReason.WRONG_SCHEMA


def test_headers_round_trip() -> None:
    found = RecordHeaders.from_kafka([("traceparent", b"\xff"), *HEADERS.to_kafka()])
    assert found == HEADERS
    assert found.identity == Identity("actor-1", "0f" * 16, 12)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run", b""),
        ("run", b"a b"),
        ("run", b"a" * 129),
        ("actor", b"<\xff>"),
        ("actor", b"a\n"),
        ("actor", None),
        ("session", b"0" * 31),
        ("session", b"0" * 33),
        ("session", b"G" * 32),
        ("sequence", b"-1"),
        ("sequence", b"01"),
        ("sequence", b"1e3"),
        ("sequence", b"9" * 19),
        ("sequence", b""),
        ("version", b"1"),
        ("version", b"1.-2"),
        ("version", b"1." + b"9" * 20),
        ("schema", b"0" * 15),
        ("count", b"x"),
    ],
)
def test_malformed_headers_are_refused(name: str, value: bytes | None) -> None:
    headers = [(n, value if n == name else v) for n, v in HEADERS.to_kafka()]
    with pytest.raises(InvalidRecordError) as caught:
        RecordHeaders.from_kafka(headers)
    assert caught.value.reason is RejectReason.BAD_HEADERS


def test_missing_doubled_and_too_many_headers_are_refused() -> None:
    good = HEADERS.to_kafka()
    cases: list[Any] = [None, [], *[good[:i] + good[i + 1 :] for i in range(len(good))]]
    cases += [[*good, good[0]], [*good, *[("x", b"")] * 64]]
    for headers in cases:
        with pytest.raises(InvalidRecordError) as caught:
            RecordHeaders.from_kafka(headers)
        assert caught.value.reason is RejectReason.BAD_HEADERS


@given(st.lists(st.tuples(st.sampled_from([n for n, _ in HEADERS.to_kafka()]), st.binary())))
def test_random_headers_raise_nothing_else(headers: list[tuple[str, bytes | None]]) -> None:
    with pytest.raises(InvalidRecordError):
        RecordHeaders.from_kafka(headers)
