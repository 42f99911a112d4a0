"""What fuzzers start from: ``python -m tests.fuzz.seeds`` writes the corpus anew.

The corpus holds records as they were once written; a newer schema does not make them useless.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pipeline.experience import Chunk, Ending, EpisodeInfo, Segments, Version
from pipeline.wire import (
    Command,
    DeadLetter,
    Heartbeat,
    Journal,
    JournalCommand,
    JournalStep,
    Member,
    ModelVersionRecord,
    Outcome,
    Position,
    RecordHeaders,
    RunManifest,
    TelemetryWindow,
    encode_chunk,
    encode_episode,
    fingerprint,
)
from tests.fuzz.targets import FLAT, NESTED, RUN, SESSION, pack

CORPUS = Path(__file__).parent / "corpus"
VERSION = Version(1, 2)


def seeds() -> Iterator[tuple[str, str, bytes]]:
    """Target, name, and the record, each of which the target accepts."""
    for lengths in ([3], [1, 2, 1]):
        steps, count = sum(lengths), len(lengths)
        table = Segments(
            np.arange(count, dtype=np.int32),
            np.arange(count, dtype=np.int64),
            np.zeros(count, np.int32),
            np.array(lengths, np.int32),
            np.array([index % 3 for index in range(count)], np.uint8),
        )
        flat = {
            "observation": np.full((steps + count, 4), 0.5, np.float32),
            "action": np.ones(steps, np.int64),
            "reward": np.ones(steps, np.float32),
        }
        nested = {
            "observation/door": np.ones((steps + count, 2), np.int8),
            "observation/image": np.full((steps + count, 2, 3), 7, np.uint8),
            "observation/place": np.full(steps + count, 2, np.int64),
            "action/0": np.full(steps, -1, np.int64),
            "action/1": np.full((steps, 2), 0.25, np.float32),
            "reward": np.zeros(steps, np.float32),
            "log_probability": np.full(steps, -0.5, np.float16),
            "mask": np.ones((steps, 2), np.bool_),
        }
        name = "-".join(map(str, lengths))
        chunk = encode_chunk(Chunk(VERSION, table, flat), FLAT)
        yield "chunk", name, chunk
        yield "nested", name, encode_chunk(Chunk(VERSION, table, nested, 5, True), NESTED)
        headers = RecordHeaders(RUN, "actor-1", SESSION, 12, VERSION, fingerprint("chunk"), steps).to_kafka()
        yield "record", name, pack(headers, chunk)
        yield "headers", name, pack(headers, b"")
    yield "command", "set", Command("id-1", "set", '{"x": 1}', 12, "me").encode()
    yield "dead_letter", "one", DeadLetter("r", "t", 0, 5, 6, "not-ours", "d", "a", "b" * 64, b"\xff" * 9).encode()
    yield (
        "episode",
        "one",
        encode_episode(EpisodeInfo("a", SESSION, 5, 1, 200, 199.5, VERSION, Ending.TRUNCATED, 1, 2, {"score": 2.0})),
    )
    yield "heartbeat", "actor", Heartbeat("r", "n", "actor", SESSION, 3, 4, 1, 2, 5, 6).encode()
    learner = Heartbeat(
        "r",
        "n",
        "learner",
        SESSION,
        3,
        4,
        positions=(Position(SESSION, 1, 2), Position("f" * 32, 3, 4)),
        members=(Member(SESSION, "a", "member", 1),),
        outcomes=(Outcome("id", True, "path"),),
    )
    yield "heartbeat", "learner", learner.encode()
    journal = Journal(
        parent=VERSION, steps=(JournalStep(0, 7), JournalStep(-1, 1, 2)), commands=(JournalCommand("i", "stop"),)
    )
    yield "journal", "one", journal.encode()
    yield (
        "model_version",
        "weights",
        ModelVersionRecord("r", 1, 2, "k", 1, "0" * 64, 1, 10, 5, 99, "weights", journal.encode(), "best").encode(),
    )
    yield "model_version", "claim", ModelVersionRecord("r", 2, 2, "", 0, "", kind="claim", platform="p").encode()
    yield (
        "run_manifest",
        "one",
        RunManifest("r", "n", 1, 2, "{}", "{}", ("ab", "cd"), "h:1", "b", True, "d", "c").encode(),
    )
    yield "telemetry_window", "one", TelemetryWindow("r", 1, 2, 3, 4.5, 5.5, 6.5, 7, 8, {"loss": 0.5}).encode()


def corpus() -> Iterator[tuple[str, bytes]]:
    """Target and record of every file."""
    for path in sorted(CORPUS.glob("*/*")):
        yield path.parent.name, path.read_bytes()


def main() -> int:
    for target, name, data in seeds():
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        (CORPUS / target / name).write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
