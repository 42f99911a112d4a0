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
    progress = Progress(row.threshold, row.budget)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episodes.jsonl"
        started = time.time()
        command = [sys.executable, "-m", "benchmarks.results.peer", row.name, str(seed), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"stable-baselines3 failed on {row.name}: {done.stderr[-2000:]}")
        for line in path.read_text().splitlines():
            steps, when, total_return = json.loads(line)
            progress.add(steps, when - started, total_return)
    return progress
