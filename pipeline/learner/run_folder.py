"""``saves/<run>/``: the resolved config, checkpoints, and results."""

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from omegaconf import OmegaConf

from pipeline.config import PipelineConfig, to_dict
from pipeline.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def new_run_name(config: PipelineConfig) -> str:
    """A unique name: algorithm, environment, time and process."""
    environment = re.sub(r"[^a-z0-9]+", "-", config.environment.id.lower()).strip("-")
    return f"{config.algorithm.name}-{environment}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid() % 10000:04d}"


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
        (self.make() / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(to_dict(config))))

    def save_summary(self, summary: Mapping[str, object]) -> None:
        """Write the run's closing figures."""
        (self.make() / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")

    @property
    def checkpoint(self) -> Path:
        """Where the learner's own checkpoints go."""
        return self.path / "checkpoint"
