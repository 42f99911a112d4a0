"""The demo, from its start to its summary, on the embedded services."""

import json
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.weights import sha256


@pytest.mark.timeout(240)
def test_the_demo_ends_solved_and_leaves_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A threshold that is reached early; the weights in the folder are the version that scored."""
    status = main(["demo", f"saves={tmp_path}", "run=shown", "environment.solved_return=60", "demo.seed=3"])
    said = capsys.readouterr().out
    assert status == 0, said
    assert "solved: 100 greedy episodes" in " ".join(said.split())
    folder = tmp_path / "shown"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["solved"] and summary["mean_return"] >= 60
    assert sha256((folder / "weights.safetensors").read_bytes()) == summary["sha256"]
    assert (folder / "telemetry.png").stat().st_size > 5000
    assert (folder / "config.yaml").exists()
    assert {p.name for p in (folder / "logs").iterdir()} >= {"learner.log", "client-0.log", "client-1.log"}


@pytest.mark.timeout(240)
def test_the_demo_says_when_it_is_not_solved(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Time is over: status 1, and the best that there was."""
    status = main(["demo", f"saves={tmp_path}", "run=slow", "environment.solved_return=600", "demo.max_seconds=3"])
    assert status == 1
    assert "not solved" in capsys.readouterr().out
