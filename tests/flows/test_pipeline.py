"""The whole pipeline on a real Kafka and a real MinIO."""

import signal
from pathlib import Path

import pytest

from pipeline.broker import LogReader
from pipeline.connect import connect
from pipeline.services import Services
from pipeline.weights import ObjectStore, sha256
from pipeline.wire import ModelVersionRecord, TelemetryWindow
from tests.flows.processes import Watcher, config_of, last_state, overrides, role

SMALL = ["algorithm.learning_starts=500", "algorithm.updates_per_version=100", "environment.envs=4"]


@pytest.mark.timeout(300)
def test_clients_come_and_go_and_nothing_but_the_counts_changes(local_services: Services, tmp_path: Path):
    """A learner, two clients and telemetry; one client is killed with -9, a third one starts in between."""
    run = "comes-and-goes"
    common = overrides(local_services, run, tmp_path / "saves")
    watcher = Watcher(local_services, run)
    with (
        role("learner", tmp_path / "learner.log", *common, *SMALL) as learner,
        role("client", tmp_path / "a.log", *common, "client.actor=a", "kafka.timeout_s=60") as a,
        role("client", tmp_path / "b.log", *common, "client.actor=b", "kafka.timeout_s=60"),
        role("telemetry", tmp_path / "telemetry.log", *common, "telemetry.update_s=0.2", "kafka.timeout_s=60") as t,
    ):
        watcher.wait(lambda: watcher.version >= 3 and {"a", "b"} <= set(watcher.actors), "version 3, two actors")
        a.send_signal(signal.SIGKILL)
        a.wait()
        with role("client", tmp_path / "c.log", *common, "client.actor=c"):
            before = watcher.version
            watcher.wait(lambda: "c" in watcher.actors and watcher.version >= before + 3, "versions go on with c")
        assert learner.poll() is None, (tmp_path / "learner.log").read_text()
        assert t.poll() is None, (tmp_path / "telemetry.log").read_text()
        accepted = watcher.accepted
        assert accepted > 500
    assert learner.returncode == 0, (tmp_path / "learner.log").read_text()

    config = config_of(local_services, run, tmp_path / "saves")
    store = ObjectStore(connect(config).store)
    numbers = []
    reader = LogReader(watcher.settings, watcher.topics.versions)
    for record in reader.read_to_end(30.0):
        version = ModelVersionRecord.decode(record.value or b"")
        if version.kind == "weights":
            numbers.append(version.number)
            data = store.get(version.key, version.size, version.sha256)
            assert sha256(data) == version.sha256
    reader.close()
    assert numbers == list(range(len(numbers)))

    windows = LogReader(watcher.settings, watcher.topics.telemetry)
    records = windows.read_to_end(30.0)
    windows.close()
    last = TelemetryWindow.decode(records[-1].value or b"")
    assert last.episodes > 0 and last.mean_return > 0
    assert (tmp_path / "saves" / run / "telemetry.png").stat().st_size > 5000
    state = last_state(tmp_path / "saves", run)
    assert state["number"] == numbers[-1]
    watcher.close()


@pytest.mark.timeout(300)
def test_a_learner_started_again_goes_on_with_higher_numbers(local_services: Services, tmp_path: Path):
    """Same run: next epoch, numbers go on, the client notices nothing but new versions."""
    run = "starts-again"
    common = overrides(local_services, run, tmp_path / "saves")
    watcher = Watcher(local_services, run)
    with role("client", tmp_path / "a.log", *common, "client.actor=a", "kafka.timeout_s=60") as client:
        with role("learner", tmp_path / "learner.log", *common, *SMALL):
            watcher.wait(lambda: watcher.version >= 3, "version 3")
        first = watcher.version
        with role("learner", tmp_path / "again.log", *common, *SMALL):
            watcher.wait(
                lambda: (
                    watcher.learner is not None
                    and watcher.learner.version_epoch == 2
                    and watcher.version >= first + 3
                    and watcher.actors["a"].version_epoch == 2
                ),
                "versions of the second epoch reach the client",
            )
        assert client.poll() is None, (tmp_path / "a.log").read_text()
    assert len(watcher.acted_as["a"]) == 1
    watcher.close()


@pytest.mark.timeout(240)
def test_a_run_that_ends_ends_its_clients(local_services: Services, tmp_path: Path):
    """After learner.max_transitions the manifest says so, and learner and client end by themselves."""
    run = "ends"
    common = overrides(local_services, run, tmp_path / "saves")
    with (
        role("learner", tmp_path / "learner.log", *common, *SMALL, "learner.max_transitions=1500") as learner,
        role("client", tmp_path / "a.log", *common, "client.actor=a", "kafka.timeout_s=60") as client,
    ):
        assert learner.wait(120) == 0, (tmp_path / "learner.log").read_text()
        assert client.wait(60) == 0, (tmp_path / "a.log").read_text()
    state = last_state(tmp_path / "saves", run)
    counts = state["accounting"]
    assert counts["accepted_transitions"] >= 1500
    assert counts["offsets_advanced"] == counts["accepted"] + counts["duplicates"] + counts["expired"] + sum(
        counts["rejected"].values()
    )
