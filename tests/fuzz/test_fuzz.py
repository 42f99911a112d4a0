"""A little of `make fuzz`: the corpus, what is made from it, and bombs. Nothing but a refusal comes out, in little
memory. `FUZZ=1` makes more of each.
"""

import importlib.util
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.wire import encode
from tests.fuzz.__main__ import fuzz
from tests.fuzz.nonsense import columns, fields, nonsense, varint
from tests.fuzz.seeds import corpus, seeds
from tests.fuzz.targets import FLAT, TARGETS, call, call_any, input_for

MIB = 1 << 20
MOST_MEMORY = 64 * MIB
EXAMPLES = 50_000 if os.environ.get("FUZZ") else 300
SEEDS = [(target, data) for target, _, data in seeds()]
many = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


def memory_of(target: str, data: bytes) -> int:
    """The most memory that a call took beside its input."""
    tracemalloc.start()
    try:
        call(target, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_seeds_are_accepted():
    """So the fuzzers begin behind the first checks."""
    assert {target for target, _ in SEEDS} == set(TARGETS)
    for target, data in SEEDS:
        assert call(target, data), target


def test_the_corpus_breaks_nothing():
    found = list(corpus())
    assert {target for target, _ in found} <= set(TARGETS)
    assert len(found) >= len(SEEDS)
    for target, data in found:
        call(target, data)
        call_any(input_for(target, data))


@many
@given(st.data())
def test_mutations_are_refused_or_accepted(data: st.DataObject):
    """Bytes changed, taken out, put in, repeated."""
    target, seed = data.draw(st.sampled_from(SEEDS))
    record = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, len(record)))
        until = min(len(record), where + data.draw(st.sampled_from((0, 1, 2, 8, 64))))
        record[where:until] = data.draw(st.one_of(st.binary(max_size=12), st.just(bytes(record[where:until] * 2))))
    call(target, bytes(record))


INTEGERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from((0, 1, -1, 2**31, 2**40, 2**62)))
LENGTHS = st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 40), max_size=5)


@many
@given(st.data())
def test_chunks_of_any_figures_are_refused_or_accepted(data: st.DataObject):
    """Well-formed Avro, whatever it says: tables and columns of any length, figures of any size."""

    def table(dtype: str) -> bytes:
        return np.array(data.draw(LENGTHS), np.int64).astype(dtype).tobytes() + data.draw(st.binary(max_size=2))

    chunk: dict[str, Any] = fields()
    changes: dict[str, Any] = {
        "version_epoch": INTEGERS,
        "version_number": INTEGERS,
        "steps": st.integers(-(2**31), 2**31 - 1),
        "dropped": INTEGERS,
        "ending": st.binary(max_size=4),
        "columns": st.lists(st.sampled_from(columns()), max_size=5),
    }
    for name in data.draw(st.sets(st.sampled_from(sorted(changes)))):
        chunk[name] = data.draw(changes[name])
    tables = {"environment": "<i4", "episode": "<i8", "first_step": "<i4", "length": "<i4"}
    for name in data.draw(st.sets(st.sampled_from(sorted(tables)))):
        chunk[name] = table(tables[name])
    call("chunk", encode("chunk", chunk))


@many
@given(st.sampled_from(sorted(TARGETS)), st.binary(max_size=200))
def test_any_body_under_a_true_fingerprint(target: str, body: bytes):
    seed = next(data for name, data in SEEDS if name == target)
    call(target, (seed[:10] if target not in ("headers", "record") else b"") + body)


def test_nonsense_takes_little_memory():
    for case in nonsense("one", "0" * 32):
        assert memory_of("chunk", case.value) < MOST_MEMORY, case.name


@pytest.mark.parametrize("target", [name for name in TARGETS if name not in ("headers", "record")])
@pytest.mark.parametrize("size", [4_096, MIB - 16])
def test_bombs_take_little_memory(target: str, size: int):
    """Counts and lengths that promise the most that a record of its size can hold, and more than that."""
    seed = next(data for name, data in SEEDS if name == target)
    for body in (
        bytes(size),
        b"\x02" * size,
        b"\xfe\xff\xff\xff\x0f" * (size // 5),
        varint(size // 2) * (size // len(varint(size // 2))),
        seed[10:] * (size // len(seed[10:])),
    ):
        assert memory_of(target, (seed[:10] + body)[:size]) < MOST_MEMORY


def test_a_full_record_takes_little_memory():
    """The most steps that fit into what the learner takes: arrays are views of it."""
    steps = 30_000
    good = {
        "observation": np.zeros((steps + 1, 4), "<f4"),
        "action": np.zeros(steps, "<i8"),
        "reward": np.ones(steps, "<f4"),
    }
    length = np.full(1, steps, "<i4").tobytes()
    data = encode("chunk", fields(steps=steps, length=length, columns=columns(**good)))
    assert 800_000 < len(data) <= 900_000
    assert memory_of("chunk", data) < MOST_MEMORY
    assert FLAT.by_name.keys() == good.keys()


@pytest.mark.timeout(300)
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris has no wheel for this platform")
def test_a_minute_of_the_fuzzer(tmp_path: Path):
    outcome = fuzz(60, 1, tmp_path, seed=1)
    assert outcome.failures == ()
    assert outcome.executions > 10_000


def test_a_finding_is_one(monkeypatch: pytest.MonkeyPatch):
    """Anything but a refusal gets through to the fuzzer."""

    def broken(data: bytes) -> None:
        raise IndexError(len(data))

    monkeypatch.setitem(TARGETS, "command", broken)
    with pytest.raises(IndexError):
        call_any(input_for("command", b"x"))

    def refuses(data: bytes) -> None:
        raise InvalidRecordError(RejectReason.MALFORMED, "d")

    monkeypatch.setitem(TARGETS, "command", refuses)
    call_any(input_for("command", b"x"))
