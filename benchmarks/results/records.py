"""What has been measured, a JSON line for each run: ``benchmarks/results/results.jsonl``."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.results.machine import load, machine, versions
from benchmarks.results.progress import ALL, FIRST, Progress
from benchmarks.results.rows import Row
from pipeline.config import load_config, to_dict

RESULTS = Path(__file__).with_name("results.jsonl")
OURS, PEER = "pipeline", "stable-baselines3"
_DECIDING = ("environment", "algorithm", "learner", "client")


def settings_of(row: Row, system: str) -> dict[str, Any]:
    """Everything that a system's result on a row follows from, but for versions and the machine."""
    settings: dict[str, Any] = {
        "threshold": row.threshold,
        "budget": row.budget,
        "every": row.every,
        "episodes": [FIRST, ALL],
    }
    if system == OURS:
        config = to_dict(load_config([f"experiment={row.name}"]))
        return settings | {section: config[section] for section in _DECIDING}
    return settings | {"peer": asdict(row.peer) if row.peer else None}


def digest(settings: Mapping[str, Any]) -> str:
    """A short name of settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def record(row: Row, system: str, seed: int, progress: Progress) -> dict[str, Any]:
    """A run's line."""
    settings = settings_of(row, system)
    return {
        "row": row.name,
        "system": system,
        "seed": seed,
        "settings": digest(settings),
        "solved": asdict(progress.solved) if progress.solved else None,
        "last": asdict(progress.last) if progress.last else None,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "load": load(),
        "machine": machine(),
        "versions": versions(),
        "curve": [[point.steps, round(point.seconds, 2), round(point.mean, 3)] for point in progress.curve],
    }


def append(line: Mapping[str, Any], path: Path = RESULTS) -> None:
    """Add a run's line."""
    with path.open("a") as out:
        out.write(json.dumps(line) + "\n")


def read(rows: Mapping[str, Row], path: Path = RESULTS) -> list[dict[str, Any]]:
    """The runs made with the settings that the rows have now; of a run made twice the newest."""
    if not path.exists():
        return []
    current = {
        (name, system): digest(settings_of(row, system)) for name, row in rows.items() for system in (OURS, PEER)
    }
    newest: dict[tuple[str, str, int], dict[str, Any]] = {}
    for text in path.read_text().splitlines():
        line = json.loads(text)
        if current.get((line["row"], line["system"])) == line["settings"]:
            newest[line["row"], line["system"], line["seed"]] = line
    return list(newest.values())
