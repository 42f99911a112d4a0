"""What the local services are made of, fetched once per machine.

The cache is ``$PIPELINE_CACHE``, else the platform's folder for user caches. An entry is there
whole or not at all: it is made in a temporary folder and renamed, and a file lock keeps two
processes from making it twice.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


def cache_folder() -> Path:
    """The cache folder of this machine's user; it need not exist yet."""
    if chosen := os.environ.get("PIPELINE_CACHE"):
        return Path(chosen).expanduser().resolve()
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")) / "rl-pipeline"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "rl-pipeline"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "rl-pipeline"


def cached(name: str) -> Path | None:
    """The entry's folder, or None where it has not been fetched."""
    entry = cache_folder() / name
    return entry if entry.is_dir() else None


def fetched(name: str, make: Callable[[Path], None]) -> Path:
    """The entry's folder, made on first use.

    Args:
        name: the entry's name, which holds its version.
        make: fills the empty folder it is given; what it raises leaves no entry.
    """
    if entry := cached(name):
        return entry
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{name}.lock"):
        if entry := cached(name):
            return entry
        part = Path(tempfile.mkdtemp(prefix=f"{name}.part-", dir=cache))
        try:
            make(part)
            part.rename(cache / name)
        except BaseException:
            with contextlib.suppress(OSError):
                shutil.rmtree(part)
            raise
    return cache / name
