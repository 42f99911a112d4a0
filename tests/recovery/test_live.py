"""Four partitions and live clients: kills of learner, clients and uplinks lose nothing, and every version can be
computed again."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from pipeline.services import Services
from tests.flows.processes import Watcher, role
from tests.recovery.runs import POINTS, Run, moments, soak, verify
from tests.waiting import wait_until

SETTINGS = [
    "environment.envs=4",
    "algorithm.hidden=[32]",
    "algorithm.batch_size=32",
    "algorithm.learning_starts=300",
    "algorithm.updates_per_version=40",
    "algorithm.buffer_rows=3000",
    "learner.checkpoint_every=5",
]
CLIENT = ["environment.envs=4", "client.chunk_steps=64", "client.max_lead=1000", "client.chunk_age_s=0.2"]


def uplink_of(client: subprocess.Popen[bytes]) -> int:
    """The process id of a client's uplink, which the server of forks has forked; 0: none runs."""
    forked = [pid for server in children_of(client.pid) for pid in children_of(server)]
    return forked[0] if forked else 0


def children_of(parent: int) -> list[int]:
    # A child belongs to the thread that started it.
    found = list[int]()
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, children.read_text().split())
    return found


@pytest.mark.timeout(soak(3600, 600))
@pytest.mark.parametrize("per_update", soak([4, 0], [4]), ids=str)
def test_kills_lose_nothing_and_count_nothing_twice(local_services: Services, tmp_path: Path, per_update: int):
    """Whether train steps follow from counts, or (0, under `make soak`) are written down as they happened."""
    run = Run(
        local_services, f"live-{per_update}", tmp_path, *SETTINGS, f"algorithm.transitions_per_update={per_update}"
    )
    watcher = Watcher(local_services, run.name)
    every = soak(1, 6 if per_update else 8)
    arguments = {
        name: [*run.common, *CLIENT, f"client.actor={name}", f"client.ledger={tmp_path / name}"] for name in "abc"
    }
    with role("client", tmp_path / "b.log", *arguments["b"]) as b:
        with role("client", tmp_path / "a.log", *arguments["a"]) as a:
            for point in POINTS[2::every]:
                run.dies(point)
            uplink = uplink_of(b)
            for seconds in moments(2, soak(50, 2), 4.0):
                assert run.dies_in(seconds)
            a.send_signal(signal.SIGKILL)
        with role("client", tmp_path / "c.log", *arguments["c"]) as c:
            process = run.start()
            run.wait_passed(process, "announce.after", 4)
            os.kill(uplink, signal.SIGKILL)
            wait_until(lambda: uplink_of(b) not in (0, uplink), "another uplink")
            watcher.wait(lambda: {"a", "b", "c"} <= set(watcher.actors), "three actors have been there")
            assert b.poll() is None and c.poll() is None
    run.wait_judged(process)
    process.terminate()
    process.join(60)
    assert process.exitcode == 0, run.log.read_text()
    watcher.close()
    chunks, twice = run.check(*(tmp_path / name for name in "abc"))
    assert chunks > 50
    print(f"{chunks} acknowledged chunks, {twice} duplicates: none lost, none counted twice. {verify(run)}")
