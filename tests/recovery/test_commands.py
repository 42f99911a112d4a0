"""A learner dies while it carries a command out: the next one does, once, and says so."""

from pathlib import Path

import pytest

from pipeline.broker.commands import await_outcome, send_command
from pipeline.learner.durable.checkpoint import load_checkpoint
from pipeline.learner.durable.run_folder import RunFolder
from pipeline.services import Services
from tests.recovery.recorded import SETTINGS, record
from tests.recovery.runs import Run

CHUNKS = 60
# Each learner first finishes what the one before had begun: five more fsyncs, one more rename.
POINTS = ["fsync.before:1", "fsync.after:9", "rename.before:2", "rename.after:2"]


@pytest.mark.timeout(240)
def test_quicksaves_that_were_cut_short_are_made_once(local_services: Services, tmp_path: Path):
    run = Run(local_services, "commands", tmp_path, *SETTINGS, "learner.checkpoint_every=0", namespace="commands")
    record(run.config, CHUNKS, tmp_path / "actors.ledger")
    for number, point in enumerate(POINTS):
        send_command(run.broker, run.topics, "quicksave", id=f"save-{number}")
        run.dies(point)
    with run.learner():
        saved = [await_outcome(run.broker, run.topics, f"save-{number}", 60.0).detail for number in range(len(POINTS))]
        run.check(tmp_path / "actors.ledger")
    folder = RunFolder(run.config.saves, run.name).manual_save
    kept = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    assert sorted(kept) == sorted(Path(path).name for path in saved)
    assert len(set(saved)) == len(POINTS)
    for path in saved:
        assert load_checkpoint(Path(path)).state["run"] == run.name
