"""One samples partition, recorded: killed learners publish what an undisturbed one publishes, bit for bit."""

from pathlib import Path

import pytest

from pipeline.learner.durable.checkpoint import saved_checkpoints
from pipeline.learner.durable.run_folder import RunFolder
from pipeline.services import Services
from tests.recovery.checker import read_learner
from tests.recovery.recorded import SETTINGS, record
from tests.recovery.runs import POINTS, Run, moments, soak

CHUNKS = soak(4000, 300)


def recorded(services: Services, folder: Path, namespace: str) -> Run:
    """A run with the log in it; its learners end when they have read it."""
    run = Run(services, "recorded", folder, *SETTINGS, namespace=namespace)
    run.settings.append(f"learner.max_transitions={record(run.config, CHUNKS, folder / 'actors.ledger')}")
    return run


def to_the_end(run: Run) -> None:
    """A learner that is left alone; everything is accounted for."""
    run.ends(soak(1200, 150))
    chunks, twice = run.check(run.folder / "actors.ledger")
    assert chunks > 0.9 * CHUNKS and twice > 0


def damage_the_newest_checkpoint(run: Run, name: str) -> None:
    """Flip a bit in a file of the one that recovery would use; killed learners left others, of versions unannounced."""
    announced = {version.version for version in run.lineage().versions}
    saved = saved_checkpoints(RunFolder(run.config.saves, run.name).checkpoints)
    path = next(each.path for each in saved if each.version in announced) / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)


@pytest.fixture(scope="module")
def undisturbed(local_services: Services, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = recorded(local_services, tmp_path_factory.mktemp("undisturbed"), "undisturbed")
    to_the_end(run)
    assert run.sequence()[-1][0] > CHUNKS // 3
    return run


@pytest.mark.timeout(soak(3600, 600))
def test_killed_at_every_named_point(undisturbed: Run, local_services: Services, tmp_path: Path):
    """With damaged checkpoints and random kills besides: the sequence of (number, sha256) is the undisturbed run's,
    and so is each record's verdict. Outside `make soak` every other point has its turn."""
    run = recorded(local_services, tmp_path, "killed")
    for point in POINTS[:: soak(1, 2)]:
        run.dies(point)
    for name in ("tensors.safetensors", "state.json", "manifest.json"):
        damage_the_newest_checkpoint(run, name)
        run.dies("announce.after:2")
        assert "cannot be used, the one before is" in run.log.read_text()
    for seconds in moments(1, soak(50, 3), 3.0):
        if not run.dies_in(seconds):
            break
    to_the_end(run)
    assert run.sequence() == undisturbed.sequence()
    ours, theirs = read_learner(run.ledger), read_learner(undisturbed.ledger)
    assert [(each.offset, each.verdict) for each in ours] == [(each.offset, each.verdict) for each in theirs]
    print(f"{run.started} learners: {len(run.sequence())} versions, {len(ours)} verdicts, all as undisturbed")
