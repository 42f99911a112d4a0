"""PPO with four clients: one is killed in mid-rollout, one paused, the broker restarted, and training goes on."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from pipeline.broker import LogReader
from pipeline.services import Services
from pipeline.wire import RecordHeaders
from tests.flows.halting_client import HALTED
from tests.flows.processes import Watcher, role
from tests.recovery.checker import read_learner
from tests.recovery.runs import SOAK, Run, soak, verify
from tests.recovery.test_live import uplink_of
from tests.waiting import wait_until

TIMEOUT_S = soak(10, 4)
SETTINGS = [
    "algorithm=ppo",
    "algorithm.hidden=[16]",
    "algorithm.ppo.rollout_steps=32",
    "algorithm.ppo.epochs=1",
    "algorithm.sync.clients=4",
    "algorithm.sync.min_clients=2",
    "algorithm.sync.discovery_s=300",
    f"algorithm.sync.client_timeout_s={TIMEOUT_S}",
    "environment.envs=2",
]


@pytest.mark.timeout(soak(900, 400))
def test_training_goes_on_whatever_happens_to_clients_and_broker(own_local_services: Services, tmp_path: Path):
    """No iteration mixes versions, no client waits in vain, and (under `make soak`) every version is computed again."""
    services = own_local_services
    run = Run(services, "trouble", tmp_path, *SETTINGS)
    watcher = Watcher(services, run.name)

    def states() -> dict[str, str]:
        members = () if watcher.learner is None else watcher.learner.members
        return {member.actor: member.state for member in members}

    def moves_on(*actors: str) -> None:
        """Two versions more, and all of these act under the second."""
        watcher.look()
        wanted = watcher.version + 2
        watcher.wait(
            lambda: all(watcher.actors[actor].version_number >= wanted for actor in actors),
            f"{', '.join(actors)} act under version {wanted}",
            180.0,
        )

    words = [*run.common, "client.chunk_steps=8", "client.first_weights_timeout_s=120"]
    with ExitStack() as stack:
        process = stack.enter_context(run.learner())
        clients = {
            name: stack.enter_context(role("client", tmp_path / f"{name}.log", *words, f"client.actor={name}"))
            for name in "abc"
        }
        log = (tmp_path / "d.log").open("w+")
        stack.callback(log.close)
        command = [sys.executable, "-m", "tests.flows.halting_client", "2", *words, "client.actor=d"]
        killed = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        stack.callback(killed.kill)

        # (1) Killed in mid-rollout, with its uplink, so that nobody says that it left.
        def halted() -> bool:
            said = (tmp_path / "d.log").read_text()
            assert killed.poll() is None, said
            return HALTED in said

        wait_until(halted, "it is in the middle of a rollout", 180.0)
        os.kill(uplink_of(killed), signal.SIGKILL)
        killed.kill()
        killed.wait()
        watcher.wait(lambda: states().get("d") == "lost", "the killed one is lost")
        moves_on("a", "b", "c")

        # (2) Paused, as a machine that sleeps, for longer than the time-out.
        paused = [clients["c"].pid, uplink_of(clients["c"])]
        for pid in paused:
            os.kill(pid, signal.SIGSTOP)
        try:
            watcher.wait(lambda: states().get("c") == "lost", "the paused one is lost")
            moves_on("a", "b")
            if SOAK:
                process.join(20 - TIMEOUT_S)
        finally:
            for pid in paused:
                os.kill(pid, signal.SIGCONT)
        watcher.wait(lambda: states().get("c") == "member", "it is taken in again")
        moves_on("a", "b", "c")

        # (3) The broker is restarted: nobody is lost by that.
        before = watcher.version
        services.kafka.stop()
        process.join(soak(2 * TIMEOUT_S, 1))  # it does not end: this is how long the broker is away
        services.kafka.start()
        moves_on("a", "b", "c")
        assert {name: states()[name] for name in "abc"} == dict.fromkeys("abc", "member")
        assert watcher.version > before
        assert all(client.poll() is None for client in clients.values()) and process.is_alive()
        said = run.log.read_text()
        assert "Client d is lost: no " in said and "Client c is lost: no " in said
        assert "Client a is lost" not in said and "Client b is lost" not in said
    watcher.close()
    check_versions(run)
    if SOAK:
        print(f"four clients: {verify(run)}")


def check_versions(run: Run) -> None:
    """Every chunk that counted was acted under the version in force."""
    with LogReader(run.broker, run.topics.samples) as reader:
        acted = {
            (record.partition, record.offset): RecordHeaders.from_kafka(record.headers).version.number
            for record in reader.read_to_end(60.0)
        }
    entries = read_learner(run.ledger)
    accepted = [entry for entry in entries if entry.verdict == "accepted"]
    assert accepted and all(acted[entry.partition, entry.offset] == entry.number for entry in accepted)
    # What the lost ones sent does not count, and nothing is refused for another reason.
    assert {entry.verdict for entry in entries} <= {"accepted", "duplicate", "stale", "not-a-member"}
