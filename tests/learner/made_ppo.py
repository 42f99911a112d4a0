"""Clients of synchronous training in memory: chunks and records as their uplinks write them."""

from pathlib import Path

import numpy as np

from pipeline.broker import Record
from pipeline.config import load_config
from pipeline.experience import Chunk, Segments, Version
from pipeline.learner import PPOTrainingNode
from pipeline.learner.members.attendance import Attendance
from pipeline.learner.members.roster import BEGIN, TAKE, join, lost
from pipeline.wire import Heartbeat, JournalEvent, RecordHeaders, encode_chunk, fingerprint
from tests.learner import made

RUN = made.RUN


def session_of(actor: str) -> str:
    """32 hexadecimal characters for a name of at most 16."""
    return actor.encode().hex().ljust(32, "0")


def chunk_of(
    actor: str,
    number: int,
    steps: int = 8,
    *,
    first: int = 0,
    final: bool = False,
    ending: int = 0,
    environments: int = 1,
    episode: int = 0,
) -> Chunk:
    """Random CartPole steps under a version: one segment of ``steps`` in each sub-environment."""
    random = np.random.default_rng([*actor.encode(), number, first, episode])
    count = steps * environments
    return Chunk(
        version=Version(1, number),
        segments=Segments(
            environment=np.arange(environments, dtype=np.int32),
            episode=np.arange(environments, dtype=np.int64) + episode,
            first_step=np.full(environments, first, np.int32),
            length=np.full(environments, steps, np.int32),
            ending=np.full(environments, ending, np.uint8),
        ),
        columns={
            "observation": random.standard_normal((count + environments, 4)).astype(np.float32),
            "action": random.integers(0, 2, count),
            "reward": random.standard_normal(count).astype(np.float32),
            "log_prob": np.log(random.uniform(0.3, 0.7, count)).astype(np.float32),
        },
        final=final,
    )


def headers_of(actor: str, sequence: int, chunk: Chunk) -> RecordHeaders:
    return RecordHeaders(RUN, actor, session_of(actor), sequence, chunk.version, fingerprint("chunk"), chunk.steps)


def record_of(
    node: PPOTrainingNode, actor: str, sequence: int, chunk: Chunk, offset: int, partition: int = 0
) -> Record:
    """A record of the samples topic, as an uplink writes it."""
    fields = headers_of(actor, sequence, chunk).to_kafka()
    value = encode_chunk(chunk, node.layout)
    return Record(node.topics.samples, partition, offset, 0, actor.encode(), value, fields)


def node_in(folder: Path, *overrides: str) -> PPOTrainingNode:
    """A new node at the beginning of its run, with nothing behind it."""
    config = load_config(
        [
            f"saves={folder}",
            f"run={RUN}",
            "algorithm=ppo",
            "algorithm.hidden=[8]",
            "algorithm.lr=0.01",
            "algorithm.ppo.epochs=2",
            "algorithm.ppo.minibatch_size=16",
            "algorithm.sync.clients=3",
            "learner.heartbeat_s=0.1",
            "learner.checkpoint_every=0",
            *overrides,
        ]
    )
    node = PPOTrainingNode(config)
    made.equip(node)
    return node


def step(node: PPOTrainingNode, *events: JournalEvent) -> None:
    """Apply events, and after each of them the steps that are due, as the live loop does."""
    for event in events:
        node.note_event(event)
        settle(node)


def feed(node: PPOTrainingNode, *records: Record) -> None:
    """Apply records, and after each of them the steps that are due, as the live loop does."""
    for record in records:
        node.apply(node.examiner().examine(record))
        settle(node)


def settle(node: PPOTrainingNode) -> None:
    node._train_while_due()
    if node.cut_due():
        node.publish()


class Room:
    """Heartbeats to an attendance, at a time that the test sets.

    Attributes:
        now: seconds.
    """

    def __init__(self, attendance: Attendance, learner: str) -> None:
        self.attendance = attendance
        self.now = 1000.0
        self._learner = learner
        self._beats = 0

    def beat(self, actor: str, transitions: int = 0, *, joins: bool = True, session: str = "", run: str = RUN) -> None:
        """An actor's heartbeat."""
        self._send("actor", actor, session or session_of(actor), transitions, joins, run)

    def own(self) -> None:
        """One of the learner's comes back."""
        self._send("learner", "learner", self._learner, 0, False, RUN)

    def pass_time(
        self, seconds: float, *actors: str, own: bool = True, transitions: int = 0, step: float = 0.1
    ) -> None:
        """Let time go by, with heartbeats of the learner and these actors."""
        for _ in range(round(seconds / step)):
            self.now += step
            if own:
                self.own()
            for actor in actors:
                self.beat(actor, transitions)

    def _send(self, role: str, node: str, session: str, transitions: int, joins: bool, run: str) -> None:
        self._beats += 1
        beat = Heartbeat(run, node, role, session, self._beats, 0, transitions=transitions, joins=joins)
        self.attendance.heard(beat, self.now)


Item = Record | JournalEvent


class Tape:
    """All that a learner applied, in order: for others to apply again.

    Attributes:
        items: records and events.
        cut_at: by version number, how many items made it and the versions before.
    """

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.cut_at: dict[int, int] = {}

    @property
    def log(self) -> made.Log:
        """The records, by partition."""
        partitions: dict[int, list[Record]] = {0: [], 1: []}
        for item in self.items:
            if isinstance(item, Record):
                partitions[item.partition].append(item)
        return made.Log(partitions)

    def play(self, node: PPOTrainingNode, first: int = 0, last: int | None = None) -> None:
        """Apply the items from ``first`` to before ``last``."""
        for item in self.items[first:last]:
            if isinstance(item, Record):
                feed(node, item)
            else:
                step(node, item)


class Recorder:
    """Clients that act as the learner's versions and events have it; what happens is put on a tape.

    Each client's rollout is two chunks; the second is final. Clients a and c write to partition 0, others to 1.
    """

    def __init__(self, node: PPOTrainingNode) -> None:
        self.node = node
        self.tape = Tape()
        self._offsets = [0, 0]
        self._sequences: dict[str, int] = {}
        self._sent: dict[tuple[str, int], int] = {}

    def begin(self, *actors: str) -> None:
        """Version 0, registration, version 1."""
        node = self.node
        node.positions = {0: 0, 1: 0}
        node.journal.begin(node.positions)
        node.publish()
        self.tape.cut_at[0] = 0
        for event in (*(join(session_of(actor), actor) for actor in actors), BEGIN):
            self._apply(event)

    def chunk(self, actor: str, number: int | None = None, *, mangled: bool = False) -> None:
        """The actor's next chunk, under the version in force or another one."""
        number = self.node.version.number if number is None else number
        sent = self._sent.get((actor, number), 0)
        self._sent[actor, number] = sent + 1
        sequence = self._sequences.get(actor, 0)
        self._sequences[actor] = sequence + 1
        chunk = chunk_of(actor, number, first=8 * sent, final=sent % 2 == 1, environments=2, episode=2 * number)
        partition = ord(actor) % 2 ^ 1
        record = record_of(self.node, actor, sequence, chunk, self._offsets[partition], partition)
        self._offsets[partition] += 1
        if mangled:
            record.value = record.value[:-3]
        self._apply(record)

    def event(self, kind: str, actor: str) -> None:
        """An event, if it can be now."""
        roster, session = self.node.roster, session_of(actor)
        if kind == "take":
            if roster.arrived and not roster.taken:
                self._apply(TAKE)
        elif (kind == "join") != (session in roster.participants):
            self._apply(join(session, actor) if kind == "join" else lost(session, "as the test says"))

    def _apply(self, item: Item) -> None:
        number = self.node.version.number
        self.tape.items.append(item)
        self.tape.play(self.node, len(self.tape.items) - 1)
        if self.node.version.number > number:
            self.tape.cut_at[self.node.version.number] = len(self.tape.items)
