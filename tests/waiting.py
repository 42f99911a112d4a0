"""Waiting for a condition, never for a guess."""

import os
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 30.0) -> None:
    """Ask until the condition holds; fails with ``what`` after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout:g} s"
        time.sleep(0.02)


def process_runs(pid: int) -> bool:
    """Whether the process exists and is more than a zombie."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return os.path.isdir("/proc/self") is False
