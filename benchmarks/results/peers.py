"""Running the peer in a process of its own."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.results.progress import Progress
from benchmarks.results.rows import Row


def run_peer(row: Row, seed: int) -> Progress:
    """Train with stable-baselines3 once.

    Raises:
        RuntimeError: its process failed.
    """
    progress = Progress(row.threshold, row.budget, row.every)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "evaluations.jsonl"
        started = str(time.time())
        command = [sys.executable, "-m", "benchmarks.results.peer", row.name, str(seed), started, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"stable-baselines3 failed on {row.name}: {done.stderr[-2000:]}")
        for line in path.read_text().splitlines():
            progress.add(*json.loads(line))
    return progress
