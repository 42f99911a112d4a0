"""Checkpoints: a folder that is there whole or not at all.

Its manifest holds each file's sha256, so a flipped bit is found and the checkpoint before is used. The rename of a
temporary folder, fsynced in and out, is the only commit point (see `pipeline.files`).
"""

import contextlib
import hashlib
import json
import logging
import queue
import re
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from numpy.typing import NDArray

from pipeline.errors import CheckpointError, PipelineError
from pipeline.experience import Version
from pipeline.files import replace_folder
from pipeline.weights import pack, sha256, unpack

log = logging.getLogger(__name__)

FORMAT = 3
_TENSORS, _STATE, _MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
_NAME = re.compile(r"(\d{6})-(\d{9})-(\d{12})")


@dataclass(frozen=True)
class Snapshot:
    """The learner's state between two steps of the fold.

    Attributes:
        tensors: arrays by name, copies.
        state: JSON-able values.
        weights: the published tensors of the version in force; their sha256 goes into the state as ``sha256``, by
            which recovery finds out whether that version was announced. None where the state has it already.
    """

    tensors: Mapping[str, NDArray[Any]]
    state: Mapping[str, Any]
    weights: Mapping[str, NDArray[Any]] | None = None


class Saved(NamedTuple):
    """A checkpoint on disk.

    Attributes:
        version: in force when it was made.
        advanced: offsets that the learner had advanced by then.
        path: its folder.
    """

    version: Version
    advanced: int
    path: Path


def save_checkpoint(target: Path, snapshot: Snapshot) -> None:
    """Write a checkpoint; one that was there is kept as ``<target>.previous``."""
    state = dict(snapshot.state)
    if snapshot.weights is not None:
        state["sha256"] = sha256(pack(dict(snapshot.weights)))
    files = {_TENSORS: pack(dict(snapshot.tensors)), _STATE: json.dumps(state).encode()}
    manifest = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    replace_folder(target, {**files, _MANIFEST: json.dumps(manifest, indent=1).encode()})


def load_checkpoint(target: Path) -> Snapshot:
    """Read a checkpoint, or the previous one of that name if it is missing or damaged.

    Raises:
        CheckpointError: neither is whole, or they are of another release.
    """
    troubles: list[str] = []
    for folder in (target, target.with_name(f"{target.name}.previous")):
        try:
            return _load(folder)
        except (OSError, ValueError, KeyError, AttributeError, PipelineError) as error:
            troubles.append(f"{folder}: {error}")
    raise CheckpointError("There is no whole checkpoint. " + "; ".join(troubles))


def manifest_sha256(target: Path) -> str:
    """What identifies a checkpoint: the sha256 of its manifest.

    Raises:
        CheckpointError: it has none.
    """
    try:
        return hashlib.sha256((target / _MANIFEST).read_bytes()).hexdigest()
    except OSError as error:
        raise CheckpointError(f"{target} is no checkpoint: {error}") from error


def checkpoint_name(version: Version, advanced: int) -> str:
    """Folder name of a checkpoint; names sort by age."""
    return f"{version.epoch:06d}-{version.number:09d}-{advanced:012d}"


def saved_checkpoints(folder: Path) -> list[Saved]:
    """The checkpoints in a folder, the furthest first; whether they are whole is not looked at."""
    found: list[Saved] = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match and path.is_dir():
            epoch, number, advanced = map(int, match.groups())
            found.append(Saved(Version(epoch, number), advanced, path))
    return sorted(found, key=lambda saved: (saved.version.number, saved.advanced, saved.version.epoch), reverse=True)


class CheckpointWriter:
    """Writes checkpoints in a thread of its own: the fold only waits while its state is copied.

    Args:
        folder: of all checkpoints of the run.
        keep: how many of the newest that recovery can use stay, at least 2.
        announced: whether a version was announced; False: another epoch's was, under its number; None: none yet.
            Checkpoints of versions that may still be announced are of no use yet, and stay besides.
        on_saved: told after each, in the writing thread.
    """

    def __init__(
        self,
        folder: Path,
        keep: int,
        announced: Callable[[Version], bool | None],
        on_saved: Callable[[], None] | None = None,
    ) -> None:
        self._folder = folder
        self._keep = max(2, keep)
        self._announced = announced
        self._on_saved = on_saved
        self._waiting: queue.Queue[tuple[str, Snapshot] | None] = queue.Queue(1)
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def submit(self, name: str, snapshot: Snapshot) -> None:
        """Hand a snapshot over, at once; where the disk is slow it takes the place of one that still waits."""
        with contextlib.suppress(queue.Empty):
            self._waiting.get_nowait()
        self._waiting.put((name, snapshot))

    def close(self) -> None:
        """Write what waits, and end."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            name, snapshot = item
            try:
                save_checkpoint(self._folder / name, snapshot)
                self._prune()
                if self._on_saved is not None:
                    self._on_saved()
            except (OSError, PipelineError) as error:
                # A full disk must not end the training: recovery then begins with an older checkpoint.
                log.error("Checkpoint %s could not be written to %s: %s", name, self._folder, error)

    def _prune(self) -> None:
        found = [(saved, self._announced(saved.version)) for saved in saved_checkpoints(self._folder)]
        usable = [saved for saved, announced in found if announced]
        # Killed learners leave checkpoints of versions that nobody saw: they must not count among those kept.
        useless = [saved for saved, announced in found if announced is False]
        for saved in [*usable[self._keep :], *useless]:
            shutil.rmtree(saved.path, ignore_errors=True)


def _load(folder: Path) -> Snapshot:
    manifest = cast(dict[str, str], json.loads((folder / _MANIFEST).read_bytes()))
    read = {name: (folder / name).read_bytes() for name in (_TENSORS, _STATE)}
    for name, data in read.items():
        if hashlib.sha256(data).hexdigest() != manifest[name]:
            raise CheckpointError(f"{name} is damaged: its sha256 is not the manifest's")
    state = cast(dict[str, Any], json.loads(read[_STATE]))
    if state.get("format") != FORMAT:
        raise CheckpointError(f"it has format {state.get('format')}, this release reads format {FORMAT}")
    return Snapshot(unpack(read[_TENSORS]), state)
