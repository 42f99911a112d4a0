"""The broker is killed and paused while actors produce: nothing acknowledged is lost, nothing counts twice."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from pipeline.client import DQNConnector, Transition
from pipeline.config import load_config
from pipeline.services import Services
from tests.flows.processes import Watcher
from tests.recovery.checker import read_actors
from tests.recovery.runs import Run, soak
from tests.recovery.test_live import SETTINGS
from tests.waiting import wait_until

KILLS, PAUSES = soak(20, 2), soak(5, 1)
DELIVERY_MS = 2000
STEP_S = 0.003


@contextmanager
def actor(run: Run, name: str) -> Iterator[Path]:
    """A connector that pushes some hundred steps a second, broker or not; its ledger."""
    ledger = run.folder / name
    settings = [
        f"client.actor={name}",
        f"client.ledger={ledger}",
        "client.chunk_steps=16",
        "client.chunk_age_s=0.2",
        f"+kafka.producer.message.timeout.ms={DELIVERY_MS}",
    ]
    connector = DQNConnector(load_config([*run.common, *settings]))
    stopping = threading.Event()

    def push() -> None:
        here = np.zeros(4, np.float32)
        while not stopping.wait(STEP_S):
            with connector:
                action = int(connector.agent.act(here[None], 1.0, np.random.default_rng(0))[0])
            there = here + np.float32(1e-3)
            connector.push_sample(Transition(here, action, 1.0, there, False, False))
            here = there

    thread = threading.Thread(target=push, name=name)
    thread.start()
    try:
        yield ledger
        stopping.set()
        thread.join()
        assert connector.flush(60.0) and connector.dropped == 0 and connector.uplink_restarts == 0
    finally:
        stopping.set()
        thread.join()
        connector.close()


def acknowledged(ledger: Path) -> int:
    """How many of the actor's chunks the broker has said to have."""
    return len(read_actors([ledger]).acknowledged)


def sent_again(ledgers: list[Path]) -> int:
    """How often a chunk was handed to the producer that had been handed to it before."""
    produced = sum(line.startswith("P") for path in ledgers for line in path.read_text().splitlines())
    return produced - len(read_actors(ledgers).produced)


@pytest.mark.timeout(soak(3600, 600))
def test_broker_killed_and_paused_while_actors_produce(own_local_services: Services, tmp_path: Path):
    """Deliveries that time out are sent again, so chunks come twice; they are accepted once."""
    run = Run(own_local_services, "outages", tmp_path, *SETTINGS)
    kafka = own_local_services.kafka
    with run.learner() as learner, ExitStack() as stack:
        watcher = Watcher(own_local_services, run.name)
        stack.callback(watcher.close)
        with ExitStack() as actors:
            ledgers = [actors.enter_context(actor(run, name)) for name in "ab"]

            def goes_on(what: str) -> None:
                accepted, version = watcher.accepted, watcher.version
                watcher.wait(lambda: watcher.accepted > accepted and watcher.version > version, what, 120.0)
                # Both of them: one that is not connected when the broker stands still sends nothing twice.
                before = [acknowledged(ledger) for ledger in ledgers]
                wait_until(
                    lambda: all(acknowledged(ledger) > so_far for ledger, so_far in zip(ledgers, before, strict=True)),
                    f"{what}: acknowledged",
                    120.0,
                )

            goes_on("the run begins")
            for kill in range(KILLS):
                kafka.kill()
                kafka.start()
                goes_on(f"after kill {kill}")
            for pause in range(PAUSES):
                before = sent_again(ledgers)
                kafka.pause()
                wait_until(lambda before=before: sent_again(ledgers) > before + 1, "deliveries time out", 60.0)
                kafka.resume()
                goes_on(f"after pause {pause}")
            assert learner.is_alive(), run.log.read_text()
        run.wait_judged(learner)
    chunks, twice = run.check(*ledgers)
    assert chunks > 50 and twice > 0
    print(f"{KILLS} kills, {PAUSES} pauses: {chunks} acknowledged chunks, {twice} duplicates: none lost, none twice")
