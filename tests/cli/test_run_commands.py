"""`pipeline quicksave`, `pipeline set` and `pipeline cleanup`, as a user types them."""

import json
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest

from pipeline.broker import BrokerSettings, Producer, Topics, ensure_topics, publish_manifest
from pipeline.cli import main
from pipeline.experience import Version
from pipeline.learner.durable.run_folder import RunFolder
from pipeline.services import Services
from pipeline.weights import ObjectStore, Publisher, StoreSettings, weights_prefix
from pipeline.wire import RunManifest
from tests.broker.test_commands import Learner
from tests.waiting import wait_until
from tests.weights.made import version


class Run:
    """A run in a fresh namespace and bucket, with its manifest; no learner."""

    def __init__(self, services: Services, saves: Path) -> None:
        self.topics = Topics(f"t{uuid.uuid4().hex[:8]}", "run")
        self.settings = BrokerSettings(services.bootstrap_servers)
        ensure_topics(self.settings, self.topics.specs(), replication=1)
        bucket = f"b-{uuid.uuid4().hex[:8]}"
        self.store = ObjectStore(
            StoreSettings(services.endpoint, services.addresses.access_key, services.addresses.secret_key, bucket)
        )
        self.store.ensure_bucket()
        self.folder = RunFolder(str(saves), "run")
        manifest = RunManifest(
            "run", self.topics.namespace, 1, 1, "{}", "{}", (), services.endpoint, bucket, False, "dqn", "env"
        )
        with Producer(self.settings) as producer:
            publish_manifest(producer, self.topics, manifest)
        self.words = [
            f"services.folder={services.folder}",
            f"namespace={self.topics.namespace}",
            f"store.bucket={bucket}",
            f"saves={saves}",
        ]

    def publish(self, versions: int, *pinned: Version, first: int = 0) -> None:
        with Producer(self.settings) as producer:
            publisher = Publisher(self.store, producer, self.topics)
            for number in range(first, versions):
                publisher.publish(version(number), {"w": np.full(3, number, np.float32)})
            for each in pinned:
                publisher.pin(each, "best")

    def numbers(self) -> list[int]:
        keys = self.store.list(weights_prefix("run"))
        return sorted(int(key.rpartition("-")[2].partition(".")[0]) for key in keys)


@pytest.fixture
def run(embedded_services: Services, tmp_path: Path) -> Run:
    return Run(embedded_services, tmp_path)


def test_quicksave_prints_the_folder(run: Run, capsys: pytest.CaptureFixture[str]):
    """Of the newest run, if none is named."""
    learner = Learner(run.settings, run.topics)
    learner.start()
    try:
        for words in (["run=run"], []):
            assert main(["quicksave", *run.words, *words, "command.timeout_s=20"]) == 0
            assert capsys.readouterr().out == "as the test says\n"
    finally:
        learner.end()
    assert [command.kind for command in learner.commands] == ["quicksave", "quicksave"]
    assert len({command.id for command in learner.commands}) == 2


def test_quicksave_without_a_learner_says_so(run: Run, capsys: pytest.CaptureFixture[str]):
    assert main(["quicksave", *run.words, "run=run", "command.timeout_s=1"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no learner of run run was heard of" in captured.err


def test_set_sends_what_was_named_and_prints_the_answer(run: Run, capsys: pytest.CaptureFixture[str]):
    """Values as the settings' types have them; the other words are configuration."""
    learner = Learner(run.settings, run.topics)
    learner.start()
    try:
        words = ["run=run", "algorithm.lr=1e-4", "algorithm.exploration.end=0", "algorithm.batch_size=64"]
        assert main(["set", *run.words, *words, "command.timeout_s=20", "environment=acrobot"]) == 0
        assert capsys.readouterr().out == "as the test says\n"
    finally:
        learner.end()
    [command] = learner.commands
    assert (command.kind, command.issuer) == ("set", "pipeline set")
    changes = {"algorithm.lr": 1e-4, "algorithm.exploration.end": 0.0, "algorithm.batch_size": 64}
    assert json.loads(command.argument_json) == changes


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Which setting?"),
        (["learner.seed=3"], "Which setting?"),
        (["algorithm.lrr=1"], "Did you mean 'algorithm.lr'"),
        (["algorithm.lr=fast"], "algorithm.lr"),
        (["algorithm.exploration={end: 0.1}"], "group of settings"),
        (["algorithm.exploration.end=2"], "from 0 to 1"),
    ],
)
def test_set_refuses_nonsense_before_it_asks_anybody(words: list[str], says: str, capsys: pytest.CaptureFixture[str]):
    assert main(["set", "kafka.bootstrap_servers=127.0.0.1:1", "services=external", *words]) == 1
    assert says in capsys.readouterr().err


def test_cleanup_removes_what_nothing_needs(run: Run, capsys: pytest.CaptureFixture[str]):
    """The newest, every n-th, pinned ones, and those of checkpoints and manual saves stay."""
    run.publish(30, Version(1, 3))
    (run.folder.checkpoints / "000001-000000011-000000000400").mkdir(parents=True)
    run.folder.manual_save_of(Version(1, 17), "id").mkdir(parents=True)
    words = ["cleanup", *run.words, "run=run", "cleanup.keep_last=2", "cleanup.keep_every=10"]
    assert main(words) == 0
    assert run.numbers() == [0, 3, 10, 11, 17, 20, 28, 29]
    assert capsys.readouterr().out == "removed 22 versions: 1.1 … 1.27\n"
    assert main(words) == 0
    assert capsys.readouterr().out == "nothing to remove\n"


def test_cleanup_that_repeats_survives_what_goes_wrong(run: Run, tmp_path: Path):
    """There is nothing to go by at first; then there is, and more comes."""
    words = [*run.words, "run=run", "cleanup.keep_last=2", "cleanup.keep_every=0", "cleanup.every_s=0.05"]
    log = tmp_path / "cleanup.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.cli", "cleanup", *words], stdout=file, stderr=subprocess.STDOUT
        )
    try:
        wait_until(lambda: b"is not here" in log.read_bytes(), "it says what it lacks", 60.0)
        run.publish(5)
        run.folder.checkpoints.mkdir(parents=True)
        wait_until(lambda: run.numbers() == [3, 4], "it removes what is old", 60.0)
        run.publish(8, first=5)
        wait_until(lambda: run.numbers() == [6, 7], "and does so again", 60.0)
        process.terminate()
        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def test_cleanup_knows_what_it_must_not_guess(run: Run, capsys: pytest.CaptureFixture[str]):
    run.publish(5)
    assert main(["cleanup", *run.words, "cleanup.keep_last=1"]) == 1
    assert "Give run=NAME" in capsys.readouterr().err
    assert main(["cleanup", *run.words, "run=run", "cleanup.keep_last=1"]) == 1
    assert "nothing is removed" in capsys.readouterr().err
    assert run.numbers() == [0, 1, 2, 3, 4]
