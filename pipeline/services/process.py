"""A server in a child process under its guard, with its output in a log file."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.errors import ServiceError
from pipeline.services import guard

POLL_SECONDS = 0.05
PAUSE_SECONDS = 10.0
LOG_TAIL_LINES = 15


@dataclass(frozen=True)
class Command:
    """What a service's process is started with.

    Attributes:
        arguments: the program and its arguments.
        environment: added to this process's environment.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


class Service(ABC):
    """One server on loopback, in a child process that never outlives this one.

    Address and data stay the same over ``stop()``, ``kill()`` and ``start()``.

    Args:
        name: what messages call it.
        log: its standard output and error are appended here.
        ready_seconds: how long it may take until it answers.
    """

    def __init__(self, name: str, log: Path, ready_seconds: float) -> None:
        self.name = name
        self._log = log
        self._ready_seconds = ready_seconds
        self._pid_file = log.with_suffix(".pid")
        self._guard: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def prepare(self) -> Command:
        """Make what the server needs on disk; returns what it is started with."""

    @abstractmethod
    def answers(self) -> bool:
        """Ask the server once whether it is ready."""

    @property
    def alive(self) -> bool:
        """Whether the server's process runs (or is paused)."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def pid(self) -> int:
        """The server's process id.

        Raises:
            ServiceError: it does not run.
        """
        deadline = time.monotonic() + 5.0
        while self.alive and time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):
                return int(self._pid_file.read_text())
            time.sleep(POLL_SECONDS)
        raise ServiceError(f"{self.name} does not run. Its log: {self._log}")

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            ServiceError: it ended, or did not answer in time; the message holds the end of its log.
            MissingToolError: a tool it is made with is not installed.
        """
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start the server without waiting for it; nothing happens where it already runs."""
        if self.alive:
            return
        command = self.prepare()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._pid_file.unlink(missing_ok=True)
        with self._log.open("ab") as output:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", guard.__file__, str(self._pid_file), *command.arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **command.environment},
                # Its own group, so that Ctrl-C in a terminal leaves the order of shutdown to this
                # process.
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Ask the server until it answers.

        Raises:
            ServiceError: it ended, or did not answer in time; the message holds the end of its log.
        """
        deadline = time.monotonic() + self._ready_seconds
        while not self.answers():
            if not self.alive:
                raise ServiceError(f"{self.name} ended while it was starting. {self._log_tail()}")
            if time.monotonic() > deadline:
                raise ServiceError(f"{self.name} did not answer within {self._ready_seconds:g} s. {self._log_tail()}")
            time.sleep(POLL_SECONDS)

    def stop(self, timeout: float = 30.0) -> None:
        """End the server: SIGTERM, then SIGKILL after ``timeout`` seconds."""
        if self._guard is None:
            return
        if self.alive:
            self.resume()
        # The end of the pipe is the guard's word to stop; it works on every platform.
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        try:
            self._guard.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        self._guard = None

    def kill(self) -> None:
        """End the server at once, as ``kill -9`` does."""
        if self._guard is None:
            return
        if self.alive:
            with contextlib.suppress(ServiceError):
                _signal(self.pid, "SIGKILL")
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()
        self._guard = None

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open and, on return, nothing answers. POSIX
        only.

        Raises:
            ServiceError: it does not run, or it goes on answering.
        """
        _signal(self.pid, "SIGSTOP")
        # The signal stops the threads one by one: a request may still get its answer.
        deadline = time.monotonic() + PAUSE_SECONDS
        while self.answers():
            if time.monotonic() > deadline:
                raise ServiceError(f"{self.name} still answers {PAUSE_SECONDS:g} s after SIGSTOP.")
            time.sleep(POLL_SECONDS)

    def resume(self) -> None:
        """Let a paused server go on."""
        with contextlib.suppress(ServiceError):
            _signal(self.pid, "SIGCONT")

    def _log_tail(self) -> str:
        """Where the log is, and its last lines."""
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
            return f"Its log, {self._log}, ends:\n" + "\n".join(lines)
        return f"Its log: {self._log}"


def _signal(pid: int, name: str) -> None:
    number = getattr(signal, name, None)
    if number is None:
        if name == "SIGKILL":
            number = signal.SIGTERM  # TerminateProcess on Windows
        elif name == "SIGCONT":
            return
        else:
            raise ServiceError(f"{name} does not exist on this platform.")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
