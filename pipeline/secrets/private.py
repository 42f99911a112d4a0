"""Files that only their owner may read."""

import os
import stat
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.files import replace_file

_OTHERS = 0o077


def read_private(path: Path) -> str:
    """The text of a private file.

    Raises:
        ConfigError: it is not there, or group or others may read or write it (where there are such modes).
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if os.name != "nt" and mode & _OTHERS:
            raise ConfigError(
                f"{path} is open to others (mode {mode:04o}): its secrets may be known; `chmod 600 {path}`"
            )
        return path.read_text()
    except OSError as error:
        raise ConfigError(f"the secret file {path} cannot be read: {error.strerror or error}") from error


def private_folder(path: Path) -> None:
    """Make a folder, and those above it, where they are missing: for nobody else to look into.

    Raises:
        OSError: it cannot be made.
    """
    if not path.is_dir():
        private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file in place of the one that may be there; its mode is right before it holds anything.

    Args:
        path: in a folder that is made where it is missing, for nobody else to look into.
        text: its content.
        mode: of the file.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    try:
        private_folder(path.parent)
        replace_file(path, text.encode(), mode)
    except OSError as error:
        raise ConfigError(f"the secret file {path} cannot be written: {error.strerror or error}") from error
