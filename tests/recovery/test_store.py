"""The store is killed in mid-upload: nothing is announced that cannot be fetched."""

from pathlib import Path

import pytest

from pipeline.connect import connect
from pipeline.services import Services
from pipeline.weights import ObjectStore
from tests.recovery.recorded import ANY_VERSION, SETTINGS, record
from tests.recovery.runs import Run, soak
from tests.waiting import wait_until

KILLS = soak(20, 3)


@pytest.mark.timeout(soak(1800, 300))
def test_store_killed_in_mid_upload(own_local_services: Services, tmp_path: Path):
    """The learner outlives it, and each announced version has the announced bytes."""
    # Large weights, so that an upload takes a while; many updates, so that the log lasts.
    run = Run(
        own_local_services,
        "store",
        tmp_path,
        *SETTINGS,
        "algorithm.hidden=[1024,2048]",
        "algorithm.batch_size=1",
        "algorithm.transitions_per_update=1",
        "algorithm.updates_per_version=5",
        "cleanup.by_learner=false",
        "learner.checkpoint_every=0",
        f"learner.version_window={ANY_VERSION}",
    )
    record(run.config, 100 * KILLS, tmp_path / "actors.ledger")
    minio = own_local_services.minio
    with run.learner() as learner:
        for _ in range(KILLS):
            done = run.passes(learner, "announce.after")
            wait_until(lambda done=done: run.passes(learner, "announce.after") > done, "a version is announced", 60.0)
            begun = run.passes(learner, "put.before")
            wait_until(lambda begun=begun: run.passes(learner, "put.before") > begun, "an upload begins", 60.0)
            minio.kill()
            minio.start()
        assert learner.is_alive(), run.log.read_text()
    store = ObjectStore(connect(run.config).store)
    versions = run.lineage().versions
    assert len(versions) > KILLS
    for version in versions:
        store.get(version.key, version.size, version.sha256)
    print(f"{KILLS} kills: {len(versions)} announced versions, all of them can be fetched")
