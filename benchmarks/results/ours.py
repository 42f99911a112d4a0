"""Running this pipeline as a user does: services, a learner and a client, each a process of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from benchmarks.results.progress import ALL, EVALUATION_SEED, FIRST, Clock, Progress
from benchmarks.results.rows import Row
from pipeline.broker import LogReader, Record, Topics
from pipeline.config import PipelineConfig, load_config
from pipeline.connect import connect
from pipeline.demo.evaluation import Evaluator
from pipeline.errors import PipelineError
from pipeline.experience import Identity
from pipeline.weights import Follower, ObjectStore
from pipeline.weights.follower import FollowedVersion
from pipeline.wire import RecordHeaders

START_S = 120.0
STALL_S = 300.0
STOP_S = 30.0


def run_ours(row: Row, seed: int, services: Path, saves: Path) -> Progress:
    """Train once with the row's experiment, on services that run already.

    Args:
        row: what is learned.
        seed: of learner and client.
        services: the services' folder.
        saves: where the run's folder is made.

    Raises:
        RuntimeError: a process ended, or nothing came for minutes.
    """
    run = f"{row.name}-{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    common = [
        f"experiment={row.name}",
        f"run={run}",
        "services.kind=local",
        f"services.folder={services}",
        f"saves={saves}",
        # Both are started at once; the client waits for the learner.
        f"kafka.timeout_s={START_S}",
    ]
    config = load_config(common)
    roles = {
        "learner": [f"learner.seed={seed}"],
        "client": ["client.actor=one", f"client.seed={seed}", f"client.first_weights_timeout_s={START_S}"],
    }
    # Made before the clock starts, as the peer's are.
    judge = _Judge(config, seed)
    clock = Clock()
    progress = Progress(row.threshold, row.budget, row.every)
    with _Processes(roles, common, saves / run / "logs") as processes, _Watched(config) as watched:
        heard = time.monotonic()
        while not progress.ended:
            if watched.poll():
                heard = time.monotonic()
            processes.check()
            if time.monotonic() - heard > STALL_S:
                raise RuntimeError(processes.told(f"no transition for {STALL_S:g} s"))
            if progress.due(watched.steps):
                seconds = clock.seconds
                with clock.held(), processes.stopped():
                    judge.evaluate(progress, watched.steps, seconds, watched.newest())
    return progress


class _Judge:
    """Greedy episodes of a version: the same ones for every version of a run."""

    def __init__(self, config: PipelineConfig, seed: int) -> None:
        self._first = Evaluator(config, FIRST, EVALUATION_SEED + 1000 * seed)
        self._others = Evaluator(config, ALL - FIRST, EVALUATION_SEED + 1000 * seed + FIRST)

    def evaluate(self, progress: Progress, steps: int, seconds: float, version: FollowedVersion) -> None:
        """Note how good the version is."""
        first, others = (partial(_mean, evaluator, version) for evaluator in (self._first, self._others))
        progress.evaluate(steps, seconds, first, others)


def _mean(evaluator: Evaluator, version: FollowedVersion) -> float:
    return evaluator.evaluate(version.record, version.data).mean_return


class _Watched:
    """What the run's log says: steps taken, and the newest version."""

    def __init__(self, config: PipelineConfig) -> None:
        connection = connect(config)
        topics = Topics(config.namespace, config.run)
        self._samples = LogReader(connection.broker, [topics.samples], open_timeout=START_S)
        self._follower = Follower(connection.broker, ObjectStore(connection.store), topics, open_timeout=START_S)
        self._version: FollowedVersion | None = None
        self._steps = StepCount()

    def __enter__(self) -> "_Watched":
        return self

    def __exit__(self, *_: object) -> None:
        self._samples.close()
        self._follower.close()

    @property
    def steps(self) -> int:
        """Environment steps of all actors."""
        return self._steps.total

    def poll(self) -> bool:
        """Read on; whether there was something."""
        records = self._samples.poll(1000, 0.05)
        self._steps.note(records)
        return bool(records)

    def newest(self) -> FollowedVersion:
        """The newest version; the first is there before the first step."""
        deadline = time.monotonic() + START_S
        while (found := self._follower.poll(0.2)) is not None or self._version is None:
            self._version = found or self._version
            if time.monotonic() > deadline:
                raise RuntimeError(f"no version could be fetched within {START_S:g} s")
        return self._version


class StepCount:
    """Environment steps on the log. Chunks that were sent twice count once; steps that are still at the actors (less
    than a chunk each) do not count yet.

    Attributes:
        total: steps of all actors.
    """

    def __init__(self) -> None:
        self.total = 0
        self._known: set[Identity] = set()

    def note(self, records: Iterable[Record]) -> None:
        """Count the chunks' steps."""
        for record in records:
            headers = RecordHeaders.from_kafka(record.headers)
            if headers.identity not in self._known:
                self._known.add(headers.identity)
                self.total += headers.count


class _Processes:
    """The roles' processes, each with those that it starts; they end with the block."""

    def __init__(self, roles: dict[str, list[str]], common: list[str], logs: Path) -> None:
        self._roles = roles
        self._common = common
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "_Processes":
        self._logs.mkdir(parents=True, exist_ok=True)
        for role, own in self._roles.items():
            command = [sys.executable, "-m", f"pipeline.{role}", *self._common, *own]
            with (self._logs / f"{role}.log").open("wb") as log:
                # A group of its own, so that it can be stopped with what it starts.
                self._running[role] = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        for process in reversed(self._running.values()):
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for process in self._running.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._signal(process, signal.SIGKILL)
                process.wait()
        if isinstance(error, PipelineError):
            raise RuntimeError(self.told(str(error))) from error

    def check(self) -> None:
        """Raise if one ended."""
        for role, process in self._running.items():
            if process.poll() is not None:
                raise RuntimeError(self.told(f"the {role} ended with exit code {process.returncode}"))

    def told(self, message: str) -> str:
        """The message with the end of each log."""
        tails = {role: (self._logs / f"{role}.log").read_text(errors="replace")[-1500:] for role in self._running}
        return "\n".join([message, *(f"{role}: {tail}" for role, tail in tails.items())])

    @contextmanager
    def stopped(self) -> Generator[None]:
        """Within the block they stand still, as the peer's training does while it is evaluated."""
        self._signal_all(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        for process in self._running.values():
            self._signal(process, number)

    @staticmethod
    def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
