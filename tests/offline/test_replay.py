"""`pipeline replay` over a run on a real Kafka and MinIO, whose learner was killed and whose clients came and went."""

import dataclasses
import json
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pytest
from confluent_kafka.admin import AdminClient

from pipeline.broker import LogReader, Producer, Record, TopicSpec, ensure_topics
from pipeline.cli import main
from pipeline.environment import read_layout
from pipeline.learner.durable.checkpoint import load_checkpoint, saved_checkpoints
from pipeline.learner.durable.run_folder import RunFolder
from pipeline.services import Services
from pipeline.weights import Lineage, read_lineage
from pipeline.wire import decode_chunk
from tests.flows.processes import NAMESPACE, Watcher, config_of, overrides, role

pytestmark = pytest.mark.timeout(400)

RUN = "replayed"
SMALL = [
    "algorithm.learning_starts=300",
    "algorithm.updates_per_version=40",
    "algorithm.hidden=[32]",
    "environment.envs=4",
    "learner.checkpoint_every=5",
    "learner.keep_checkpoints=100",
    "client.chunk_steps=64",
]


@dataclass(frozen=True)
class Recorded:
    """A run that is over."""

    services: Services
    saves: Path
    watcher: Watcher
    lineage: Lineage

    def replay(self, action: str, *more: str) -> int:
        return main(["replay", action, *overrides(self.services, RUN, self.saves), "log_level=warning", *more])


@pytest.fixture(scope="module")
def recorded(local_services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """Three epochs: the first learner is killed with -9, the second ends in good order; one client of three dies."""
    folder = tmp_path_factory.mktemp("replay")
    common = [*overrides(local_services, RUN, folder / "saves"), *SMALL, "kafka.timeout_s=60"]
    watcher = Watcher(local_services, RUN)

    def fed(actor: str) -> bool:
        """Whether chunks of this actor are on the log; the versions after the next are made of them too."""
        return actor in watcher.actors and watcher.actors[actor].transitions >= 200

    def go_on(epoch: int, more: int) -> None:
        """Wait for so many more versions than the last learner announced."""
        newest = read_lineage(watcher.settings, watcher.topics, 30.0).number

        def there() -> bool:
            beat = watcher.learner
            return beat is not None and beat.version_epoch == epoch and beat.version_number >= newest + more

        watcher.wait(there, f"{more} versions of epoch {epoch}", timeout=150.0)

    with role("client", folder / "a.log", *common, "client.actor=a"):
        with (
            role("learner", folder / "one.log", *common) as learner,
            role("client", folder / "b.log", *common, "client.actor=b") as b,
            role("telemetry", folder / "t.log", *common, "telemetry.update_s=0.2"),
        ):
            watcher.wait(lambda: watcher.version >= 5 and fed("a") and fed("b"), "version 5, two actors")
            go_on(epoch=1, more=3)
            b.send_signal(signal.SIGKILL)
            learner.send_signal(signal.SIGKILL)
            learner.wait()
        with (
            role("learner", folder / "two.log", *common),
            role("client", folder / "c.log", *common, "client.actor=c"),
        ):
            go_on(epoch=2, more=5)
            watcher.wait(lambda: fed("c"), "c takes part")
            go_on(epoch=2, more=3)
        with role("learner", folder / "three.log", *common) as last:
            go_on(epoch=3, more=4)
    assert last.returncode == 0, (folder / "three.log").read_text()
    lineage = read_lineage(watcher.settings, watcher.topics, 30.0)
    yield Recorded(local_services, folder / "saves", watcher, lineage)
    watcher.close()


@pytest.fixture(autouse=True)
def groups_are_left_alone(recorded: Recorded) -> Iterator[None]:
    yield
    admin = AdminClient({"bootstrap.servers": recorded.services.bootstrap_servers})
    assert admin.list_consumer_groups().result(30.0).valid == []


def test_ls(recorded: Recorded, capsys: pytest.CaptureFixture[str]):
    assert main(["replay", "ls", f"services.folder={recorded.services.folder}", f"namespace={NAMESPACE}"]) == 0
    listed = capsys.readouterr().out
    number = recorded.lineage.number
    assert re.search(rf"^{RUN} +running +dqn +CartPole-v1 .* 3 +0\.\.{number} ", listed, re.MULTILINE), listed
    assert recorded.replay("ls", "replay.versions=3..5") == 0
    listed = capsys.readouterr().out
    assert re.findall(r"^ *1\.(\d+) ", listed, re.MULTILINE) == ["3", "4", "5"]
    assert recorded.replay("ls", "replay.json=true") == 0
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [item["kind"] for item in items]
    assert kinds.count("version") == number + 1 and kinds.count("epoch") == 3
    counters = recorded.lineage.journal(number)
    assert counters is not None
    assert items[-1]["accepted"] == counters.counters.accepted


@pytest.mark.parametrize(
    "topic", ["samples", "episodes", "versions", "heartbeats", "progress", "telemetry", "commands", "dead-letters"]
)
def test_show(recorded: Recorded, topic: str, capsys: pytest.CaptureFixture[str]):
    """Every record is a line, whatever the topic, and JSON says the same places."""
    assert recorded.replay("show", f"replay.topic={topic}") == 0
    lines = capsys.readouterr().out.splitlines()
    name = getattr(recorded.watcher.topics, topic.replace("-", "_"))
    with LogReader(recorded.watcher.settings, name) as reader:
        places = sorted((record.partition, record.offset) for record in reader.read_to_end(30.0))
    found = [tuple(map(int, re.findall(r"\[(\d+)\]@(\d+) ", line)[0])) for line in lines]
    assert sorted(found) == places
    assert not any("refused" in line for line in lines)
    assert recorded.replay("show", f"replay.topic={topic}", "replay.json=true", "replay.limit=5") == 0
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(item["partition"], item["offset"]) for item in items] == found[:5]


def test_show_the_samples_of_a_version(recorded: Recorded, capsys: pytest.CaptureFixture[str]):
    number = recorded.lineage.number // 2
    begin, end = recorded.lineage.positions(number - 1), recorded.lineage.positions(number)
    assert recorded.replay("show", f"replay.versions={number}") == 0
    lines = capsys.readouterr().out.splitlines()
    found = sorted(tuple(map(int, re.findall(r"\[(\d+)\]@(\d+) ", line)[0])) for line in lines)
    assert found == [(p, offset) for p in sorted(end) if p >= 0 for offset in range(begin[p], end[p])]
    assert found


def test_what_is_exported_is_what_the_learner_counted(recorded: Recorded, capsys: pytest.CaptureFixture[str]):
    """DuckDB's counts and sums are those of the newest version's journal, and of the last checkpoint."""
    assert recorded.replay("export") == 0
    assert "say the same" in capsys.readouterr().out
    path = recorded.saves / RUN / "export.parquet"
    newest = recorded.lineage.newest
    assert newest is not None
    journal = recorded.lineage.journal(newest.number)
    assert journal is not None
    [(rows, rewards, chunks, actors)] = duckdb.sql(
        f"select count(*), sum(reward), count(distinct (partition, \"offset\")), count(distinct actor) from '{path}'"
    ).fetchall()
    assert rows == newest.transitions
    assert rewards == journal.counters.reward_sum
    assert chunks == journal.counters.accepted
    assert actors == 3
    [(duplicates,)] = duckdb.sql(
        f"select count(*) - count(distinct (actor, session, environment, episode, step)) from '{path}'"
    ).fetchall()
    assert duplicates == 0
    broken = duckdb.sql(
        f"""select count(*) from '{path}' one join '{path}' two using (actor, session, environment, episode)
        where two.step = one.step + 1 and two.observation != one.next_observation"""
    ).fetchall()
    assert broken == [(0,)]
    saved = saved_checkpoints(RunFolder(str(recorded.saves), RUN).checkpoints)
    for checkpoint in saved:
        counts = load_checkpoint(checkpoint.path).state["accounting"]
        if counts["offsets_advanced"] == journal.counters.offsets_advanced:
            assert (rows, rewards) == (counts["accepted_transitions"], counts["reward_sum"])


def test_a_range_of_versions_is_exported(recorded: Recorded, capsys: pytest.CaptureFixture[str]):
    first, last = 4, recorded.lineage.number - 2
    path = recorded.saves / "range.parquet"
    assert recorded.replay("export", f"replay.versions={first}..{last}", f"replay.out={path}") == 0
    assert "say the same" in capsys.readouterr().out
    before, end = recorded.lineage.find(first - 1), recorded.lineage.find(last)
    assert before is not None and end is not None
    [(rows, lowest, highest)] = duckdb.sql(
        f"select count(*), min(made_number), max(made_number) from '{path}'"
    ).fetchall()
    assert rows == end.transitions - before.transitions
    assert first <= lowest and highest <= last


def test_every_version_is_identical_before_across_and_after_the_kill(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
):
    assert recorded.replay("verify") == 0, capsys.readouterr().out
    assert capsys.readouterr().out == f"versions 0 … {recorded.lineage.number}: identical\n"
    assert {record.epoch for record in recorded.lineage.versions} == {1, 2, 3}


def test_a_range_is_verified_from_a_checkpoint(recorded: Recorded, capsys: pytest.CaptureFixture[str]):
    last = recorded.lineage.number
    assert recorded.replay("verify", f"replay.versions={last - 2}..") == 0
    assert capsys.readouterr().out == f"versions {last - 2} … {last}: identical\n"


def test_one_altered_byte_in_a_copied_topic_is_found(recorded: Recorded, capsys: pytest.CaptureFixture[str]):
    """The first version that can have learned of it is the one that is named, or one soon after."""
    lineage = recorded.lineage
    number = lineage.number // 2
    partition, offset = next((p, o) for p, o in lineage.positions(number).items() if p >= 0 and o > 0)
    layout = read_layout(config_of(recorded.services, RUN, recorded.saves, *SMALL).environment)

    def alter(record: Record) -> Record:
        if (record.partition, record.offset) != (partition, offset - 1):
            return record
        value = bytearray(record.value)
        observations = decode_chunk(record.value, layout).columns["observation"]
        # The sign of the first number of the first observation.
        value[value.find(np.ascontiguousarray(observations).tobytes()) + 3] ^= 0x80
        return dataclasses.replace(record, value=bytes(value))

    copy = copied(recorded, "altered", alter)
    assert recorded.replay("verify", f"replay.samples_topic={copy}") == 1
    said = capsys.readouterr().out
    made_of_it = next(v.number for v in lineage.versions if lineage.positions(v.number).get(partition, 0) >= offset)
    differs = re.search(r"version (\d+) differs: tensor \S+", said)
    other = re.search(r"version (\d+): the log holds other samples than it was made of: byte for byte", said)
    # Which of the two it is depends on whether it was drawn for an update at once, later, or never.
    assert differs or other, said
    assert made_of_it in [int(match[1]) for match in (differs, other) if match], said
    assert re.search(rf"versions 0 … ({made_of_it - 1}|\d+): identical", said), said


def test_an_unaltered_copy_is_identical(recorded: Recorded, capsys: pytest.CaptureFixture[str]):
    copy = copied(recorded, "same", lambda record: record)
    assert recorded.replay("verify", f"replay.samples_topic={copy}", "replay.versions=..6") == 0
    assert capsys.readouterr().out == "versions 0 … 6: identical\n"


def test_nonsense_is_refused_in_a_sentence(recorded: Recorded, capsys: pytest.CaptureFixture[str]):
    assert recorded.replay("export", "replay.versions=9000..") == 1
    assert "no version in 9000.." in capsys.readouterr().err
    assert recorded.replay("verify", "replay.offsets=1..2") == 1
    assert "replay.versions" in capsys.readouterr().err
    assert recorded.replay("show", "replay.time=noon..") == 1
    assert "ISO 8601" in capsys.readouterr().err
    assert main(["replay", "ls", f"services.folder={recorded.services.folder}", "run=nobody"]) == 1
    assert "There is no run 'nobody'" in capsys.readouterr().err


def copied(recorded: Recorded, name: str, change: Callable[[Record], Record]) -> str:
    """A copy of the samples topic with the same partitions and offsets; its name."""
    settings, samples = recorded.watcher.settings, recorded.watcher.topics.samples
    topic = f"{NAMESPACE}.{name}.samples"
    with LogReader(settings, samples) as reader:
        records = reader.read_to_end(60.0)
        partitions = len(reader.positions())
    ensure_topics(settings, [TopicSpec(topic, partitions, {"max.message.bytes": "2097152"})])
    producer = Producer(settings)
    for record in map(change, sorted(records, key=lambda record: (record.partition, record.offset))):
        producer.send(topic, record.value, record.key, record.headers, record.partition)
    assert producer.flush(60.0) == 0
    producer.close()
    return topic
