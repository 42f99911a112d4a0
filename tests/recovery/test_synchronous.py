"""PPO with live clients: kills of the learner lose no iteration and hold nobody up, and every version can be computed
again. So can those of Rainbow."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from pipeline.services import Services
from pipeline.wire import Journal
from tests.flows.processes import role
from tests.recovery.checker import read_learner
from tests.recovery.runs import POINTS, Run, moments, soak, verify

PPO = [
    "algorithm=ppo",
    "algorithm.hidden=[16]",
    "algorithm.ppo.rollout_steps=32",
    "algorithm.ppo.epochs=2",
    "algorithm.normalise_observations=true",
    "algorithm.sync.clients=2",
    "algorithm.sync.min_clients=2",
    "environment.envs=2",
    "learner.checkpoint_every=4",
]
RAINBOW = [
    "algorithm=rainbow",
    "algorithm.hidden=[16]",
    "algorithm.batch_size=16",
    "algorithm.learning_starts=200",
    "algorithm.updates_per_version=20",
    "algorithm.buffer_rows=2000",
    "environment.envs=2",
    "learner.checkpoint_every=4",
]
# Where PPO's learner dies, one after the other: in the midst of rollouts, of a train step, of a publication, of a
# checkpoint.
DEATHS = ["insert.after:9", "announce.before:3", "train.before:2", "train.after:2", *POINTS[5:]]


@pytest.mark.timeout(soak(3600, 400))
def test_every_version_of_ppo_comes_out_again_with_kills_in_between(local_services: Services, tmp_path: Path):
    """Clients that wait in sync() get their version from the learner that comes after, and none of their chunks is
    refused or counts twice."""
    run = Run(local_services, "synchronous", tmp_path, *PPO)
    actors = {name: tmp_path / name for name in "ab"}
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                role("client", tmp_path / f"{name}.log", *run.common, f"client.actor={name}", f"client.ledger={ledger}")
            )
            for name, ledger in actors.items()
        ]
        for point in soak(DEATHS, DEATHS[:2]):
            run.dies(point)
        for seconds in moments(7, soak(20, 0), 4.0):
            assert run.dies_in(seconds)
            run.dies("announce.after:3")  # no client waits for 100 s without any version
        process = run.start()
        run.wait_passed(process, "announce.after", soak(100, 5))
        assert [client.poll() for client in clients] == [None, None]
    run.wait_judged(process)
    process.terminate()
    process.join(60)
    assert process.exitcode == 0, run.log.read_text()
    chunks, twice = run.check(*actors.values())
    assert {entry.verdict for entry in read_learner(run.ledger)} <= {"accepted", "duplicate"}
    # Nobody was lost over all this, so every version after that of the registration is an iteration of both.
    journals = [Journal.decode(version.journal or b"") for version in run.lineage().versions]
    assert [event.kind for journal in journals for event in journal.events] == ["join", "join", "begin"]
    assert [version.updates for version in run.lineage().versions] == [0, *range(len(journals) - 1)]
    print(f"PPO, {run.started} learners: {chunks} chunks, {twice} came twice; {verify(run)}")


@pytest.mark.timeout(soak(3600, 300))
def test_every_version_of_rainbow_comes_out_again_with_a_kill_in_between(local_services: Services, tmp_path: Path):
    run = Run(local_services, "rainbow", tmp_path, *RAINBOW)
    with role("client", tmp_path / "a.log", *run.common, "client.actor=a", "client.chunk_age_s=0.2"):
        process = run.start()
        run.wait_passed(process, "announce.after", soak(60, 4))
        process.kill()
        process.join()
        process = run.start()
        run.wait_passed(process, "announce.after", soak(60, 3))
    process.terminate()
    process.join(60)
    assert process.exitcode == 0, run.log.read_text()
    print(f"Rainbow, {run.started} learners: {verify(run)}")
