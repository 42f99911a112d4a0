"""``saves/<run>/``: the resolved config, checkpoints, the best model, manual saves, and results.

config.yaml                          the resolved configuration
checkpoints/                         the learner's own, made at every n-th version
origin/<sha256>/                     the checkpoint that the run was started from, if it was from one
best_model/                          the weights that scored best, and best.json
manual_save/<epoch>-<number>-<id>/   what `pipeline quicksave` made, never removed
tensorboard/                         the learner's figures, a file for each start
results.csv                          a line per episode, by the telemetry
telemetry.png, summary.json          the figure; the closing figures of a demo
"""

import hashlib
import json
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from omegaconf import OmegaConf

from pipeline.config import PipelineConfig, to_dict
from pipeline.errors import ConfigError
from pipeline.experience import Version
from pipeline.files import replace_file

_LONGEST = 63
_SAVED = re.compile(r"(\d{6,})-(\d{9,})-")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def new_run_name(config: PipelineConfig) -> str:
    """A unique name: algorithm, environment, time and 32 random bits, since several machines may share a broker."""
    environment = re.sub(r"[^a-z0-9]+", "-", config.environment.id.lower()).strip("-")
    unique = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
    about = f"{config.algorithm.name}-{environment}"[: _LONGEST - len(unique) - 1].rstrip("-")
    return f"{about}-{unique}"


class RunFolder:
    """The folder of one run; made when something is saved.

    Args:
        saves: the folder of all runs.
        run: the run's name.

    Raises:
        ConfigError: the name could not be a topic's or a folder's.
    """

    def __init__(self, saves: str, run: str) -> None:
        if not _NAME.fullmatch(run):
            raise ConfigError(
                f"run={run!r}: use letters, digits, '_' and '-', at most 63, beginning with one of the first two."
            )
        self.path = Path(saves) / run

    def make(self) -> Path:
        """The folder, made if need be."""
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path

    def save_config(self, config: PipelineConfig) -> None:
        """Write the resolved configuration (addresses and settings; never a secret)."""
        replace_file(self.make() / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(to_dict(config))).encode())

    def save_summary(self, summary: Mapping[str, object]) -> None:
        """Write the run's closing figures."""
        replace_file(self.make() / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())

    @property
    def checkpoints(self) -> Path:
        """The folder of the learner's own checkpoints."""
        return self.path / "checkpoints"

    def origin(self, sha256: str) -> Path:
        """The copy of a checkpoint that the run was started from, or went on from.

        Args:
            sha256: of the checkpoint's manifest.
        """
        return self.path / "origin" / sha256[:16]

    @property
    def best_model(self) -> Path:
        """The folder of the weights that scored best."""
        return self.path / "best_model"

    @property
    def manual_save(self) -> Path:
        """The folder of the checkpoints that were asked for."""
        return self.path / "manual_save"

    def needed_versions(self) -> set[Version]:
        """The versions that checkpoints and manual saves stand on; their weights stay in the store."""
        folders = [folder for folder in (self.checkpoints, self.manual_save) if folder.is_dir()]
        matches = (_SAVED.match(path.name) for folder in folders for path in folder.iterdir())
        return {Version(int(match[1]), int(match[2])) for match in matches if match is not None}

    def manual_save_of(self, version: Version, command: str) -> Path:
        """Where the checkpoint that a command asked for goes; the names sort as the versions do."""
        return self.manual_save / f"{version.epoch:06d}-{version.number:09d}-{_short(command)}"

    def find_manual_save(self, command: str) -> Path | None:
        """The checkpoint that was made for a command, by whichever learner of the run; None: there is none."""
        found = sorted(self.manual_save.glob(f"*-{_short(command)}"))
        return found[-1] if found else None


def _short(command: str) -> str:
    # Of the id's hash: the id comes from the log and may be any text.
    return hashlib.sha256(command.encode()).hexdigest()[:8]
