"""Every example as its README starts it, with a learner at toy size, on the embedded services."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.broker import LogReader, Topics
from pipeline.config import load_config
from pipeline.connect import connect
from pipeline.services import Services
from pipeline.wire import decode_episode
from tests.flows.processes import last_state

ROOT = Path(__file__).parents[2]
SMALL = (
    "algorithm.hidden=[16]",
    "algorithm.learning_starts=100",
    "algorithm.batch_size=16",
    "algorithm.updates_per_version=20",
    "learner.version_window=1000",
)

PATIENT = ("kafka.timeout_s=60", "client.first_weights_timeout_s=120")


def started(module: str, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen([sys.executable, "-m", module, *arguments], cwd=ROOT, stdout=file, stderr=file)


def end_of(process: subprocess.Popen[bytes], log: Path, timeout: float) -> None:
    try:
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        pytest.fail(f"it did not end: {log.read_text()}")
    assert status == 0, log.read_text()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("module", "settings", "size"),
    [
        ("examples.robot.client", ["environment.id=examples.robot:Arm-v0", *SMALL], 500),
        (
            "examples.souls.client",
            [
                "environment.id=examples.souls:Souls-v0",
                "environment.action_masks=true",
                "environment.frame_stack=2",
                "environment.actions=[0,1,5,6,8]",
                *SMALL,
            ],
            500,
        ),
        (
            "examples.vectorised",
            [
                "algorithm=ppo",
                "environment.envs=4",
                "algorithm.ppo.rollout_steps=40",
                "algorithm.hidden=[16]",
                "algorithm.sync.discovery_s=200",
                "algorithm.sync.client_timeout_s=60",
            ],
            480,
        ),
    ],
)
def test_an_example_feeds_its_learner_until_the_run_ends(
    embedded_services: Services, tmp_path: Path, module: str, settings: list[str], size: int
):
    run = module.replace(".", "-")
    common = [f"services.folder={embedded_services.folder}", "namespace=examples", f"run={run}", f"saves={tmp_path}"]
    learner_log, client_log = tmp_path / "learner.log", tmp_path / "client.log"
    learner = started("pipeline.learner", learner_log, *common, *settings, f"learner.max_transitions={size}")
    client = started(module, client_log, *common, "client.chunk_steps=32", *PATIENT)
    try:
        end_of(learner, learner_log, 200)
        end_of(client, client_log, 60)
    finally:
        learner.kill()
        client.kill()
    state = last_state(tmp_path, run)
    counts = state["accounting"]
    assert counts["accepted_transitions"] >= size
    assert counts["rejected"] == {}
    assert state["number"] >= 3
    reader = LogReader(connect(load_config(common)).broker, Topics("examples", run).episodes)
    episodes = [decode_episode(record.value or b"") for record in reader.read_to_end(30.0)]
    reader.close()
    assert episodes and all(0 < episode.steps <= 500 for episode in episodes)
    if "souls" in module:
        assert all(episode.info["won"] in (0.0, 1.0) for episode in episodes)
