"""What the journal costs the learner: its share of a version's time, and of the bytes that made the version.

The fold runs as it does live, on CartPole chunks of 32 steps from four partitions in turn, the order that compresses
least; the journal's own calls are timed beside it in the same run.
"""

import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline.broker import Record
from pipeline.config import load_config
from pipeline.experience import Chunk, Ending, Segments, Version
from pipeline.learner import DQNTrainingNode
from pipeline.learner.intake.arrival import Arrival
from pipeline.wire import RecordHeaders, encode_chunk, fingerprint

STEPS = 32
PARTITIONS = 4
VERSIONS = 30
LIMIT = 0.01


def main() -> None:
    """Print both shares beside their limit of 1 %."""
    with tempfile.TemporaryDirectory() as folder:
        node = DQNTrainingNode(load_config([f"saves={folder}", "run=journal", "learner.version_window=1000000"]))
        arrivals = [_arrival(node, index) for index in range(40 + VERSIONS * 400 // STEPS)]
    node.cut(Version(0, 0), node.weights())
    spent = 0.0
    sizes: list[int] = []
    read = 0

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*arguments: Any) -> Any:
            nonlocal spent
            begun = time.perf_counter()
            result = call(*arguments)
            spent += time.perf_counter() - begun
            return result

        return inner

    node.journal.applied = timed(node.journal.applied)
    node.journal.updated = timed(node.journal.updated)
    encoded = timed(lambda: node.next_journal().encode())
    began = 0.0
    for arrival in arrivals:
        node.apply(arrival)
        while node.train_due():
            if node.train():
                sizes.append(len(encoded()))
                node.cut(Version(1, len(sizes)), node.weights())
                if len(sizes) == 1:  # the filling of the buffer and the first steps do not count
                    spent, began, read = 0.0, time.perf_counter(), node.accounting.bytes
    seconds = time.perf_counter() - began
    share = spent / seconds
    weight = sum(sizes[1:]) / (node.accounting.bytes - read)
    print(f"time    {share:8.3%} of the learner's (limit {LIMIT:.0%}; {spent / len(sizes) * 1e6:.0f} µs a version)")
    print(f"bytes   {weight:8.3%} of the samples' (limit {LIMIT:.0%}; {np.mean(sizes):.0f} bytes a version)")


def _arrival(node: DQNTrainingNode, index: int) -> Arrival:
    partition, sequence = index % PARTITIONS, index // PARTITIONS
    rng = np.random.default_rng(index)
    chunk = Chunk(
        version=Version(0, 0),
        segments=Segments(
            environment=np.zeros(1, np.int32),
            episode=np.array([sequence], np.int64),
            first_step=np.zeros(1, np.int32),
            length=np.array([STEPS], np.int32),
            ending=np.array([Ending.TERMINATED], np.uint8),
        ),
        columns={
            "observation": rng.uniform(-0.2, 0.2, (STEPS + 1, 4)).astype(np.float32),
            "action": rng.integers(0, 2, STEPS),
            "reward": np.ones(STEPS, np.float32),
        },
    )
    actor = f"actor-{partition}"
    headers = RecordHeaders(
        node.run_name, actor, f"{partition:032x}", sequence, Version(0, 0), fingerprint("chunk"), STEPS
    )
    value = encode_chunk(chunk, node.layout)
    record = Record(node.topics.samples, partition, 1_000_000 + sequence, 0, actor.encode(), value, headers.to_kafka())
    return node.examiner().examine(record)
