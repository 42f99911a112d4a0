"""What fuzzers call: whatever the bytes, each target comes to a value or to an InvalidRecordError, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from gymnasium import spaces

from pipeline.broker import Record
from pipeline.errors import InvalidRecordError
from pipeline.experience import Chunk, Column, Identity, Layout, NStepReader, Version
from pipeline.learner.intake.arrival import Examiner
from pipeline.learner.intake.judge import Judge
from pipeline.wire import (
    Command,
    DeadLetter,
    Heartbeat,
    Journal,
    Limits,
    ModelVersionRecord,
    RecordHeaders,
    RunManifest,
    TelemetryWindow,
    decode_chunk,
    decode_episode,
    registry,
)

RUN, SESSION = "one", "0" * 32
LIMITS = Limits(max_bytes=900_000)
FLAT = Layout(spaces.Box(-10, 10, (4,)), spaces.Discrete(2))
NESTED = Layout(
    spaces.Dict(image=spaces.Box(0, 255, (2, 3), np.uint8), door=spaces.MultiBinary(2), place=spaces.Discrete(3)),
    spaces.Tuple([spaces.Discrete(3, start=-1), spaces.Box(-1, 1, (2,))]),
    (Column("log_probability", np.dtype(np.float16), ()), Column("mask", np.dtype(np.bool_), (2,))),
)
_EXAMINER = Examiner(FLAT, RUN, LIMITS)
_MOST_HEADERS = 12


def _chunk(layout: Layout) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        _fold(decode_chunk(data, layout, LIMITS), layout)

    return run


def _fold(chunk: Chunk, layout: Layout) -> None:
    """What a learner does with a chunk that was accepted goes well, whatever is in it."""
    if chunk.steps <= 256:
        reader = NStepReader(3, 0.99)
        reader.read(Identity("a", SESSION, 1), chunk, layout)
        reader.read(Identity("a", SESSION, 2), chunk, layout)


def pack(headers: list[tuple[str, bytes]], value: bytes) -> bytes:
    """Headers and value as :func:`unpack` reads them."""
    parts = [bytes([len(headers)])]
    for name, content in headers:
        parts += [bytes([len(name)]), name.encode(), bytes([len(content)]), content]
    return b"".join([*parts, value])


def unpack(data: bytes) -> tuple[list[tuple[str, bytes | None]], bytes]:
    """A few headers, then a value: any bytes are some."""
    headers: list[tuple[str, bytes | None]] = []
    left = data[1:]
    for _ in range(data[0] % _MOST_HEADERS if data else 0):
        size = left[0] if left else 0
        name, left = left[1 : 1 + size].decode("latin-1"), left[1 + size :]
        size = left[0] if left else 0
        headers.append((name, None if size == 255 else left[1 : 1 + size]))
        left = left[1 + size :]
    return headers, left


def _headers(data: bytes) -> None:
    headers = RecordHeaders.from_kafka(unpack(data)[0])
    if RecordHeaders.from_kafka(headers.to_kafka()) != headers:
        raise AssertionError("headers that are accepted are not those that are written")


def _record(data: bytes) -> None:
    """As the learner's ingest and judge see it: nothing is raised at all."""
    headers, value = unpack(data)
    arrival = _EXAMINER.examine(Record("lab.one.samples", 0, 0, 1, None, value, headers))
    judge = Judge(3)
    judge.judge(arrival, Version(1, 2))
    if not judge.accounting.holds():
        raise AssertionError("the sum does not hold")


def _again(kind: Any) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        record = kind.decode(data)
        # By repr: a NaN is not equal to itself.
        if repr(kind.decode(record.encode())) != repr(record):
            raise AssertionError("a record that is accepted is not the one that is written")

    return run


def _episode(data: bytes) -> None:
    decode_episode(data)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "chunk": _chunk(FLAT),
    "nested": _chunk(NESTED),
    "headers": _headers,
    "record": _record,
    "command": _again(Command),
    "dead_letter": _again(DeadLetter),
    "episode": _episode,
    "heartbeat": _again(Heartbeat),
    "journal": _again(Journal),
    "model_version": _again(ModelVersionRecord),
    "run_manifest": _again(RunManifest),
    "telemetry_window": _again(TelemetryWindow),
}
"""By name; each takes a whole record."""

SCHEMAS = {"nested": "chunk"}
"""The schema of a target's records, where it is not of the same name."""
_NAMES = tuple(TARGETS)
_MENDED = 0x40


def call(target: str, data: bytes) -> bool:
    """Call a target; whether it accepted the bytes.

    Raises:
        BaseException: anything but a refusal is a finding.
    """
    try:
        TARGETS[target](data)
    except InvalidRecordError:
        return False
    return True


def call_any(data: bytes) -> None:
    """One input of the fuzzer: its first byte chooses the target, and whether the record gets a true fingerprint."""
    if not data:
        return
    choice, body = data[0], data[1:]
    name = _NAMES[(choice & (_MENDED - 1)) % len(_NAMES)]
    if choice & _MENDED and (prefixes := _prefixes(name)):
        body = prefixes[(choice >> 7) % len(prefixes)] + body[10:]
    call(name, body)


def input_for(target: str, data: bytes) -> bytes:
    """The fuzzer's input that calls a target with these bytes."""
    return bytes([_NAMES.index(target)]) + data


@cache
def _prefixes(name: str) -> list[bytes]:
    """Of the newest release and of the one before it."""
    schema = SCHEMAS.get(name, name)
    return [released.prefix for released in registry().released if released.name == schema][:2]
