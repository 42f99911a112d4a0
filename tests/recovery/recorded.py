"""A recorded log of one samples partition: the same for every learner that reads it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pipeline.broker import Delivery, Producer, Topics, ensure_topics
from pipeline.client.ledger import ActorLedger
from pipeline.config import PipelineConfig
from pipeline.connect import connect
from pipeline.environment import read_layout
from pipeline.experience import Chunk, Layout, Segments, Version
from pipeline.wire import RecordHeaders, encode_chunk, fingerprint

STEPS = 20
EPISODE = 50

SETTINGS = [
    "kafka.partitions=1",
    "algorithm.hidden=[32]",
    "algorithm.batch_size=32",
    "algorithm.learning_starts=200",
    "algorithm.transitions_per_update=4",
    "algorithm.updates_per_version=10",
    # Smaller than the log, so that the ring goes round.
    "algorithm.buffer_rows=1500",
    "learner.checkpoint_every=7",
    "learner.version_window=3",
]
"""A version every two chunks."""

ANY_VERSION = 1_000_000
"""As the version window: the log names version 0 only, and suits learners whose versions come at other times."""


class Walk:
    """One session of an actor in one environment: a random walk in episodes of fifty steps."""

    def __init__(self, actor: str, random: np.random.Generator) -> None:
        self.actor = actor
        self.session = random.bytes(16).hex()
        self.sequence = 0
        self._random = random
        self._episode = 0
        self._step = 0
        self._last = random.standard_normal(4).astype(np.float32)

    def chunk(self, version: Version) -> Chunk:
        """The session's next steps; the segment goes on where the last one was left open."""
        pieces: list[tuple[int, int, int, int]] = []
        rows: list[np.ndarray] = []
        left = STEPS
        while left:
            length = min(left, EPISODE - self._step)
            moves = self._random.standard_normal((length, 4)).astype(np.float32)
            rows += [self._last[None], self._last + np.cumsum(moves, 0, dtype=np.float32)]
            self._last = rows[-1][-1]
            ended = self._step + length == EPISODE
            pieces.append((self._episode, self._step, length, int(ended)))
            self._step += length
            if ended:
                self._episode, self._step = self._episode + 1, 0
                self._last = self._random.standard_normal(4).astype(np.float32)
            left -= length
        episode, first, length_, ending = zip(*pieces, strict=True)
        return Chunk(
            version=version,
            segments=Segments(
                environment=np.zeros(len(pieces), np.int32),
                episode=np.array(episode, np.int64),
                first_step=np.array(first, np.int32),
                length=np.array(length_, np.int32),
                ending=np.array(ending, np.uint8),
            ),
            columns={
                "observation": np.concatenate(rows),
                "action": self._random.integers(0, 2, STEPS),
                "reward": self._random.standard_normal(STEPS).astype(np.float32),
            },
        )


def records(
    config: PipelineConfig, layout: Layout, chunks: int, seed: int
) -> Iterator[tuple[RecordHeaders, bytes, bool]]:
    """Headers, value, and whether the learner accepts it: mostly good chunks of the newest versions, some sent twice,
    some stale, some of versions that were never published, some damaged."""
    random = np.random.default_rng(seed)
    walks = [Walk(f"actor-{index}", random) for index in range(3)]
    algorithm = config.algorithm
    sent: list[tuple[RecordHeaders, bytes]] = []
    accepted = 0
    for index in range(chunks):
        ready = accepted - algorithm.learning_starts
        number = max(0, ready // algorithm.transitions_per_update) // algorithm.updates_per_version
        if config.learner.version_window == ANY_VERSION:
            number = 0
        # The last one is accepted: a learner that ends with it has judged the whole log.
        luck = random.random() if index < chunks - 1 else 1.0
        if luck < 0.05 and sent:
            yield *sent[-1 - int(random.integers(min(60, len(sent))))], False
            continue
        lag = -1 if luck < 0.07 else 3 if luck < 0.1 and number >= 3 else int(random.integers(min(3, number + 1)))
        walk = walks[int(random.integers(len(walks)))]
        chunk = walk.chunk(Version(1, number - lag))
        value = encode_chunk(chunk, layout)
        damaged = 0.1 < luck < 0.12
        headers = RecordHeaders(
            run=config.run,
            actor=walk.actor,
            session=walk.session,
            sequence=walk.sequence,
            version=chunk.version,
            schema=fingerprint("chunk"),
            count=STEPS,
        )
        walk.sequence += 1
        sent.append((headers, value[:-3] if damaged else value))
        good = not damaged and 0 <= lag < 3
        accepted += STEPS * good
        yield *sent[-1], good


def record(config: PipelineConfig, chunks: int, ledger: Path, seed: int = 0) -> int:
    """Append the log to the samples topic of the configuration's run.

    Args:
        config: of the run.
        chunks: how many records.
        ledger: as an actor's, of all of them.
        seed: the same gives the same log.

    Returns:
        How many transitions a learner accepts of it.
    """
    connection, topics = connect(config), Topics(config.namespace, config.run)
    ensure_topics(connection.broker, topics.specs(partitions=1, retention_ms=config.kafka.retention_ms), timeout=30.0)
    accepted = 0
    actors = ActorLedger(ledger)
    with Producer(connection.broker) as producer:
        for headers, value, good in records(config, read_layout(config.environment), chunks, seed):
            fields = headers.to_kafka()
            actors.produced(fields)

            def delivered(delivery: Delivery, headers: RecordHeaders = headers) -> None:
                assert delivery.error is None
                actors.acknowledged(headers.identity, delivery.partition, delivery.offset)

            producer.send(topics.samples, value, headers.actor, fields, 0, delivered)
            accepted += headers.count * good
        assert producer.flush(60.0) == 0
    actors.close()
    return accepted
