"""Classes of records that make no sense, each with the reason for which it is refused.

For a run in CartPole: four float32 an observation, two actions. What a class changes is all that is wrong with its
record.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.errors import RejectReason
from pipeline.experience import Ending, EpisodeInfo, Version
from pipeline.wire import Heartbeat, ModelVersionRecord, RecordHeaders, encode, encode_episode, fingerprint

STEPS = 6
VERSION = Version(1, 0)
MAX_BYTES = 900_000
"""What the learner takes: `learner.max_chunk_bytes`."""

Headers = Sequence[tuple[str, bytes | None]] | None


class Nonsense(NamedTuple):
    """One class.

    Attributes:
        name: what is wrong.
        reason: said of it.
        value: the record.
        headers: its headers; None: there are none.
    """

    name: str
    reason: RejectReason
    value: bytes
    headers: Headers


def fields(**changes: Any) -> dict[str, Any]:
    """A sound chunk as the schema has it: one open segment of six steps."""
    return {
        "version_epoch": VERSION.epoch,
        "version_number": VERSION.number,
        "steps": STEPS,
        "dropped": 0,
        "final": False,
        "environment": np.zeros(1, "<i4").tobytes(),
        "episode": np.zeros(1, "<i8").tobytes(),
        "first_step": np.zeros(1, "<i4").tobytes(),
        "length": np.full(1, STEPS, "<i4").tobytes(),
        "ending": bytes(1),
        "columns": columns(),
        **changes,
    }


def columns(**changes: Any) -> list[dict[str, Any]]:
    """The columns of a sound chunk, some of them others; None: without it."""
    data: dict[str, Any] = {
        "observation": np.zeros((STEPS + 1, 4), "<f4"),
        "action": np.zeros(STEPS, "<i8"),
        "reward": np.ones(STEPS, "<f4"),
        **changes,
    }
    return [{"name": name, "data": np.asarray(rows).tobytes()} for name, rows in data.items() if rows is not None]


def sound(**changes: Any) -> bytes:
    """A chunk with these fields instead of sound ones."""
    return encode("chunk", fields(**changes))


def headers_of(number: int, sender: str, of_run: str, **changes: Any) -> list[tuple[str, bytes | None]]:
    """Sound headers, some of them others; None: without it."""
    plain = dict(RecordHeaders(of_run, "mallory", sender, number, VERSION, fingerprint("chunk"), STEPS).to_kafka())
    return [(name, value) for name, value in {**plain, **changes}.items() if value is not None]


def nonsense(run: str, session: str) -> Iterator[Nonsense]:
    """Every class once, under sequence numbers of one session.

    Args:
        run: the run that the records are sent to.
        session: the sender's.
    """
    sequence = 0

    def case(name: str, reason: RejectReason, value: bytes | None = None, **headers: Any) -> Nonsense:
        nonlocal sequence
        sequence += 1
        return Nonsense(
            name, reason, sound() if value is None else value, headers_of(sequence, session, run, **headers)
        )

    for made in (_bytes, _headers, _figures, _segments, _columns):
        yield from made(case)
    yield Nonsense("no headers", RejectReason.BAD_HEADERS, sound(), None)
    again = headers_of(sequence + 1, session, run)
    yield Nonsense("a header said twice", RejectReason.BAD_HEADERS, sound(), [*again, again[0]])
    many: Headers = [*again, *((f"x{number}", b"") for number in range(100))]
    yield Nonsense("a hundred headers", RejectReason.BAD_HEADERS, sound(), many)


def _bytes(case: Any) -> Iterator[Nonsense]:
    good = sound()
    prefix = good[:10]
    yield case("nothing", RejectReason.NOT_OURS, b"")
    yield case("text", RejectReason.NOT_OURS, b"hello")
    yield case("JSON", RejectReason.NOT_OURS, b'{"steps": 6}')
    yield case("a pickle", RejectReason.NOT_OURS, b"\x80\x04K\x01.")
    yield case("an Avro container file", RejectReason.NOT_OURS, b"Obj\x01" + good)
    yield case("half a marker", RejectReason.CUT_SHORT, prefix[:1])
    yield case("half a fingerprint", RejectReason.CUT_SHORT, prefix[:6])
    yield case("an unknown schema", RejectReason.UNKNOWN_SCHEMA, prefix[:2] + bytes(8) + good[10:])
    yield case("a heartbeat", RejectReason.WRONG_SCHEMA, Heartbeat("r", "n", "actor", "0" * 32, 1, 2).encode())
    episode = EpisodeInfo("a", "0" * 32, 1, 0, 9, 9.0, VERSION, Ending.TERMINATED, 1, 2, {})
    yield case("an episode", RejectReason.WRONG_SCHEMA, encode_episode(episode))
    announcement = ModelVersionRecord("r", 1, 1, "k", 1, "0" * 64)
    yield case("an announcement", RejectReason.WRONG_SCHEMA, announcement.encode())
    yield case("half of it", RejectReason.CUT_SHORT, good[: len(good) // 2])
    yield case("all but a byte", RejectReason.CUT_SHORT, good[:-1])
    yield case("a byte more", RejectReason.TRAILING_BYTES, good + b"\0")
    yield case("twice itself", RejectReason.TRAILING_BYTES, good + good)
    yield case("too much", RejectReason.OVERSIZE, good + bytes(MAX_BYTES))
    yield case("an integer of eleven bytes", RejectReason.MALFORMED, prefix + b"\x80" * 10 + b"\1")
    yield case("an integer beyond 64 bits", RejectReason.MALFORMED, prefix + b"\xff" * 9 + b"\x7f")
    # Epoch 1, number 0, then the steps.
    yield case("an int beyond 32 bits", RejectReason.MALFORMED, prefix + b"\2\0" + varint(1 << 40))
    start = prefix + b"\2\0" + varint(STEPS) + b"\0"
    yield case("a boolean of 2", RejectReason.MALFORMED, start + b"\2" + good[15:])
    yield case("bytes of length -1", RejectReason.MALFORMED, start + b"\0" + varint(-1))
    yield case("bytes of 2^62", RejectReason.CUT_SHORT, start + b"\0" + varint(1 << 62))
    segments = start + b"\0" + b"".join(varint(len(fields()[name])) + fields()[name] for name in _TABLE)
    yield case("2^40 columns", RejectReason.CUT_SHORT, segments + varint(1 << 40))
    yield case("a block of -5 bytes", RejectReason.CUT_SHORT, segments + varint(-1) + varint(-5))
    yield case("8193 empty columns", RejectReason.MALFORMED, segments + varint(8193) + bytes(2 * 8193 + 1))
    name = varint(2) + b"\xff\xfe" + varint(0)
    yield case("a column's name in no encoding", RejectReason.MALFORMED, segments + varint(1) + name + b"\0")


def _headers(case: Any) -> Iterator[Nonsense]:
    bad = RejectReason.BAD_HEADERS
    yield case("no actor", bad, actor=None)
    yield case("an actor with a space", bad, actor=b"mallory eve")
    yield case("an actor of 129 characters", bad, actor=b"m" * 129)
    yield case("an actor of markup and a line end", bad, actor=b"<b>\n")
    yield case("a session that is none", bad, session=b"0" * 31)
    yield case("a session in capitals", bad, session=b"A" * 32)
    yield case("sequence -1", bad, sequence=b"-1")
    yield case("sequence 10^18", bad, sequence=b"1" + b"0" * 18)
    yield case("a version without epoch", bad, version=b"7")
    yield case("an epoch beyond its range", bad, version=b"9999999.0")
    yield case("a count in words", bad, count=b"six")
    yield case("a run that is not ASCII", bad, run="λ".encode())
    yield case("another run", RejectReason.WRONG_RUN, run=b"another")


def _figures(case: Any) -> Iterator[Nonsense]:
    yield case("another count than the header's", RejectReason.HEADER_MISMATCH, count=b"7")
    yield case("another number than the header's", RejectReason.HEADER_MISMATCH, sound(version_number=1))
    yield case("another epoch than the header's", RejectReason.HEADER_MISMATCH, sound(version_epoch=2))
    yield case("epoch -1", RejectReason.MALFORMED, sound(version_epoch=-1))
    yield case("a number of 2^41", RejectReason.MALFORMED, sound(version_number=1 << 41))
    yield case("-1 dropped", RejectReason.MALFORMED, sound(dropped=-1))


def _segments(case: Any) -> Iterator[Nonsense]:
    bad = RejectReason.BAD_SEGMENTS
    none = dict.fromkeys(_TABLE, b"")
    yield case("no segments", bad, sound(**none, steps=0), count=b"0")
    yield case("a segment of no steps", bad, sound(length=np.zeros(1, "<i4").tobytes()))
    yield case("a segment of -6 steps", bad, sound(length=np.full(1, -STEPS, "<i4").tobytes()))
    yield case("a first step of -1", bad, sound(first_step=np.full(1, -1, "<i4").tobytes()))
    yield case("environment -1", bad, sound(environment=np.full(1, -1, "<i4").tobytes()))
    yield case("episode -1", bad, sound(episode=np.full(1, -1, "<i8").tobytes()))
    yield case("an ending of 7", bad, sound(ending=b"\7"))
    two = {name: fields()[name] * 2 for name in _TABLE} | {"length": np.array([3, 3], "<i4").tobytes()}
    yield case("the same episode twice", bad, sound(**two))
    yield case("two lengths, one ending", bad, sound(length=np.array([3, 3], "<i4").tobytes()))
    yield case("a length of five bytes", bad, sound(length=bytes(5)))
    yield case("more steps than segments have", bad, sound(steps=STEPS + 1))
    yield case("steps beyond 2^31", bad, sound(first_step=np.full(1, 2**31 - 2, "<i4").tobytes()))
    long = np.full(1, 70_000, "<i4").tobytes()
    yield case("70000 steps", bad, sound(length=long, steps=70_000), count=b"70000")


def _columns(case: Any) -> Iterator[Nonsense]:
    nan, inf = np.zeros((STEPS + 1, 4), "<f4"), np.ones(STEPS, "<f4")
    nan[3, 1], inf[2] = np.nan, -np.inf

    def of(**changes: Any) -> bytes:
        return sound(columns=columns(**changes))

    yield case("no rewards", RejectReason.MISSING_COLUMN, of(reward=None))
    yield case("no columns", RejectReason.MISSING_COLUMN, sound(columns=[]))
    yield case("a column of its own", RejectReason.UNKNOWN_COLUMN, of(secret=np.zeros(STEPS, "<f4")))
    yield case("the rewards twice", RejectReason.UNKNOWN_COLUMN, sound(columns=[*columns(), columns()[-1]]))
    yield case("an observation too few", RejectReason.WRONG_SHAPE, of(observation=np.zeros((STEPS, 4), "<f4")))
    yield case("a reward too many", RejectReason.WRONG_SHAPE, of(reward=np.ones(STEPS + 1, "<f4")))
    yield case("actions of four bytes", RejectReason.WRONG_SHAPE, of(action=np.zeros(STEPS, "<i4")))
    yield case("no bytes in a column", RejectReason.WRONG_SHAPE, of(reward=np.zeros(0, "<f4")))
    yield case("an observation that is no number", RejectReason.NOT_FINITE, of(observation=nan))
    yield case("an infinite reward", RejectReason.NOT_FINITE, of(reward=inf))
    yield case("action -1", RejectReason.OUT_OF_BOUNDS, of(action=np.full(STEPS, -1, "<i8")))
    yield case("action 2 of 0 and 1", RejectReason.OUT_OF_BOUNDS, of(action=np.full(STEPS, 2, "<i8")))
    yield case("action 2^62", RejectReason.OUT_OF_BOUNDS, of(action=np.full(STEPS, 1 << 62, "<i8")))


_TABLE = ("environment", "episode", "first_step", "length", "ending")


def varint(number: int) -> bytes:
    """An Avro long."""
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])
