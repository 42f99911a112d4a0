"""Two learners on one run: one goes on, the other stops and says why, and no client takes anything of it."""

import os
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from pipeline.connect import connect
from pipeline.services import Services
from pipeline.weights import Follower, ObjectStore
from tests.recovery.recorded import ANY_VERSION, SETTINGS, record
from tests.recovery.runs import Run, soak
from tests.waiting import wait_until

ROUNDS = soak(20, 2)


@pytest.mark.timeout(soak(3600, 400))
def test_the_one_that_was_paused_publishes_nothing(local_services: Services, tmp_path: Path):
    """SIGSTOP, another learner takes over, SIGCONT: the older one ends with a sentence."""
    # Its versions come slowly, so that the log lasts.
    run = Run(local_services, "two", tmp_path, *SETTINGS, f"learner.version_window={ANY_VERSION}", namespace="two")
    record(run.config, 400 * (ROUNDS + 1), tmp_path / "actors.ledger")
    follower = Follower(run.broker, ObjectStore(connect(run.config).store), run.topics)
    accepted: list[tuple[int, int]] = []

    def epoch_accepted(epoch: int, more: int = 1) -> bool:
        followed = follower.poll(0.05)
        if followed is not None:
            accepted.append((followed.record.epoch, followed.record.number))
        return sum(each[0] == epoch for each in accepted) >= more

    learners: list[BaseProcess] = [run.start()]
    try:
        wait_until(lambda: epoch_accepted(1, 2), "the first learner publishes", 60.0)
        for epoch in range(2, ROUNDS + 2):
            older, log = learners[-1], run.log
            assert older.pid is not None
            os.kill(older.pid, signal.SIGSTOP)
            learners.append(run.start("", f"learner.ledger={tmp_path / f'ledger-{epoch}'}"))
            wait_until(lambda epoch=epoch: epoch_accepted(epoch), f"epoch {epoch} publishes", 60.0)
            os.kill(older.pid, signal.SIGCONT)
            wait_until(lambda old=older: epoch_accepted(-1) or not old.is_alive(), "the older one ends", 60.0)
            assert older.exitcode == 1
            said = log.read_text()
            assert "taken" in said.splitlines()[-1] and "Traceback" not in said, said
            before = len(accepted)
            wait_until(lambda before=before: len(accepted) > before + 1 or epoch_accepted(-1), "the newer goes on")
            assert {each[0] for each in accepted[before:]} == {epoch}
        learners[-1].terminate()
        learners[-1].join(60)
        assert learners[-1].exitcode == 0, run.log.read_text()
    finally:
        for process in learners:
            process.kill()
            process.join()
        follower.close()
    assert accepted == sorted(accepted)
    numbers = [version.number for version in run.lineage().versions]
    assert numbers == list(range(len(numbers)))
    print(f"{ROUNDS} rounds: {len(accepted)} versions accepted by a client, none of a fenced learner")


@pytest.mark.timeout(240)
def test_of_two_started_at_once_one_goes_on(local_services: Services, tmp_path: Path):
    """The other one stops with a sentence, whichever it is, and the run has one line of versions."""
    run = Run(local_services, "at-once", tmp_path, *SETTINGS, f"learner.version_window={ANY_VERSION}", namespace="two")
    record(run.config, 200, tmp_path / "actors.ledger")
    started: list[tuple[BaseProcess, Path]] = []
    try:
        for index in range(2):
            process = run.start("", f"learner.ledger={tmp_path / f'ledger-{index}'}")
            started.append((process, run.log))
        wait_until(lambda: not all(process.is_alive() for process, _ in started), "one of them stops", 60.0)
        (stopped, log), (goes_on, other) = sorted(started, key=lambda each: each[0].is_alive())
        assert stopped.exitcode == 1 and "taken" in log.read_text().splitlines()[-1], log.read_text()
        run.wait_passed(goes_on, "announce.after", 5)
        goes_on.terminate()
        goes_on.join(60)
        assert goes_on.exitcode == 0, other.read_text()
    finally:
        for process, _ in started:
            process.kill()
            process.join()
    numbers = [version.number for version in run.lineage().versions]
    assert numbers == list(range(len(numbers)))
