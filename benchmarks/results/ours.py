"""Running this pipeline as a user does: services, a learner and a client, each a process of its own."""

import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from benchmarks.results.progress import Progress
from benchmarks.results.rows import Row
from pipeline.broker import BrokerSettings, LogReader, Record, Topics
from pipeline.config import load_config
from pipeline.connect import connect
from pipeline.errors import PipelineError
from pipeline.experience import Identity
from pipeline.wire import RecordHeaders, decode_episode

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
        RuntimeError: a process ended, or no episode came for minutes.
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
    progress = Progress(row.threshold, row.budget)
    started = time.time()
    roles = {
        "learner": [f"learner.seed={seed}"],
        "client": ["client.actor=one", f"client.seed={seed}", f"client.first_weights_timeout_s={START_S}"],
    }
    with _processes(roles, common, saves / run / "logs") as processes:
        follow(progress, started, connect(config).broker, Topics(config.namespace, run), processes)
    return progress


def follow(
    progress: Progress,
    started: float,
    broker: BrokerSettings,
    topics: Topics,
    processes: "dict[str, subprocess.Popen[bytes]]",
) -> None:
    """Read the run's episodes from the log until the run is over."""
    reader = LogReader(broker, [topics.samples, topics.episodes], open_timeout=START_S)
    counted = Counted(topics)
    heard = time.monotonic()
    try:
        while not progress.ended:
            for steps, when, total_return in counted.read(reader.poll(1000, 0.5)):
                progress.add(steps, when - started, total_return)
                heard = time.monotonic()
            for name, process in processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"the {name} ended with exit code {process.returncode}")
            if time.monotonic() - heard > STALL_S:
                raise RuntimeError(f"no episode for {STALL_S:g} s")
    finally:
        reader.close()


class Counted:
    """Episodes with the environment steps that all actors had taken when they ended.

    An episode's record carries the number of the chunk that its actor was filling. What was in the chunks up to that
    one has been stepped, that is, up to ``client.chunk_steps`` steps too many are counted, never too few. Records that
    were sent twice count once.
    """

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        # Steps of each actor's session so far, and up to each of its chunks.
        self._total: dict[tuple[str, str], int] = {}
        self._up_to: dict[Identity, int] = {}
        self._episodes: set[tuple[str, str, int, int]] = set()
        self._waiting: deque[tuple[Identity, float, float]] = deque()

    def read(self, records: Iterable[Record]) -> Generator[tuple[int, float, float]]:
        """Yield (steps, unix time, return) of the episodes whose last chunk has been read, in their order."""
        for record in records:
            headers = RecordHeaders.from_kafka(record.headers)
            if record.topic == self._topics.samples:
                self._note_chunk(headers)
            else:
                episode = decode_episode(record.value)
                key = (episode.actor, episode.session, episode.environment, episode.episode)
                if key not in self._episodes:
                    self._episodes.add(key)
                    self._waiting.append((headers.identity, record.timestamp_ms / 1000, episode.total_return))
        while self._waiting and self._waiting[0][0] in self._up_to:
            last, when, total_return = self._waiting.popleft()
            others = sum(total for key, total in self._total.items() if key != (last.actor, last.session))
            yield self._up_to[last] + others, when, total_return

    def _note_chunk(self, headers: RecordHeaders) -> None:
        identity = headers.identity
        if identity in self._up_to:
            return
        key = (identity.actor, identity.session)
        self._total[key] = self._up_to[identity] = self._total.get(key, 0) + headers.count


@contextmanager
def _processes(
    roles: dict[str, list[str]], common: list[str], logs: Path
) -> "Generator[dict[str, subprocess.Popen[bytes]]]":
    """The roles' processes; what goes wrong with them is told with the end of their logs."""
    logs.mkdir(parents=True, exist_ok=True)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for role, own in roles.items():
            with (logs / f"{role}.log").open("wb") as log:
                command = [sys.executable, "-m", f"pipeline.{role}", *common, *own]
                processes[role] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        yield processes
    except (RuntimeError, PipelineError) as error:
        tails = {role: (logs / f"{role}.log").read_text(errors="replace")[-1500:] for role in processes}
        said = "\n".join(f"{role}: {tail}" for role, tail in tails.items())
        raise RuntimeError(f"{error}\n{said}") from error
    finally:
        for process in reversed(processes.values()):
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for process in processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
