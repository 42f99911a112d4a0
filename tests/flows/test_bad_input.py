"""Records that are not ours never stop the learner: one dead letter each, and a count."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

from pipeline.broker import LogReader, Producer
from pipeline.environment import read_layout
from pipeline.experience import Chunk, Segments, Version, new_session
from pipeline.services import Services
from pipeline.wire import DeadLetter, RecordHeaders, encode_chunk, fingerprint
from tests.flows.processes import Watcher, config_of, overrides, role

STEPS = 6


def chunk_of(**changes: np.ndarray) -> Chunk:
    columns = {
        "observation": np.zeros((STEPS + 1, 4), np.float32),
        "action": np.zeros(STEPS, np.int64),
        "reward": np.ones(STEPS, np.float32),
    }
    table = Segments(
        np.zeros(1, np.int32),
        np.zeros(1, np.int64),
        np.zeros(1, np.int32),
        np.array([STEPS], np.int32),
        np.zeros(1, np.uint8),
    )
    return Chunk(version=Version(1, 0), segments=table, columns={**columns, **changes})


@pytest.mark.timeout(240)
def test_each_bad_record_is_one_dead_letter(local_services: Services, tmp_path: Path):
    """Not ours, unknown schema, cut short, trailing, wrong shape, NaN, foreign action, another run, wrong count."""
    assert gymnasium.spec("CartPole-v1") is not None
    run = "bad-input"
    config = config_of(local_services, run, tmp_path / "saves")
    layout = read_layout(config.environment)
    watcher = Watcher(local_services, run)
    session = new_session()
    good = encode_chunk(chunk_of(), layout)
    nan = np.zeros((STEPS + 1, 4), np.float32)
    nan[3, 1] = np.nan
    cases = [
        (b"hello", "not-ours"),
        (b"\xc3\x01" + b"\x07" * 8 + good[10:], "unknown-schema"),
        (good[: len(good) // 2], "cut-short"),
        (good + b"\0", "trailing-bytes"),
        (encode_chunk(chunk_of(observation=nan), layout), "not-finite"),
        (encode_chunk(chunk_of(action=np.full(STEPS, 7, np.int64)), layout), "out-of-bounds"),
    ]
    with role("learner", tmp_path / "learner.log", *overrides(local_services, run, tmp_path / "saves")) as learner:
        watcher.wait(lambda: watcher.version >= 0, "the learner is there")
        producer = Producer(watcher.settings)
        sequence = 0

        def send(value: bytes, *, of_run: str = run, count: int = STEPS, headers: bool = True) -> None:
            nonlocal sequence
            head = RecordHeaders(of_run, "mallory", session, sequence, Version(1, 0), fingerprint("chunk"), count)
            sequence += 1
            producer.send_and_wait(
                watcher.topics.samples, value, key="mallory", headers=head.to_kafka() if headers else None
            )

        expected = [reason for _, reason in cases]
        for value, _ in cases:
            send(value)
        send(good, headers=False)
        send(good, of_run="another")
        send(good, count=STEPS + 1)
        expected += ["bad-headers", "wrong-run", "header-mismatch"]
        send(good)
        watcher.wait(lambda: watcher.accepted == STEPS, "the good one is accepted after all the bad ones")
        assert learner.poll() is None
        producer.close()
    reader = LogReader(watcher.settings, watcher.topics.dead_letters)
    letters = [DeadLetter.decode(record.value or b"") for record in reader.read_to_end(30.0)]
    reader.close()
    watcher.close()
    assert [letter.reason for letter in letters] == expected
    assert len({(letter.partition, letter.offset) for letter in letters}) == len(letters)
    assert letters[0].head == b"hello"
