"""The telemetry process on a broker: what it writes, and what it does not do again after a restart."""

import csv
import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.broker import BrokerSettings, LogReader, Producer, Topics, ensure_topics, publish_manifest
from pipeline.config import PipelineConfig, load_config
from pipeline.services import Services
from pipeline.telemetry.node import TelemetryNode
from pipeline.wire import Command, RunManifest, TelemetryWindow, encode_episode
from tests.telemetry.made import episode
from tests.waiting import wait_until

WINDOW = 5


@pytest.fixture(params=["embedded", "local"])
def services(request: pytest.FixtureRequest) -> Services:
    """Broker and store, one of the two kinds."""
    return request.getfixturevalue(f"{request.param}_services")


class Run:
    """A run without a learner: its topics, and episodes that the test sends."""

    def __init__(self, services: Services, saves: Path) -> None:
        self.services, self.saves = services, saves
        self.topics = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
        self.settings = BrokerSettings(services.bootstrap_servers)
        ensure_topics(self.settings, self.topics.specs(), replication=1)
        self._producer = Producer(self.settings)
        manifest = RunManifest("run", self.topics.namespace, 1, 1, "{}", "{}", (), "e", "b", False, "dqn", "env")
        publish_manifest(self._producer, self.topics, manifest)
        self._sent = 0

    def config(self, *more: str) -> PipelineConfig:
        return load_config(
            [
                f"services.folder={self.services.folder}",
                f"namespace={self.topics.namespace}",
                f"saves={self.saves}",
                f"telemetry.window_episodes={WINDOW}",
                "telemetry.update_s=0.05",
                *more,
            ]
        )

    def play(self, total_return: float, version: int, episodes: int = WINDOW, twice: bool = False) -> None:
        """Some episodes of one version; the last of them may be sent twice."""
        for _ in range(episodes):
            value = encode_episode(episode(self._sent, total_return, version))
            self._producer.send(self.topics.episodes, value, key="a")
            self._sent += 1
        if twice:
            self._producer.send(self.topics.episodes, value, key="a")
        assert self._producer.flush() == 0

    def results(self) -> list[dict[str, str]]:
        path = self.saves / "run" / "results.csv"
        if not path.exists():
            return []
        with path.open(newline="") as file:
            return list(csv.DictReader(file))

    def commands(self) -> list[tuple[str, int, float]]:
        with LogReader(self.settings, self.topics.commands) as reader:
            commands = [Command.decode(record.value) for record in reader.read_to_end()]
        assert all(command.kind == "save_best" and command.issuer == "telemetry" for command in commands)
        arguments = [json.loads(command.argument_json) for command in commands]
        assert all(each["epoch"] == 1 for each in arguments)
        return [(c.id, a["number"], a["score"]) for c, a in zip(commands, arguments, strict=True)]

    def windows(self) -> list[TelemetryWindow]:
        with LogReader(self.settings, self.topics.telemetry) as reader:
            return [TelemetryWindow.decode(record.value) for record in reader.read_to_end()]

    def close(self) -> None:
        self._producer.close()


@pytest.fixture
def run(services: Services, tmp_path: Path) -> Iterator[Run]:
    made = Run(services, tmp_path)
    yield made
    made.close()


@contextmanager
def telemetry(config: PipelineConfig) -> Iterator[TelemetryNode]:
    node, stop = TelemetryNode(config), threading.Event()
    thread = threading.Thread(target=node.run, args=[stop.is_set])
    thread.start()
    try:
        yield node
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


def test_windows_results_and_the_best_version(run: Run):
    """Results hold each episode once; the learner is told of the version that scored, not of the newest."""
    run.play(1.0, version=1, episodes=WINDOW - 1)
    with telemetry(run.config()) as node:
        wait_until(lambda: len(run.results()) == WINDOW - 1, "the first episodes in the results")
        assert run.commands() == []
        run.play(9.0, version=2, twice=True)
        run.play(2.0, version=3)
        wait_until(lambda: len(run.results()) == 3 * WINDOW - 1, "all episodes in the results")
        wait_until(lambda: len(run.commands()) > 0, "the command")
    assert node.duplicates.found == 1
    assert [float(line["total_return"]) for line in run.results()].count(9.0) == WINDOW
    assert run.commands()[-1] == ("best-run-1.2", 2, 9.0)
    assert (run.saves / "run" / "telemetry.png").stat().st_size > 1_000
    last = run.windows()[-1]
    assert (last.episodes, last.mean_return, last.version_number) == (3 * WINDOW - 1, 2.0, 3)


def test_a_restart_repeats_nothing(run: Run):
    """Also where the run folder was lost; what came in between is caught up with."""
    run.play(3.0, version=1)
    with telemetry(run.config()) as first:
        wait_until(lambda: run.commands() == [("best-run-1.1", 1, 3.0)], "the command")
    run.play(5.0, version=2)
    run.play(4.0, version=3)
    results = run.results()
    (run.saves / "run" / "results.csv").unlink()
    with telemetry(run.config()) as second:
        wait_until(lambda: len(run.results()) == 3 * WINDOW, "all episodes in the results")
        wait_until(lambda: len(run.commands()) == 2, "the second command")
    assert run.commands()[1:] == [("best-run-1.2", 2, 5.0)]
    with telemetry(run.config()) as third:
        wait_until(lambda: third.statistics.episodes == 3 * WINDOW, "all episodes")
    assert len(run.commands()) == 2
    assert run.results()[: len(results)] == results
    assert second.statistics.history[: len(first.statistics.history)] == first.statistics.history
    assert third.statistics.history == second.statistics.history


def test_it_can_be_told_not_to(run: Run):
    run.play(3.0, version=1)
    with telemetry(run.config("telemetry.save_best=false")):
        wait_until(lambda: len(run.windows()) > 0, "a window")
    assert run.commands() == []


def test_a_disk_that_refuses_ends_nothing(run: Run, caplog: pytest.LogCaptureFixture):
    """Windows and commands go on; it is said once."""
    (run.saves / "run").write_text("a file where the folder should be")
    run.play(3.0, version=1)
    with telemetry(run.config(f"telemetry.figure={run.saves}/run/figure.png")):
        wait_until(lambda: len(run.commands()) == 1, "the command")
        run.play(4.0, version=1)
        wait_until(lambda: run.windows()[-1].mean_return == 4.0, "the last window")
    assert [record.levelname for record in caplog.records if "cannot be written" in record.message].count("ERROR") == 1
