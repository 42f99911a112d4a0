"""A checkpoint is there whole or not at all."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import CheckpointError
from pipeline.learner.checkpoint import load_checkpoint, save_checkpoint


def test_round_trip_and_replacement(tmp_path: Path):
    """The newest is loaded; the one before is kept."""
    target = tmp_path / "checkpoint"
    for number in range(3):
        save_checkpoint(target, {"w": np.full(3, number, np.float32)}, {"number": number})
    tensors, state = load_checkpoint(target)
    assert state == {"number": 2}
    assert tensors["w"].tolist() == [2, 2, 2]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint", "checkpoint.previous"]


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_flipped_bit_is_found_and_the_one_before_is_used(tmp_path: Path, name: str):
    """Any file."""
    target = tmp_path / "checkpoint"
    for number in range(2):
        save_checkpoint(target, {"w": np.full(3, number, np.float32)}, {"number": number})
    data = bytearray((target / name).read_bytes())
    data[len(data) // 2] ^= 1
    (target / name).write_bytes(bytes(data))
    _, state = load_checkpoint(target)
    assert state == {"number": 0}


def test_nothing_whole_is_an_error(tmp_path: Path):
    """It names both places."""
    with pytest.raises(CheckpointError, match="previous"):
        load_checkpoint(tmp_path / "checkpoint")
