"""Everything of the learner's that is outside of its process: broker, store, topics, and the claim of its run.

Opened in the order that makes it safe: topics and bucket; fence older learners; read the versions topic to its end,
which nobody else can write to any more; claim the next epoch there.
"""

import json
import logging
import platform
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version as installed
from typing import NamedTuple

from pipeline.broker import (
    LogReader,
    OrderedReader,
    Producer,
    Topics,
    ensure_topics,
    topic_id,
)
from pipeline.config import PipelineConfig, to_dict
from pipeline.connect import Connection, connect
from pipeline.errors import FencedError, InvalidRecordError, LearnerError, TopicReplacedError
from pipeline.experience import Version
from pipeline.weights import Lineage, ObjectStore, Publisher, read_lineage, weights_key
from pipeline.wire import COMMANDS, ModelVersionRecord

log = logging.getLogger(__name__)

Positions = Mapping[int, int]

_FENCE_S = 60.0


@dataclass(frozen=True)
class Links:
    """Open links of a learner that has claimed its run.

    Attributes:
        connection: addresses and credentials.
        topics: of the run.
        store: holds the weights.
        producer: for heartbeats, dead letters and manifests; not fenced.
        publisher: announces versions and pins, in transactions that a newer learner fences.
        lineage: the versions topic as it was when the epoch was claimed.
        epoch: this learner's.
        watch: reads the versions topic from the claim on.
        timeout_s: for the broker's answers, in seconds.
    """

    connection: Connection
    topics: Topics
    store: ObjectStore
    producer: Producer
    publisher: Publisher
    lineage: Lineage
    epoch: int
    watch: "TakeOver"
    timeout_s: float

    def extent(self) -> "Extent":
        """How far samples and commands reach now."""
        samples, commands = self.topics.samples, (self.topics.commands, 0)
        with LogReader(self.connection.broker, [samples, commands[0]]) as reader:
            marks = reader.watermarks(self.timeout_s)
        first = {place[1]: low for place, (low, _) in marks.items() if place[0] == samples}
        return Extent({**first, COMMANDS: marks[commands][0]}, marks[commands][1])

    def reader(self, positions: Positions) -> LogReader:
        """Samples and commands, from these positions on."""
        start = {
            (self.topics.commands, 0) if source == COMMANDS else (self.topics.samples, source): offset
            for source, offset in positions.items()
        }
        return LogReader(self.connection.broker, [self.topics.samples, self.topics.commands], start=start)

    def windows(self) -> LogReader:
        """What the run's telemetry finds, from now on."""
        return LogReader(self.connection.broker, self.topics.telemetry, "latest", open_timeout=self.timeout_s)

    def ordered(self, positions: Positions) -> OrderedReader:
        """Samples, to be read in a prescribed order."""
        start = {source: offset for source, offset in positions.items() if source != COMMANDS}
        return OrderedReader(self.connection.broker, self.topics.samples, start, timeout=self.timeout_s)


class Extent(NamedTuple):
    """How far samples and commands reach.

    Attributes:
        first: where a new run begins to read: the oldest record of each samples partition, and of the commands.
        commands_end: commands before this offset are in the log already.
    """

    first: dict[int, int]
    commands_end: int


class TakeOver:
    """Notices that a newer learner claimed the run, even while there is nothing to publish.

    Args:
        reader: the versions topic, from this learner's claim on.
        run: its name.
        epoch: this learner's.
    """

    def __init__(self, reader: LogReader, run: str, epoch: int) -> None:
        self._reader = reader
        self._run = run
        self._epoch = epoch

    def check(self) -> None:
        """Look for a newer claim, without waiting.

        Raises:
            FencedError: there is one.
        """
        while records := self._reader.poll(100, 0.0):
            for record in records:
                try:
                    seen = ModelVersionRecord.decode(record.value)
                except InvalidRecordError:
                    continue
                if seen.run == self._run and seen.epoch > self._epoch:
                    raise FencedError(
                        f"Another learner has taken run {self._run} over: it claimed epoch {seen.epoch}, this one has "
                        f"epoch {self._epoch} and stops."
                    )


@contextmanager
def open_links(config: PipelineConfig, run: str) -> Generator[Links]:
    """Connect, fence older learners of the run, and claim the next epoch.

    Raises:
        TopicReplacedError: the samples topic is not the one that the run was made of.
        LearnerError: a newer release has written to the run.
        FencedError: another learner claimed the run at the same moment.
        BrokerError, StoreError: a service is missing or refuses; see the message.
    """
    connection = connect(config)
    kafka = config.kafka
    topics = Topics(config.namespace, run)
    ensure_topics(
        connection.broker,
        topics.specs(**kafka.topic_settings()),
        timeout=kafka.timeout_s,
        replication=kafka.replication,
    )
    store = ObjectStore(connection.store)
    # Who may only get and put sees by a key of its own run whether the bucket is there.
    store.ensure_bucket(probe=weights_key(run, Version(1, 0)))
    with ExitStack() as stack:
        producer = Producer(connection.broker)
        stack.callback(producer.close)
        announcer = Producer(connection.broker, transactional_id=f"{config.namespace}.{run}", guards=f"run {run}")
        stack.callback(announcer.close)
        # The first transaction of a new broker makes its transaction log, which takes a while.
        announcer.init_transactions(max(_FENCE_S, kafka.timeout_s))
        lineage = read_lineage(connection.broker, topics, kafka.timeout_s)
        if lineage.newer:
            raise LearnerError(
                f"{topics.versions} at {connection.broker.address} holds {lineage.newer} records of a newer release: "
                "go on with that one; this one would take the run for another than it is."
            )
        samples_id = topic_id(connection.broker, topics.samples, kafka.timeout_s)
        _check_topic(connection, topics, lineage, samples_id, kafka.timeout_s)
        claim = _claim(config, run, lineage, samples_id)
        where = announcer.send_and_wait(topics.versions, claim.encode(), key=run, timeout=kafka.timeout_s)
        lineage.note(claim)
        watched = LogReader(
            connection.broker, topics.versions, start={(topics.versions, 0): max(0, where.offset)}, partitions=[0]
        )
        stack.callback(watched.close)
        yield Links(
            connection=connection,
            topics=topics,
            store=store,
            producer=producer,
            publisher=Publisher(store, announcer, topics),
            lineage=lineage,
            epoch=claim.epoch,
            watch=TakeOver(watched, run, claim.epoch),
            timeout_s=kafka.timeout_s,
        )


def this_platform() -> str:
    """What the same steps give the same bits on."""
    libraries = ", ".join(f"{name} {installed(name)}" for name in ("torch", "numpy"))
    return f"{platform.machine()} {platform.system()}, Python {platform.python_version()}, {libraries}"


def _claim(config: PipelineConfig, run: str, lineage: Lineage, samples_id: str) -> ModelVersionRecord:
    return ModelVersionRecord(
        run=run,
        epoch=max(0, lineage.epoch) + 1,
        number=max(0, lineage.number),
        key="",
        size=0,
        sha256="",
        created_ms=int(time.time() * 1000),
        kind="claim",
        platform=this_platform(),
        samples_id=samples_id,
        config_json=json.dumps(to_dict(config)),
    )


def _check_topic(connection: Connection, topics: Topics, lineage: Lineage, samples_id: str, timeout: float) -> None:
    """The offsets of the journal mean the records of one topic, not of another of the same name."""
    newest = lineage.newest
    if newest is None:
        return
    advice = "the journal's offsets mean other records now; start a new run, or bring the old topic back"
    claimed = [claim.samples_id for claim in lineage.claims.values() if claim.samples_id]
    if claimed and samples_id and claimed[-1] != samples_id:
        raise TopicReplacedError(
            f"{topics.samples} at {connection.broker.address} was deleted and made again (its id is {samples_id}, run "
            f"{topics.run} was made of {claimed[-1]}): {advice}."
        )
    with LogReader(connection.broker, topics.samples) as reader:
        ends = {place[1]: end for place, end in reader.end_offsets(timeout).items()}
    for source, position in lineage.positions(newest.number).items():
        if source != COMMANDS and position > ends.get(source, 0):
            raise TopicReplacedError(
                f"{topics.samples}[{source}] at {connection.broker.address} ends at offset {ends.get(source, 0)}, but "
                f"version {newest.version} was made of the records before offset {position}: {advice}."
            )
