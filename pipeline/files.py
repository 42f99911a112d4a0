"""Files and folders that are there whole or not at all, whatever kills the process or the machine."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path


def write_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file and wait until the disk has it.

    Args:
        path: the file; one that was there is written over.
        data: its content.
        mode: of a file that was not there, less what the process's umask takes.
    """
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the disk has the folder's entries; Windows does so by itself."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left half-written in a folder; of a living one as well, whose write then fails."""
    for path in folder.glob(".*.tmp"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file in place of the one that may be there: readers find the old or the new one, whole.

    Args:
        path: the file; its folder is made where it is missing.
        data: its content.
        mode: as for :func:`write_file`; the old file's does not count.

    Raises:
        OSError: the disk is full or refuses; the old one is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        write_file(temporary, data, mode)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def replace_folder(target: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder in place of the one that may be there, which is kept as ``<target>.previous``.

    In this order: (1) files into a temporary folder beside it, each fsynced, (2) fsync of that folder, (3) the old one
    is moved aside, (4) rename, the commit point, (5) fsync of the parent. A process that dies between (3) and (4)
    leaves the old one under ``.previous`` only.

    Raises:
        OSError: the disk is full or refuses; the old one is still there, under either name.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        for name, data in files.items():
            write_file(temporary / name, data)
        sync_folder(temporary)
        if target.exists():
            previous = target.with_name(f"{target.name}.previous")
            shutil.rmtree(previous, ignore_errors=True)
            target.rename(previous)
        temporary.rename(target)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(target.parent)
