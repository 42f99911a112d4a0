"""Commands to a real learner: saved once, the version that scored, and still so after kill -9."""

import signal
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline.broker.commands import order, send_command
from pipeline.learner.best_model import kept_best
from pipeline.learner.durable.checkpoint import load_checkpoint
from pipeline.learner.durable.run_folder import RunFolder
from pipeline.services import Services
from pipeline.weights import read_lineage, sha256
from tests.flows.processes import Watcher, last_state, overrides, role
from tests.waiting import wait_until

SMALL = ["algorithm.learning_starts=200", "algorithm.updates_per_version=50", "environment.envs=4"]


@pytest.mark.timeout(400)
def test_quicksave_best_model_and_stop(local_services: Services, tmp_path: Path):
    run = "commands"
    common = overrides(local_services, run, tmp_path / "saves")
    learner_words = [*common, *SMALL, "cleanup.keep_last=3", "cleanup.keep_every=0", "learner.checkpoint_every=5"]
    watcher = Watcher(local_services, run)
    folder = RunFolder(str(tmp_path / "saves"), run)
    with (
        role("client", tmp_path / "a.log", *common, "client.actor=a", "kafka.timeout_s=60"),
        role(
            "telemetry",
            tmp_path / "telemetry.log",
            *common,
            "telemetry.window_episodes=10",
            "telemetry.update_s=0.2",
            "kafka.timeout_s=60",
        ) as telemetry,
    ):
        with role("learner", tmp_path / "learner.log", *learner_words) as learner:
            watcher.wait(lambda: watcher.version >= 3, "version 3")
            saved = Path(
                order(watcher.settings, watcher.topics, "quicksave", {"note": "n"}, id="once", timeout=90.0).detail
            )
            assert saved.parent == folder.manual_save.resolve()
            assert load_checkpoint(saved).state["note"] == "n"
            wait_until(lambda: kept_best(folder.best_model) is not None, "the best model", 60.0)
            changes = {"algorithm.lr": 1e-4, "algorithm.updates_per_version": 40}
            told = order(watcher.settings, watcher.topics, "set", changes, id="slower", timeout=90.0).detail
            assert "algorithm.lr from 0.002 to 0.0001" in told
            learner.send_signal(signal.SIGKILL)
            learner.wait()
        log = tmp_path / "again.log"
        with role("learner", log, *learner_words) as learner:
            # The same id: the next learner finds it done.
            again = order(watcher.settings, watcher.topics, "quicksave", id="once", timeout=90.0)
            assert Path(again.detail) == saved
            # A setting stays as it was set, though the learner was killed at once.
            again = order(watcher.settings, watcher.topics, "set", {"algorithm.lr": 1.0}, id="slower", timeout=90.0)
            assert again.detail == told
            assert list(folder.manual_save.iterdir()) == [folder.manual_save / saved.name]
            watcher.wait(lambda: watcher.learner is not None and watcher.learner.version_epoch == 2, "epoch 2")
            send_command(watcher.settings, watcher.topics, "stop")
            assert learner.wait(60) == 0, log.read_text()
        with role("learner", tmp_path / "third.log", *learner_words) as learner:
            # A stop that was meant for the one before does not end it.
            watcher.wait(lambda: watcher.learner is not None and watcher.learner.version_epoch == 3, "epoch 3")
            before = watcher.version
            watcher.wait(lambda: watcher.version >= before + 3, "versions go on")
            assert learner.poll() is None, (tmp_path / "third.log").read_text()
        assert telemetry.poll() is None, (tmp_path / "telemetry.log").read_text()

    assert last_state(tmp_path / "saves", run)["parameters"]["lr"] == 1e-4
    # Three learners wrote figures, and no version has them twice.
    events = EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    numbers = [event.value for event in events.Scalars("version")]
    assert numbers == list(range(len(numbers))) and len(numbers) > 6
    best = kept_best(folder.best_model)
    assert best is not None
    lineage = read_lineage(watcher.settings, watcher.topics, 30.0)
    record = lineage.find(best.version.number)
    assert record is not None and record.version == best.version
    assert sha256((folder.best_model / "weights.safetensors").read_bytes()) == record.sha256
    assert best.version in lineage.pins
    watcher.close()
