"""A checkpoint is there whole or not at all."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import CheckpointError
from pipeline.experience import Version
from pipeline.files import remove_leftovers
from pipeline.learner.durable.checkpoint import (
    FORMAT,
    CheckpointWriter,
    Snapshot,
    checkpoint_name,
    load_checkpoint,
    save_checkpoint,
    saved_checkpoints,
)
from pipeline.weights import pack, sha256
from tests.waiting import wait_until


def snapshot(number: int) -> Snapshot:
    return Snapshot({"w": np.full(3, number, np.float32)}, {"format": FORMAT, "number": number, "sha256": "announced"})


def test_round_trip_and_replacement(tmp_path: Path):
    """The newest is loaded; the one before is kept."""
    target = tmp_path / "checkpoint"
    for number in range(3):
        save_checkpoint(target, snapshot(number))
    loaded = load_checkpoint(target)
    assert loaded.state == snapshot(2).state
    assert loaded.tensors["w"].tolist() == [2, 2, 2]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint", "checkpoint.previous"]


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_flipped_bit_is_found_and_the_one_before_is_used(tmp_path: Path, name: str):
    """Any file."""
    target = tmp_path / "checkpoint"
    for number in range(2):
        save_checkpoint(target, snapshot(number))
    data = bytearray((target / name).read_bytes())
    data[len(data) // 2] ^= 1
    (target / name).write_bytes(bytes(data))
    assert load_checkpoint(target).state["number"] == 0


def test_nothing_whole_is_an_error(tmp_path: Path):
    """It names both places."""
    with pytest.raises(CheckpointError, match="previous"):
        load_checkpoint(tmp_path / "checkpoint")


def test_another_format_is_refused(tmp_path: Path):
    """Instead of being taken for damaged, or half understood."""
    save_checkpoint(tmp_path / "checkpoint", Snapshot({}, {"format": FORMAT + 1}))
    with pytest.raises(CheckpointError, match=f"format {FORMAT + 1}"):
        load_checkpoint(tmp_path / "checkpoint")


def test_the_hash_of_the_weights_is_that_of_their_announcement(tmp_path: Path):
    """Which is of the packed tensors."""
    weights = {"b": np.arange(4, dtype=np.float32), "a": np.ones((2, 2), np.float32)}
    save_checkpoint(tmp_path / "checkpoint", Snapshot({}, snapshot(1).state, weights))
    assert load_checkpoint(tmp_path / "checkpoint").state["sha256"] == sha256(pack(weights))


def test_what_killed_processes_left_is_removed(tmp_path: Path):
    """And nothing else."""
    (tmp_path / ".left.1.tmp").mkdir()
    (tmp_path / ".left.1.tmp" / "file").touch()
    (tmp_path / ".results.csv.2.tmp").touch()
    save_checkpoint(tmp_path / "checkpoint", snapshot(0))
    remove_leftovers(tmp_path)
    remove_leftovers(tmp_path / "not there")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_the_writer_keeps_the_newest(tmp_path: Path):
    """Of those that recovery can use; others stay besides."""
    saved: list[int] = []
    save_checkpoint(tmp_path / checkpoint_name(Version(1, 3), 30), snapshot(3))

    def announced(version: Version) -> bool | None:
        return None if version.number == 4 else version.epoch == 1 + version.number // 3

    writer = CheckpointWriter(tmp_path, 2, announced, lambda: saved.append(len(saved)))
    for number in range(5):
        writer.submit(checkpoint_name(Version(1 + number // 3, number), 10 * number), snapshot(number))
        wait_until(lambda number=number: len(saved) > number, "the checkpoint is written")
    writer.close()
    # Version 4 is not announced yet: were the learner killed now, the two others would be of use. 1.3 never was.
    assert [each.version for each in saved_checkpoints(tmp_path)] == [Version(2, 4), Version(2, 3), Version(1, 2)]
    assert len(saved) == 5
    assert len(list(tmp_path.iterdir())) == 3


def test_a_full_disk_does_not_end_the_training(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """It is said, and the next one is tried."""
    blocked = tmp_path / "checkpoints"
    blocked.write_text("a file where the folder should be")
    writer = CheckpointWriter(blocked, 2, lambda version: True)
    writer.submit(checkpoint_name(Version(1, 1), 1), snapshot(1))
    writer.close()
    assert "could not be written" in caplog.text
