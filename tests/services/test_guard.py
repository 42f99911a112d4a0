"""The guard ends its command when the asking process goes, and the command goes with the guard."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.services import guard
from tests.waiting import process_runs, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux process signals")

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def guarded(tmp_path: Path, command: list[str]) -> tuple["subprocess.Popen[bytes]", int]:
    pid_file = tmp_path / "pid"
    process = subprocess.Popen([sys.executable, "-I", guard.__file__, str(pid_file), *command], stdin=subprocess.PIPE)
    wait_until(lambda: pid_file.exists() and bool(pid_file.read_text()), "the command starts")
    return process, int(pid_file.read_text())


def close_pipe(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.close()


def test_the_end_of_the_pipe_ends_the_command(tmp_path: Path) -> None:
    process, pid = guarded(tmp_path, SLEEPER)
    close_pipe(process)
    assert process.wait(30) == 128 + signal.SIGTERM
    assert not process_runs(pid)
    assert not (tmp_path / "pid").exists()


def test_a_paused_command_is_ended_too(tmp_path: Path) -> None:
    process, pid = guarded(tmp_path, SLEEPER)
    os.kill(pid, signal.SIGSTOP)
    close_pipe(process)
    process.wait(30)
    assert not process_runs(pid)


def test_kill_9_of_the_guard_kills_the_command(tmp_path: Path) -> None:
    process, pid = guarded(tmp_path, SLEEPER)
    process.kill()
    process.wait(30)
    wait_until(lambda: not process_runs(pid), "the command dies with its guard")
    close_pipe(process)


def test_the_command_s_status_is_the_guard_s(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(7)"]
    process = subprocess.Popen(
        [sys.executable, "-I", guard.__file__, str(tmp_path / "pid"), *command],
        stdin=subprocess.PIPE,
    )
    assert process.wait(30) == 7
    close_pipe(process)
