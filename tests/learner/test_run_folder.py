"""The run folder: unique names, and files that are whole or the old ones."""

import os
from pathlib import Path

import pytest

from pipeline.config import load_config
from pipeline.errors import ConfigError
from pipeline.experience import Version
from pipeline.files import replace_file, replace_folder
from pipeline.learner.durable import run_folder
from pipeline.learner.durable.run_folder import RunFolder, new_run_name


def test_new_names_are_unique_and_usable(tmp_path: Path):
    config = load_config(["environment.id=Some/VeryLongNamespaceAndEnvironmentNameThatGoesOnAndOn-v12"])
    names = {new_run_name(config) for _ in range(200)}
    assert len(names) == 200
    for name in names:
        RunFolder(str(tmp_path), name)
        assert name.startswith("dqn-some-verylong")


@pytest.mark.parametrize("name", ["", "../up", "a/b", "a b", "-a", "x" * 64])
def test_names_that_are_no_folders(tmp_path: Path, name: str):
    with pytest.raises(ConfigError, match="run="):
        RunFolder(str(tmp_path), name)


def test_manual_saves_are_found_by_their_command(tmp_path: Path):
    """Whatever text the id is: it comes from the log."""
    folder = RunFolder(str(tmp_path), "run")
    assert folder.find_manual_save("../../etc") is None
    saved = folder.manual_save_of(Version(1, 5), "../../etc")
    assert saved.parent == folder.manual_save
    saved.mkdir(parents=True)
    folder.manual_save_of(Version(1, 6), "other").mkdir()
    saved.with_name(f"{saved.name}.previous").mkdir()
    assert folder.find_manual_save("../../etc") == saved
    assert folder.find_manual_save("*") is None


def test_the_configuration_is_replaced_whole(tmp_path: Path):
    folder = RunFolder(str(tmp_path), "run")
    for seed in (1, 2):
        folder.save_config(load_config([f"learner.seed={seed}"]))
    assert "seed: 2" in (folder.path / "config.yaml").read_text()
    assert [path.name for path in folder.path.iterdir()] == ["config.yaml"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    replace_file(tmp_path / "file", b"old")
    replace_folder(tmp_path / "folder", {"a": b"old"})
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(tmp_path / "file", b"new")
    with pytest.raises(OSError, match="No space"):
        replace_folder(tmp_path / "folder", {"a": b"new"})
    assert (tmp_path / "file").read_bytes() == b"old"
    assert (tmp_path / "folder" / "a").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_the_documented_tree_is_the_folders(tmp_path: Path):
    folder = RunFolder(str(tmp_path), "run")
    for path in (folder.checkpoints, folder.best_model, folder.manual_save):
        assert path.parent == folder.path
        assert path.name in (run_folder.__doc__ or "")
