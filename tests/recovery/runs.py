"""Learners that are killed and started again, and what the world saw of them."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

from pipeline.broker import LogReader, Topics
from pipeline.config import PipelineConfig, load_config
from pipeline.connect import connect
from pipeline.services import Services
from pipeline.weights import Lineage, read_lineage
from pipeline.wire import Journal, JournalCounters
from tests.recovery import learner_under_test
from tests.recovery.checker import judged_to, read_actors, read_learner, troubles
from tests.waiting import wait_until

# A learner's imports take longer than its recovery: a server forks processes that have them already.
_FORKSERVER = get_context("forkserver")
_FORKSERVER.set_forkserver_preload(["pytest", learner_under_test.__name__])

SOAK = os.environ.get("SOAK", "") not in ("", "0")

POINTS = [
    "announce.before:1",  # the claim
    "announce.after:1",
    "rewind.after:1",
    "insert.after:9",
    "train.after:33",
    "put.before:4",
    "put.after:4",
    "stat.before:4",
    "stat.after:4",
    "send-version.after:5",  # in the transaction, not committed
    "announce.before:5",
    "announce.after:5",
    # Of a checkpoint: tensors, state, manifest, the folder, rename, the folder above.
    "fsync.before:1",
    *(f"fsync.after:{number}" for number in range(1, 6)),
    "rename.before:1",
    "rename.after:1",
]
"""Where learners die, one after the other."""


Much = TypeVar("Much")


def soak(full: Much, reduced: Much) -> Much:
    """How much: in full by `make soak`."""
    return full if SOAK else reduced


class Run:
    """One run: its settings, its folder, its learners.

    Args:
        services: broker and store.
        name: of the run.
        folder: for saves, ledgers, logs and traces.
        settings: of every learner.
    """

    def __init__(self, services: Services, name: str, folder: Path, *settings: str, namespace: str = "test") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.folder = folder
        self.common = [
            f"services.folder={services.folder}",
            f"namespace={namespace}",
            f"run={name}",
            f"saves={folder / 'saves'}",
            # Runs of one name in different namespaces share the store.
            f"store.bucket={namespace}",
            "kafka.timeout_s=60",
        ]
        self.settings = [*settings, f"learner.ledger={self.ledger}"]
        self.config: PipelineConfig = load_config([*self.common, *self.settings])
        self.topics = Topics(namespace, name)
        self.broker = connect(self.config).broker
        self.started = 0

    @property
    def ledger(self) -> Path:
        """The learner's."""
        return self.folder / "learner.ledger"

    @property
    def trace(self) -> Path:
        """The points that its learners passed."""
        return self.folder / "trace"

    def start(self, die_at: str = "", *settings: str) -> BaseProcess:
        """Start a learner that will die at this point, or go on."""
        self.started += 1
        overrides = [*self.common, *self.settings, *settings]
        process = _FORKSERVER.Process(
            target=learner_under_test.run_learner,
            args=(overrides, die_at, str(self.trace), str(self.log)),
            daemon=True,
        )
        process.start()
        return process

    @property
    def log(self) -> Path:
        """Of the learner that was started last."""
        return self.folder / f"learner-{self.started}.log"

    @contextmanager
    def learner(self, *settings: str) -> Iterator[BaseProcess]:
        """A learner that is ended with SIGTERM."""
        process = self.start("", *settings)
        log = self.log
        try:
            yield process
        finally:
            process.terminate()
            process.join(60)
            process.kill()
            process.join()
        assert process.exitcode == 0, log.read_text()

    def dies(self, point: str) -> None:
        """Start a learner that dies at this point, and wait until it has."""
        process = self.start(point)
        process.join(120)
        process.kill()
        said = f"{point} was not reached (exit {process.exitcode}):\n{self.log.read_text()}"
        assert process.exitcode == -signal.SIGKILL, said

    def dies_in(self, seconds: float) -> bool:
        """Start a learner and kill it so much later; False if it had come to its end before."""
        process = self.start()
        try:
            self.wait_passed(process, "started.before", 1)
            process.join(seconds)
        finally:
            process.kill()
            process.join()
        assert process.exitcode in (0, -signal.SIGKILL), self.log.read_text()
        return process.exitcode != 0

    def ends(self, timeout: float, *settings: str, status: int = 0) -> str:
        """Start a learner and wait until it ends by itself; what it said."""
        process = self.start("", *settings)
        process.join(timeout)
        process.kill()
        process.join()
        said = self.log.read_text()
        assert process.exitcode == status, said
        return said

    def passes(self, process: BaseProcess, point: str) -> int:
        """How often a learner that runs has passed a traced point."""
        assert process.is_alive(), self.log.read_text()
        return self.trace.read_text().count(f"{process.pid} {point} ") if self.trace.exists() else 0

    def wait_passed(self, process: BaseProcess, point: str, times: int) -> None:
        """Wait until the learner has passed a traced point so often."""
        wait_until(lambda: self.passes(process, point) >= times, f"{point} is passed {times} times", 120.0)

    def lineage(self) -> Lineage:
        """The versions as the world sees them."""
        return read_lineage(self.broker, self.topics, 30.0)

    def sequence(self) -> list[tuple[int, str]]:
        """Number and sha256 of each announced version."""
        return [(version.number, version.sha256) for version in self.lineage().versions]

    def counters(self) -> dict[int, tuple[JournalCounters, int]]:
        """What each announced version's journal sums up to, and its accepted transitions."""
        found = {}
        for version in self.lineage().versions:
            assert version.journal is not None
            found[version.number] = (Journal.decode(version.journal).counters, version.transitions)
        return found

    def end_offsets(self) -> dict[int, int]:
        """End offset of each samples partition."""
        with LogReader(self.broker, self.topics.samples) as reader:
            reader.open(30.0)
            return {partition: end for (_, partition), end in reader.end_offsets(30.0).items()}

    def wait_judged(self, process: BaseProcess, timeout: float = 90.0) -> None:
        """Wait until the learner has judged everything that is on the log now."""
        ends = self.end_offsets()

        def caught_up() -> bool:
            assert process.is_alive(), self.log.read_text()
            judged = judged_to(self.ledger)
            return all(judged.get(partition, 0) >= end for partition, end in ends.items())

        wait_until(caught_up, f"all of {ends} is judged", timeout)

    def check(self, *actors: Path) -> tuple[int, int]:
        """All that was acknowledged is accounted for; how many chunks that is, and how many came twice."""
        said, entries = read_actors(actors), read_learner(self.ledger)
        assert troubles(said, entries, self.counters()) == []
        return len(said.acknowledged), sum(entry.verdict == "duplicate" for entry in entries)


def moments(seed: int, count: int, longest: float) -> list[float]:
    """Seeded random seconds."""
    chosen = random.Random(seed)
    return [chosen.uniform(0.0, longest) for _ in range(count)]


def verify(run: Run) -> str:
    """``pipeline replay verify`` of all versions: what it says; it fails unless all are identical."""
    command = [sys.executable, "-m", "pipeline.cli", "replay", "verify", *run.common]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "identical" in done.stdout
    return done.stdout
