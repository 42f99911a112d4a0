"""A small recorded run without services: a log of chunks, and the lineage that a learner would have written."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from gymnasium import spaces

from pipeline.broker import Record
from pipeline.experience import Chunk, Column, Ending, Layout, Segments, Version
from pipeline.learner.intake.arrival import Examiner
from pipeline.learner.intake.judge import Judge
from pipeline.weights import Lineage
from pipeline.wire import (
    Journal,
    JournalStep,
    Limits,
    ModelVersionRecord,
    RecordHeaders,
    encode_chunk,
    fingerprint,
)

RUN = "made"
FIRST = Version(1, 0)
SESSION = "5e" * 16
LAYOUT = Layout(
    spaces.Dict({"image": spaces.Box(0, 255, (2, 3), np.uint8), "speed": spaces.Box(-1, 1, (), np.float32)}),
    spaces.Discrete(3),
    (Column("log_prob", np.dtype(np.float32), ()), Column("offset", np.dtype(np.int16), (2,))),
)


def chunk_of(
    lengths: list[int], endings: list[Ending], version: Version = FIRST, first_step: int = 0, seed: int = 0
) -> Chunk:
    random = np.random.default_rng(seed)
    count, steps = len(lengths), sum(lengths)
    return Chunk(
        version=version,
        segments=Segments(
            environment=np.arange(count, dtype=np.int32),
            episode=np.arange(100, 100 + count, dtype=np.int64),
            first_step=np.full(count, first_step, np.int32),
            length=np.array(lengths, np.int32),
            ending=np.array(endings, np.uint8),
        ),
        columns={
            "observation/image": random.integers(0, 256, (steps + count, 2, 3), np.uint8),
            "observation/speed": random.uniform(-1, 1, steps + count).astype(np.float32),
            "action": random.integers(0, 3, steps),
            "reward": random.standard_normal(steps).astype(np.float32),
            "log_prob": random.standard_normal(steps).astype(np.float32),
            "offset": random.integers(-9, 9, (steps, 2)).astype(np.int16),
        },
    )


@dataclass
class FakeLog:
    """A samples topic of two partitions, read like an ``OrderedReader``."""

    partitions: dict[int, list[Record]] = field(default_factory=lambda: {0: [], 1: []})
    missing: int = 0
    gone: set[tuple[int, int]] = field(default_factory=set)
    _position: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})

    def add(
        self,
        partition: int,
        sequence: int,
        chunk: Chunk | None = None,
        version: Version = FIRST,
        actor: str = "a",
        value: bytes | None = None,
    ) -> Chunk:
        chunk = chunk or chunk_of([3, 2], [Ending.TERMINATED, Ending.OPEN], version, seed=sequence)
        headers = RecordHeaders(RUN, actor, SESSION, sequence, chunk.version, fingerprint("chunk"), chunk.steps)
        records = self.partitions[partition]
        records.append(
            Record(
                f"rl.{RUN}.samples",
                partition,
                len(records),
                1_767_225_600_000 + 1000 * (len(self.partitions[0]) + len(self.partitions[1])),
                actor.encode(),
                encode_chunk(chunk, LAYOUT) if value is None else value,
                headers.to_kafka(),
            )
        )
        return chunk

    def take(self, partition: int, next_offset: int) -> Iterator[tuple[Record, int]]:
        self.missing, skipped = 0, 0
        while self._position[partition] < next_offset:
            record = self.partitions[partition][self._position[partition]]
            self._position[partition] += 1
            if (partition, record.offset) in self.gone:
                skipped += 1
                continue
            yield record, skipped
            skipped = 0
        self.missing = skipped

    def seek(self, partition: int, offset: int) -> None:
        self._position[partition] = offset

    def rewound(self) -> "FakeLog":
        return FakeLog(self.partitions, gone=self.gone)


def examiner() -> Examiner:
    return Examiner(LAYOUT, RUN, Limits())


class FakeLearner:
    """Judges what it is told to read and writes the journal; trains nothing."""

    def __init__(self, log: FakeLog, window: int = 3) -> None:
        self.log = log
        self.judge = Judge(window)
        self.lineage = Lineage(RUN)
        self.verdicts: list[str] = []
        self._epoch = 0
        self._number = -1
        self._steps: list[JournalStep] = []
        self.claim()
        self.publish(positions={0: 0, 1: 0})

    def claim(self) -> None:
        self._epoch += 1
        claim = ModelVersionRecord(RUN, self._epoch, max(0, self._number), "", 0, "", kind="claim", platform="cpu")
        assert self.lineage.note(claim)

    def read(self, partition: int, next_offset: int) -> None:
        for record, skipped in self.log.take(partition, next_offset):
            arrival = examiner().examine(record, skipped)
            self.verdicts.append(self.judge.judge(arrival, Version(self._epoch, self._number)))
        self._steps.append(JournalStep(partition, next_offset))

    def publish(self, positions: dict[int, int] | None = None) -> ModelVersionRecord:
        parent = None if self._number < 0 else Version(self._epoch, self._number)
        self._number += 1
        journal = Journal(
            parent, steps=tuple(self._steps), positions=positions or {}, counters=self.judge.accounting.counters()
        )
        record = ModelVersionRecord(
            RUN,
            self._epoch,
            self._number,
            f"{RUN}/{self._number}",
            100,
            f"{self._number:064x}",
            None if parent is None else parent.number,
            self.judge.accounting.accepted_transitions,
            10 * self._number,
            journal=journal.encode(),
        )
        assert self.lineage.note(record)
        self._steps = []
        return record
