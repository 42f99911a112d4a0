"""Where the figures of training go, for people: TensorBoard's files in the run's folder, Weights & Biases.

Nothing is decided by them, and none of them may stop the training.
"""

import importlib
import importlib.util
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from pipeline.errors import ConfigError
from pipeline.learner.reports.event_file import EventFile

log = logging.getLogger(__name__)


class Tracker(Protocol):
    """Takes figures of a run."""

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Take the figures at a step; what it raises is said once and costs these figures alone.

        Args:
            step: accepted transitions; never less than the step before.
            figures: by name, such as ``train/loss``.
        """
        ...

    def close(self) -> None:
        """There are no more."""
        ...


class TensorBoardTracker:
    """Writes what TensorBoard reads.

    Args:
        folder: of the run's event files.
        step: where the run goes on; what earlier files hold from there on is replaced.

    Raises:
        OSError: the folder cannot be written to.
    """

    def __init__(self, folder: Path, step: int) -> None:
        self._file = EventFile(folder, step)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """See `Tracker`; the figures are in the file when it returns."""
        self._file.write(step, figures)

    def close(self) -> None:
        """See `Tracker`."""
        self._file.close()


class WandbTracker:
    """Logs to Weights & Biases, as the run of this name in project ``pipeline``.

    Without a key that is accepted (``WANDB_API_KEY``, or ``wandb login``) it writes into the run's folder, from where
    ``wandb sync`` uploads it; ``WANDB_MODE`` decides otherwise. A run that goes on is resumed, and steps that it has
    are passed over.

    Args:
        folder: of the run; wandb keeps its files below.
        run: the run's name.
        config: the configuration, for its page.
    """

    def __init__(self, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        wandb = _wandb()
        folder.mkdir(parents=True, exist_ok=True)
        mode = os.environ.get("WANDB_MODE") or ("online" if _logged_in(wandb) else "offline")
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "pipeline"),
            id=run,
            name=run,
            dir=str(folder),
            config=dict(config),
            mode=mode,
            # An offline run is a folder of its own each time, and says so if it is told to resume.
            resume="allow" if mode == "online" else None,
            settings=wandb.Settings(console="off", silent=True),
        )

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """See `Tracker`."""
        self._run.log(dict(figures), step=step)

    def close(self) -> None:
        """See `Tracker`; what waits is uploaded first."""
        self._run.finish()


class Trackers:
    """Several trackers; one that fails is warned of once, and the others go on.

    Args:
        trackers: by name.
    """

    def __init__(self, trackers: Mapping[str, Tracker]) -> None:
        self._trackers = dict(trackers)
        self._said: set[str] = set()

    def __len__(self) -> int:
        return len(self._trackers)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Hand the figures to each."""
        for name, tracker in self._trackers.items():
            try:
                tracker.log(step, figures)
            except Exception as error:  # a figure is not worth a run
                self._say(name, error)

    def close(self) -> None:
        """Close each."""
        for name, tracker in self._trackers.items():
            try:
                tracker.close()
            except Exception as error:
                self._say(name, error)
        self._trackers = {}

    def _say(self, name: str, error: Exception) -> None:
        level = logging.DEBUG if name in self._said else logging.WARNING
        log.log(level, "Tracker %s does not take the figures; training goes on without: %s", name, error)
        self._said.add(name)


def require_trackers(names: Sequence[str]) -> None:
    """Make sure that these trackers can be opened, before anything else is.

    Raises:
        ConfigError: a package is missing; says how to install it.
    """
    if "wandb" in names:
        _wandb()


def open_trackers(names: Sequence[str], folder: Path, run: str, config: Mapping[str, Any], step: int) -> Trackers:
    """Open the trackers of a run; one that cannot be opened is warned of and left out.

    Args:
        names: ``tensorboard``, ``wandb``.
        folder: of the run.
        run: its name.
        config: its configuration.
        step: where it goes on, in accepted transitions; 0: it is new.

    Raises:
        ConfigError: a package is missing.
    """
    opened: dict[str, Tracker] = {}
    for name in names:
        try:
            if name == "wandb":
                opened[name] = WandbTracker(folder, run, config)
            else:
                opened[name] = TensorBoardTracker(folder / "tensorboard", step)
        except ConfigError:
            raise
        except Exception as error:  # such as a full disk, or a service that is away
            log.warning("Tracker %s cannot be opened; training goes on without: %s", name, error)
    return Trackers(opened)


def _wandb() -> ModuleType:
    if importlib.util.find_spec("wandb") is None:
        raise ConfigError(
            "learner.trackers names wandb, which is not installed: pip install 'pipeline[wandb]', or leave it out."
        )
    return importlib.import_module("wandb")


def _logged_in(wandb: Any) -> bool:
    try:
        return bool(wandb.login(prompt=False))
    except Exception as error:  # the key is refused, or the service is away
        log.warning("Weights & Biases cannot be reached with the key at hand; its files are kept here: %s", error)
        return False
