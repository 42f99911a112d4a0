"""A learner without services: its log is a list, and it publishes into another."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from pipeline.broker import Record
from pipeline.config import load_config
from pipeline.errors import InvalidRecordError
from pipeline.experience import Chunk, Ending, Segments, Version
from pipeline.learner import DQNTrainingNode, TrainingNode
from pipeline.learner.durable.following import Computed, follow
from pipeline.learner.durable.recovery import begin
from pipeline.weights import Lineage, pack, sha256
from pipeline.wire import ModelVersionRecord, RecordHeaders, encode_chunk, fingerprint

RUN = "fold"
STEPS = 10
SESSION = "a" * 32


class Published:
    """Takes what the node publishes."""

    def __init__(self) -> None:
        self.versions: list[ModelVersionRecord] = []
        self.failing = False
        self.error = None

    def submit(self, record: ModelVersionRecord, tensors: dict[str, np.ndarray], timeout: float | None = None) -> bool:
        if self.failing:
            return False
        assert all(np.isfinite(tensor).all() for tensor in tensors.values())
        data = pack(tensors)
        self.versions.append(replace(record, key="k", size=len(data), sha256=sha256(data)))
        return True


class Letters:
    """Takes the dead letters."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def write(self, record: Record, actor: str, error: InvalidRecordError) -> None:
        self.reasons.append(error.reason.value)


class Log:
    """Samples partitions in memory, read as an ``OrderedReader`` reads them."""

    def __init__(self, partitions: dict[int, list[Record]]) -> None:
        self.partitions = partitions
        self.lost = 0
        self._positions: dict[int, int] = {}

    def at(self, positions: Any) -> "Log":
        """The same log, read from these positions on."""
        log = Log(self.partitions)
        log._positions = {partition: offset for partition, offset in positions.items() if partition >= 0}
        return log

    def seek(self, partition: int, offset: int) -> None:
        self._positions[partition] = offset

    def take(self, partition: int, next_offset: int) -> Iterator[tuple[Record, int]]:
        for record in self.partitions[partition]:
            position = self._positions.get(partition, 0)
            if position <= record.offset < next_offset:
                self._positions[partition] = record.offset + 1
                self.lost += record.offset - position
                yield record, record.offset - position
        if self._positions.get(partition, 0) < next_offset:
            self.lost += next_offset - self._positions.get(partition, 0)
            self._positions[partition] = next_offset

    def close(self) -> None:
        """Nothing to close."""


def node_in(folder: Path, *overrides: str) -> DQNTrainingNode:
    """A new node at the beginning of its run, with nothing behind it."""
    config = load_config(
        [
            f"saves={folder}",
            f"run={RUN}",
            "algorithm.learning_starts=20",
            "algorithm.batch_size=8",
            "algorithm.hidden=[16]",
            "algorithm.buffer_rows=150",
            "algorithm.transitions_per_update=5",
            "algorithm.updates_per_version=4",
            "learner.heartbeat_s=1000000",
            "learner.checkpoint_every=0",
            "learner.version_window=1000",
            *overrides,
        ]
    )
    node = DQNTrainingNode(config)
    equip(node)
    return node


def equip(node: TrainingNode) -> None:
    """Let a new node publish into a list, as the learner of epoch 1."""
    node._publisher = Published()  # type: ignore[assignment]
    node._dead_letters = Letters()  # type: ignore[assignment]
    node.observe = node._note_trouble
    node._presence = SimpleNamespace(beat=lambda *, now=False: None)  # type: ignore[assignment]
    node._watch_due = float("inf")
    lead(node, 1)


def lead(node: TrainingNode, epoch: int) -> None:
    """Let the node be the run's learner in this epoch."""
    node._links = SimpleNamespace(epoch=epoch)  # type: ignore[assignment]
    node.enter(epoch)


def published(node: TrainingNode) -> list[ModelVersionRecord]:
    return node._publisher.versions  # type: ignore[union-attr, return-value]


def lineage_of(*nodes: TrainingNode) -> Lineage:
    lineage = Lineage(RUN)
    for node in nodes:
        for record in published(node):
            lineage.note(record)
    return lineage


def chunk_of(sequence: int, version: Version) -> Chunk:
    """Ten random CartPole steps of one environment; every third chunk's episode goes on in the next."""
    random = np.random.default_rng(sequence)
    ending = Ending.OPEN if sequence % 3 else Ending.TERMINATED
    return Chunk(
        version=version,
        segments=Segments(
            environment=np.zeros(1, np.int32),
            episode=np.array([sequence // 3], np.int64),
            first_step=np.array([sequence % 3 * STEPS], np.int32),
            length=np.array([STEPS], np.int32),
            ending=np.array([ending], np.uint8),
        ),
        columns={
            "observation": random.uniform(-0.2, 0.2, (STEPS + 1, 4)).astype(np.float32),
            "action": random.integers(0, 2, STEPS),
            "reward": random.standard_normal(STEPS).astype(np.float32),
        },
    )


def record_of(
    node: DQNTrainingNode,
    sequence: int,
    offset: int,
    partition: int = 0,
    version: Version | None = None,
    actor: str = "a",
) -> Record:
    """A record of the samples topic, as an actor writes it."""
    version = version or Version(1, 0)
    headers = RecordHeaders(RUN, actor, SESSION, sequence, version, fingerprint("chunk"), STEPS)
    value = encode_chunk(chunk_of(sequence, version), node.layout)
    return Record(node.topics.samples, partition, offset, 0, actor.encode(), value, headers.to_kafka())


def feed(node: DQNTrainingNode, records: list[Record]) -> None:
    """Apply records as the live loop does."""
    for record in records:
        node.apply(node.examiner().examine(record))
        node._train_while_due()


def follow_all(fold: TrainingNode, lineage: Lineage, log: Log) -> list[bool]:
    """Follow a run from its beginning in a new fold; of each version, whether it came out as it was announced."""
    seen: list[bool] = []

    def note(computed: Computed) -> bool:
        seen.append(computed.identical)
        return True

    begin(fold, lineage.versions[0], fold.folder)
    follow(fold, lineage.versions, log.at(fold.positions), note)
    return seen
