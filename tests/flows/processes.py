"""The roles as processes, the way users start them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.broker import BrokerSettings, LogReader, Topics
from pipeline.config import PipelineConfig, load_config
from pipeline.learner.durable.checkpoint import load_checkpoint, saved_checkpoints
from pipeline.learner.durable.run_folder import RunFolder
from pipeline.services import Services
from pipeline.wire import Heartbeat
from tests.waiting import wait_until

NAMESPACE = "test"


def overrides(services: Services, run: str, saves: Path) -> list[str]:
    return [f"services.folder={services.folder}", f"namespace={NAMESPACE}", f"run={run}", f"saves={saves}"]


def config_of(services: Services, run: str, saves: Path, *more: str) -> PipelineConfig:
    return load_config([*overrides(services, run, saves), *more])


@contextmanager
def role(name: str, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """One process; ended with SIGTERM when the block is left, if it still runs."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", f"pipeline.{name}", *arguments], stdout=file, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def last_state(saves: Path, run: str) -> dict[str, Any]:
    """What the newest checkpoint of a run says."""
    newest = saved_checkpoints(RunFolder(str(saves), run).checkpoints)[0]
    return dict(load_checkpoint(newest.path).state)


class Watcher:
    """What a run's heartbeats say."""

    def __init__(self, services: Services, run: str) -> None:
        self.topics = Topics(NAMESPACE, run)
        self.settings = BrokerSettings(services.bootstrap_servers)
        self._reader = LogReader(self.settings, [self.topics.progress, self.topics.heartbeats], open_timeout=60.0)
        self.learner: Heartbeat | None = None
        self.actors: dict[str, Heartbeat] = {}
        self.acted_as: dict[str, set[str]] = {}

    def look(self) -> None:
        for record in self._reader.poll(1000, 0.1):
            beat = Heartbeat.decode(record.value or b"")
            if beat.role == "learner":
                self.learner = beat
            else:
                self.actors[beat.node] = beat
                self.acted_as.setdefault(beat.node, set()).add(beat.session)

    @property
    def accepted(self) -> int:
        return 0 if self.learner is None else self.learner.transitions

    @property
    def version(self) -> int:
        return -1 if self.learner is None else self.learner.version_number

    def wait(self, condition: Any, what: str, timeout: float = 90.0) -> None:
        def holds() -> bool:
            self.look()
            return bool(condition())

        wait_until(holds, what, timeout)

    def close(self) -> None:
        self._reader.close()
