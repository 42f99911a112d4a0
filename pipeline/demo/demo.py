"""One learner, some client processes, telemetry, and services, each a process of its own, with a live view."""

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from rich.console import Console
from rich.live import Live

from pipeline.broker import LogReader, Topics
from pipeline.config import PipelineConfig, to_dict
from pipeline.config.loading import OPEN_MAPPINGS
from pipeline.connect import connect
from pipeline.demo.evaluation import EvaluationThread
from pipeline.demo.view import START_S, Progress, render
from pipeline.errors import ConfigError, InvalidRecordError, PipelineError
from pipeline.learner.durable.run_folder import RunFolder, new_run_name
from pipeline.services import running_services, services_fetch
from pipeline.wire import Heartbeat, TelemetryWindow

REFRESH_S = 0.25
STOP_S = 20.0


def run_demo(config: PipelineConfig) -> int:
    """Train until the published weights solve the environment.

    Returns:
        0 when solved, 1 when not within ``demo.max_seconds``.

    Raises:
        ConfigError: the demo's roles are asked to come with secrets.
        PipelineError: a service or process could not be started, or ended by itself.
    """
    if config.services.security != "none":
        raise ConfigError(
            "the demo's roles have no secret files: leave security=tls out; docs/security.md has a run with it in "
            "a few commands"
        )
    console = Console()
    config.run = config.run or new_run_name(config)
    # All start at once on one machine: the clients wait for a learner that is still importing torch.
    config.kafka.timeout_s = max(config.kafka.timeout_s, START_S)
    config.algorithm.sync.clients = config.demo.clients
    config.client.first_weights_timeout_s = max(config.client.first_weights_timeout_s, START_S)
    folder = RunFolder(config.saves, config.run).make()
    console.print(f"run      [bold]{config.run}[/bold]\nfolder   {folder}")
    with ExitStack() as stack:
        if config.services.kind != "external":
            services_fetch(config.services.kind)
            config.services.folder = str(folder / "services")
            services = stack.enter_context(running_services(config.services.kind, config.services.folder))
            console.print(f"broker   {services.bootstrap_servers}\nstore    http://{services.endpoint}")
        processes = stack.enter_context(_Processes(config, folder / "logs"))
        progress = Progress(target=config.environment.solved_return, limit_s=config.demo.max_seconds)
        evaluation = EvaluationThread(config, config.run)
        try:
            _watch(config, processes, evaluation, progress, console)
        finally:
            evaluation.stop()
            if evaluation.is_alive():
                evaluation.join(STOP_S)
    return _summarise(config, folder, evaluation, progress, console)


class _Processes:
    """The roles' processes; they are ended, in order, when the block is left."""

    def __init__(self, config: PipelineConfig, logs: Path) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        self._config = config
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "_Processes":
        self._start("learner", f"learner.seed={self._config.demo.seed}")
        for number in range(self._config.demo.clients):
            seed = self._config.demo.seed * 1000 + number
            self._start("client", f"client.actor=actor-{number}", f"client.seed={seed}", number=number)
        self._start("telemetry")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for process in self._running.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def check(self) -> None:
        """Raise if a process ended."""
        for name, process in self._running.items():
            if process.poll() not in (None, 0):
                log = self._logs / f"{name}.log"
                tail = " / ".join(log.read_text(errors="replace").splitlines()[-3:])
                raise PipelineError(f"The {name} ended with exit code {process.returncode}; {log} says: {tail}")

    def _start(self, role: str, *overrides: str, number: int | None = None) -> None:
        name = role if number is None else f"{role}-{number}"
        command = [
            sys.executable,
            "-m",
            f"pipeline.{role}",
            *_as_overrides(self._config),
            *overrides,
        ]
        with (self._logs / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def _as_overrides(config: PipelineConfig) -> list[str]:
    """The configuration as overrides for a child process; open mappings travel as flow mappings."""
    overrides: list[str] = []

    def add(prefix: str, tree: dict[str, object]) -> None:
        for part, value in tree.items():
            name = f"{prefix}{part}"
            if isinstance(value, dict) and name not in OPEN_MAPPINGS:
                add(f"{name}.", cast("dict[str, object]", value))
            elif isinstance(value, dict):
                inner = cast("dict[str, object]", value)
                overrides.extend(f"{name}.{key}={json.dumps(item)}" for key, item in inner.items())
            else:
                overrides.append(f"{name}={json.dumps(value)}")

    add("", to_dict(config))
    return overrides


def _watch(
    config: PipelineConfig,
    processes: _Processes,
    evaluation: EvaluationThread,
    progress: Progress,
    console: Console,
) -> None:
    """Follow heartbeats, windows and evaluations until it is solved or the time is over."""
    topics = Topics(config.namespace, config.run)
    broker = connect(config).broker
    read = [topics.progress, topics.heartbeats, topics.telemetry]
    reader = LogReader(broker, read, start="earliest", open_timeout=START_S)
    started = False
    try:
        with Live(render(progress), console=console, refresh_per_second=4, transient=False) as live:
            while evaluation.solved is None and not progress.out_of_time:
                processes.check()
                for record in reader.poll(500, REFRESH_S):
                    _note(progress, record.topic, record.value or b"", topics)
                if progress.learner_seen and not started:
                    started = True
                    evaluation.start()
                if evaluation.error is not None:
                    raise evaluation.error
                progress.note_evaluation(evaluation)
                live.update(render(progress))
            progress.ended = time.monotonic()
            progress.note_evaluation(evaluation)
            live.update(render(progress))
        if not console.is_terminal:
            console.print()
    finally:
        reader.close()


def _note(progress: Progress, topic: str, value: bytes, topics: Topics) -> None:
    try:
        if topic in (topics.progress, topics.heartbeats):
            progress.note_heartbeat(Heartbeat.decode(value))
        else:
            progress.note_window(TelemetryWindow.decode(value))
    except InvalidRecordError:
        progress.refused += 1


def _summarise(
    config: PipelineConfig,
    folder: Path,
    evaluation: EvaluationThread,
    progress: Progress,
    console: Console,
) -> int:
    solved = evaluation.solved
    weights = folder / "weights.safetensors"
    figure = Path(config.telemetry.figure) if config.telemetry.figure else folder / "telemetry.png"
    best = evaluation.best
    if solved is not None:
        weights.write_bytes(solved[1])
    summary = {
        "run": config.run,
        "seed": config.demo.seed,
        "solved": solved is not None,
        "mean_return": solved[0].mean_return if solved else (best.mean_return if best else None),
        "version": str(solved[0].version) if solved else None,
        "sha256": solved[0].record.sha256 if solved else None,
        "training_seconds": round(progress.seconds, 1),
        "transitions_accepted": progress.accepted,
        "transitions_rejected": progress.rejected,
        "versions": progress.version,
    }
    RunFolder(config.saves, config.run).save_summary(summary)
    if solved is None:
        reached = f"{best.mean_return:.1f} at version {best.version}" if best else "no version at all"
        console.print(f"[bold red]not solved[/bold red] within {config.demo.max_seconds:g} s; best: {reached}.")
    else:
        score = solved[0]
        console.print(
            f"[bold green]solved[/bold green]: {config.demo.evaluation_episodes} greedy episodes of version "
            f"{score.version} average {score.mean_return:.1f} (needed {config.environment.solved_return:g}), after "
            f"{progress.seconds:.0f} s of training and {progress.accepted:,} accepted transitions."
        )
        console.print(f"weights  {weights}")
    console.print(f"figure   {figure}\nfolder   {folder}\nlogs     {folder / 'logs'}")
    return 0 if solved is not None else 1
