"""Checkpoints: a folder that is there whole or not at all.

The steps, in the order that makes them safe: (1) everything into a temporary folder beside the target, each file
fsynced; (2) a manifest with each file's sha256; (3) fsync of the folder; (4) the old target is moved aside; (5) rename,
the commit point; (6) fsync of the parent; (7) the one before the previous is removed.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from numpy.typing import NDArray

from pipeline.errors import CheckpointError, PipelineError
from pipeline.weights import pack, unpack

_TENSORS, _STATE, _MANIFEST = "tensors.safetensors", "state.json", "manifest.json"


def save_checkpoint(target: Path, tensors: Mapping[str, NDArray[Any]], state: Mapping[str, Any]) -> None:
    """Write a checkpoint; the one that was there is kept as ``<target>.previous``."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    files = {_TENSORS: pack(dict(tensors)), _STATE: json.dumps(state, indent=1).encode()}
    manifest = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    files[_MANIFEST] = json.dumps(manifest, indent=1).encode()
    for name, data in files.items():
        _write(temporary / name, data)
    _sync_folder(temporary)
    previous = target.with_name(f"{target.name}.previous")
    if target.exists():
        shutil.rmtree(previous, ignore_errors=True)
        target.rename(previous)
    temporary.rename(target)
    _sync_folder(target.parent)


def has_checkpoint(target: Path) -> bool:
    """Whether a checkpoint, or the one before, is there; a crash between two renames leaves only the latter."""
    return target.exists() or target.with_name(f"{target.name}.previous").exists()


def load_checkpoint(target: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read a checkpoint, or the previous one if it is missing or damaged.

    Returns:
        Tensors by name, and the state.

    Raises:
        CheckpointError: neither is whole.
    """
    troubles: list[str] = []
    for folder in (target, target.with_name(f"{target.name}.previous")):
        try:
            return _load(folder)
        except (OSError, ValueError, KeyError, PipelineError) as error:
            troubles.append(f"{folder}: {error}")
    raise CheckpointError("There is no whole checkpoint. " + "; ".join(troubles))


def _load(folder: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    manifest = cast(dict[str, str], json.loads((folder / _MANIFEST).read_bytes()))
    for name, expected in manifest.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != expected:
            raise CheckpointError(f"{name} is damaged: its sha256 is not the manifest's")
    state = cast(dict[str, Any], json.loads((folder / _STATE).read_bytes()))
    return unpack((folder / _TENSORS).read_bytes()), state


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
