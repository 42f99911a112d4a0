"""How long a replay buffer of a million transitions takes to come back from the log, and what a checkpoint holds up.

On a real Kafka (services=local). The limit for the refill is a bare consumer that reads the same bytes and does nothing
with them, measured in turns with it. A checkpoint's pause is what it adds to the time from one train step to the next,
at a buffer of ten thousand transitions and at a million.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import gymnasium
import numpy as np

from pipeline.broker import BrokerSettings, OrderedReader, Producer, Record, Topics, ensure_topics
from pipeline.config import PipelineConfig, load_config
from pipeline.errors import QueueFullError
from pipeline.experience import Chunk, Ending, Segments, Version
from pipeline.learner import DQNTrainingNode
from pipeline.learner.durable.checkpoint import CheckpointWriter
from pipeline.services import running_services
from pipeline.wire import RecordHeaders, encode_chunk, fingerprint

TRANSITIONS = 1_000_000
PARTITIONS = 4
WIDTH = 75
ENVIRONMENTS = 8
STEPS = 256
EPISODE = 512
BURST = 64
ROUNDS = 5
CHECKPOINTS = 200
RUN = "refill"
VERSION = Version(1, 0)


class Wide(gymnasium.Env[np.ndarray, np.int64]):
    """Spaces only."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (WIDTH,), np.float32)
    action_space = gymnasium.spaces.Discrete(6)


class Actor:
    """One actor's stream: 8 environments in step, chunks of 256 transitions, episodes of 512 steps."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.offset = 0
        self._name = f"actor-{partition}"
        self._session = f"{partition:032x}"
        self._rng = np.random.default_rng(partition)
        self._last = self._rng.standard_normal((ENVIRONMENTS, WIDTH), np.float32)

    def next(self) -> tuple[RecordHeaders, Chunk]:
        """The next chunk; each environment goes on where it was."""
        length = STEPS // ENVIRONMENTS
        episode, first = divmod(self.offset * length, EPISODE)
        rows = self._rng.standard_normal((ENVIRONMENTS, length + 1, WIDTH), np.float32)
        if first:
            rows[:, 0] = self._last
        self._last = rows[:, -1].copy()
        ending = Ending.TRUNCATED if first + length == EPISODE else Ending.OPEN
        segments = Segments(
            np.arange(ENVIRONMENTS, dtype=np.int32),
            np.full(ENVIRONMENTS, episode, np.int64),
            np.full(ENVIRONMENTS, first, np.int32),
            np.full(ENVIRONMENTS, length, np.int32),
            np.full(ENVIRONMENTS, ending, np.uint8),
        )
        columns = {
            "observation": rows.reshape(-1, WIDTH),
            "action": self._rng.integers(0, 6, STEPS),
            "reward": self._rng.standard_normal(STEPS, np.float32),
        }
        headers = RecordHeaders(RUN, self._name, self._session, self.offset, VERSION, fingerprint("chunk"), STEPS)
        self.offset += 1
        return headers, Chunk(VERSION, segments, columns)


def main() -> None:
    """Measure and print."""
    gymnasium.register("Wide-v0", Wide)
    with tempfile.TemporaryDirectory() as folder:
        print(f"{TRANSITIONS} transitions of {WIDTH} float32, chunks of {STEPS}, {PARTITIONS} partitions")
        _checkpoints(Path(folder), 10_000)
        node = _checkpoints(Path(folder), TRANSITIONS)
        with running_services("local", Path(folder) / "services", keep_data=False) as services:
            _refills(node, BrokerSettings(services.bootstrap_servers))


def _config(folder: Path, transitions: int) -> PipelineConfig:
    # One row more for each segment; what remains is for what waits in the n-step reader.
    rows = transitions + transitions // (STEPS // ENVIRONMENTS) + 1000
    return load_config(
        [f"saves={folder}", f"run={RUN}", "environment.id=Wide-v0", f"algorithm.buffer_rows={rows}", "learner.seed=1"]
    )


# -- checkpoints ------------------------------------------------------------------------------------------------------


def _checkpoints(folder: Path, transitions: int) -> DQNTrainingNode:
    """Fill a learner, then checkpoint it again and again between train steps; returns it."""
    node = DQNTrainingNode(_config(folder, transitions))
    for record, headers, chunk in _experience(node, transitions):
        node.insert(headers, chunk, record)
    node.cut(VERSION, node.weights())
    steps = np.array([_seconds(node.train_step) for _ in range(CHECKPOINTS)])
    written = threading.Event()
    writer = CheckpointWriter(folder / f"checkpoints-{transitions}", 2, lambda version: True, written.set)
    held, added = np.empty(CHECKPOINTS), np.empty(CHECKPOINTS)
    for index in range(CHECKPOINTS):
        begun = time.perf_counter()
        writer.submit(f"000001-{index:09d}-{index:012d}", node.snapshot())
        held[index] = time.perf_counter() - begun
        node.train_step()
        added[index] = time.perf_counter() - begun - np.median(steps)
        while not written.is_set():
            node.train_step()
        written.clear()
    writer.close()
    sizes = [
        sum(file.stat().st_size for file in path.iterdir())
        for path in (folder / f"checkpoints-{transitions}").iterdir()
    ]
    for what, times in (("train step alone", steps), ("checkpoint: copy and hand over", held), ("pause", added)):
        _report(f"{transitions:>9} transitions, {what}", times * 1e3)
    print(f"{transitions:>9} transitions, checkpoint on disk: {max(sizes) / 1e6:.2f} MB", flush=True)
    return node


def _report(what: str, ms: np.ndarray) -> None:
    print(f"{what:<52} median {np.median(ms):8.2f} ms   p99 {np.percentile(ms, 99):8.2f} ms   max {ms.max():8.2f} ms")


# -- refill -----------------------------------------------------------------------------------------------------------


def _refills(node: DQNTrainingNode, broker: BrokerSettings) -> None:
    topics = Topics("bench", RUN)
    ensure_topics(broker, topics.specs(partitions=PARTITIONS), replication=1)
    size = _produce(node, broker, topics.samples)
    print(f"{size / 1e6:.0f} MB of values in {topics.samples}", flush=True)
    expected = node.buffer.contents()
    bare, refill = np.empty(ROUNDS), np.empty(ROUNDS)
    for index in range(ROUNDS):
        bare[index] = _seconds(lambda: _read(broker, topics.samples, size))
        again = DQNTrainingNode(node.config)
        again.restore(node.snapshot())
        refill[index] = _seconds(lambda again=again: _refill(again, broker, topics.samples))
        for name, array in again.buffer.contents().items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)
    limit = 1.5 * np.median(bare) + 2
    print(f"bare consumer  {np.median(bare):6.2f} s   {np.round(np.sort(bare), 2)}")
    print(f"refill         {np.median(refill):6.2f} s   {np.round(np.sort(refill), 2)}   all rows the same")
    print(f"wanted: at most 1.5 x bare + 2 s = {limit:.2f} s")


def _produce(node: DQNTrainingNode, broker: BrokerSettings, topic: str) -> int:
    size = 0
    with Producer(broker) as producer:
        for record, headers, _ in _experience(node, TRANSITIONS):
            size += len(record.value)
            while True:
                try:
                    producer.send(topic, record.value, headers=headers.to_kafka(), partition=record.partition)
                    break
                except QueueFullError:
                    producer.poll(0.1)
        if producer.flush(120.0):
            raise SystemExit("not all records were acknowledged")
    return size


def _read(broker: BrokerSettings, topic: str, size: int) -> None:
    """All of the topic by a bare consumer, as its maker configured it."""
    options = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "bare", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(options)
    consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    found = 0
    while found < size:
        found += sum(len(message.value()) for message in consumer.consume(1000, 1.0))
    consumer.close()


def _refill(node: DQNTrainingNode, broker: BrokerSettings, topic: str) -> None:
    with OrderedReader(broker, topic, {}) as source:
        report = node.refill(source)
    if report is None or not report.exact:
        raise SystemExit(f"the refill is not exact: {report}")


# -- both -------------------------------------------------------------------------------------------------------------


def _experience(node: DQNTrainingNode, transitions: int) -> Iterator[tuple[Record, RecordHeaders, Chunk]]:
    """The same records each time, in the order in which a learner that polls in bursts might apply them."""
    actors = [Actor(partition) for partition in range(PARTITIONS)]
    rng = np.random.default_rng(0)
    left = transitions // STEPS
    while left:
        actor = actors[int(rng.integers(PARTITIONS))]
        for _ in range(min(left, int(rng.integers(1, BURST)))):
            offset = actor.offset
            headers, chunk = actor.next()
            yield Record("", actor.partition, offset, 0, None, encode_chunk(chunk, node.layout), None), headers, chunk
            left -= 1


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
