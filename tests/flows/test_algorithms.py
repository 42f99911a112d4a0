"""Every algorithm by the commands that users type: learner, client, `set` while it goes on, and `replay verify`."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.services import Services
from tests.flows.processes import Watcher, last_state, overrides, role

VALUE_BASED = ["algorithm.batch_size=16", "algorithm.learning_starts=100", "algorithm.updates_per_version=20"]
LEARNERS = {
    "dqn": ["algorithm=dqn", "algorithm.normalise_observations=true", *VALUE_BASED],
    "rainbow": ["algorithm=rainbow", *VALUE_BASED],
    "ppo": ["algorithm=ppo", "algorithm.ppo.rollout_steps=32", "algorithm.ppo.minibatch_size=64"],
}
CHANGES = {
    "dqn": ["algorithm.lr=1e-4", "algorithm.exploration.end=0.2"],
    "rainbow": ["algorithm.lr=1e-4", "algorithm.prioritised.beta=0.9"],
    "ppo": ["algorithm.lr=1e-4", "algorithm.ppo.clip=0.1", "algorithm.sync.collect_fraction=0.5"],
}


def command(*words: str) -> str:
    """What a command says that ends well."""
    done = subprocess.run([sys.executable, "-m", "pipeline.cli", *words], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(400)
@pytest.mark.parametrize("algorithm", LEARNERS)
def test_an_algorithm_from_its_first_version_to_the_proof_of_its_last(
    algorithm: str, local_services: Services, tmp_path: Path
):
    run, saves = f"whole-{algorithm}", tmp_path / "saves"
    common = overrides(local_services, run, saves)
    words = ["algorithm.hidden=[16]", "environment=cartpole", "environment.envs=2", *LEARNERS[algorithm]]
    watcher = Watcher(local_services, run)
    logs = {name: tmp_path / f"{name}.log" for name in ("learner", "client")}
    with (
        role("learner", logs["learner"], *common, *words) as learner,
        role("client", logs["client"], *common, "client.actor=a", "kafka.timeout_s=60") as client,
    ):
        watcher.wait(lambda: watcher.version >= 3, "version 3")
        told = command("set", *common, *CHANGES[algorithm], "command.timeout_s=60")
        assert all(change.partition("=")[0] in told for change in CHANGES[algorithm])
        changed_at = watcher.version
        watcher.wait(lambda: watcher.version >= changed_at + 3, "versions go on with what was set")
        client.terminate()
        assert client.wait(60) == 0, logs["client"].read_text()
        assert learner.poll() is None, logs["learner"].read_text()
    watcher.close()
    assert learner.returncode == 0, logs["learner"].read_text()
    assert last_state(saves, run)["parameters"]["lr"] == 1e-4
    said = command("replay", "verify", *common)
    assert said.startswith("versions 0 … ") and "identical" in said
