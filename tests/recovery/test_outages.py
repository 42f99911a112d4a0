"""The broker is killed and paused while actors produce: nothing acknowledged is lost, nothing counts twice."""

from pathlib import Path

import pytest

from pipeline.services import Services
from tests.flows.processes import Watcher, role
from tests.recovery.checker import read_actors
from tests.recovery.runs import Run, soak
from tests.recovery.test_live import CLIENT, SETTINGS
from tests.waiting import wait_until

KILLS, PAUSES = soak(20, 2), soak(5, 1)
DELIVERY_MS = 2000


def sent_again(ledgers: list[Path]) -> int:
    """How often a chunk was handed to the producer that had been handed to it before."""
    produced = sum(line.startswith("P") for path in ledgers for line in path.read_text().splitlines())
    return produced - len(read_actors(ledgers).produced)


@pytest.mark.timeout(soak(3600, 600))
def test_broker_killed_and_paused_while_actors_produce(own_local_services: Services, tmp_path: Path):
    """Deliveries that time out are sent again, so chunks come twice; they are accepted once."""
    run = Run(own_local_services, "outages", tmp_path, *SETTINGS)
    ledgers = [tmp_path / "a", tmp_path / "b"]
    kafka = own_local_services.kafka
    watcher = Watcher(own_local_services, run.name)

    def goes_on(what: str) -> None:
        accepted, version = watcher.accepted, watcher.version
        watcher.wait(lambda: watcher.accepted > accepted and watcher.version > version, what, 120.0)

    common = [
        *run.common,
        *CLIENT,
        f"+kafka.producer.message.timeout.ms={DELIVERY_MS}",
        # A full queue holds the actors back, so that there are not only stale samples after an outage.
        "client.queue_policy=block",
        "client.queue_bytes=200000",
    ]
    with (
        role("client", tmp_path / "a.log", *common, "client.actor=a", f"client.ledger={ledgers[0]}") as a,
        role("client", tmp_path / "b.log", *common, "client.actor=b", f"client.ledger={ledgers[1]}") as b,
        run.learner() as learner,
    ):
        goes_on("the run begins")
        for time in range(KILLS):
            kafka.kill()
            kafka.start()
            goes_on(f"after kill {time}")
        for time in range(PAUSES):
            before = sent_again(ledgers)
            kafka.pause()
            wait_until(lambda before=before: sent_again(ledgers) > before + 1, "deliveries time out", 60.0)
            kafka.resume()
            goes_on(f"after pause {time}")
        assert learner.is_alive() and a.poll() is None and b.poll() is None, run.log.read_text()
        a.terminate()
        b.terminate()
        assert a.wait(60) == 0 and b.wait(60) == 0
        run.wait_judged(learner)
    watcher.close()
    chunks, twice = run.check(*ledgers)
    assert chunks > 50 and twice > 0
    print(f"{KILLS} kills, {PAUSES} pauses: {chunks} acknowledged chunks, {twice} duplicates: none lost, none twice")
