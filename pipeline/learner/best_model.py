"""``best_model/``: the weights that the best window of episodes was played with, not those that are current."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, cast

from pipeline.errors import CommandError
from pipeline.experience import Version
from pipeline.files import replace_folder
from pipeline.wire import ModelVersionRecord

_FACTS, _WEIGHTS = "best.json", "weights.safetensors"


class Announced(Protocol):
    """Where announced weights are: the learner's lineage and its store. Called from the thread that saves."""

    def announced(self, version: Version) -> ModelVersionRecord | None:
        """The version's announcement; None: this run never announced it."""
        ...

    def fetch(self, record: ModelVersionRecord) -> bytes:
        """The announced object, its size and sha256 checked.

        Raises:
            WeightsNotFoundError, WeightsCorruptError: it is not there any more.
            StoreError: the store fails; trying again may help.
        """
        ...

    def pin(self, version: Version, note: str) -> None:
        """Say on the versions topic that clean-ups leave this version alone; returns when the broker has it.

        Raises:
            FencedError: another learner has the run now.
            BrokerError: not acknowledged; trying again may help.
        """
        ...


@dataclass(frozen=True)
class Best:
    """What a ``save_best`` command asks for.

    Attributes:
        version: whose weights are kept.
        score: mean return of the window of episodes that it was played in.
        command: the command's id.
    """

    version: Version
    score: float
    command: str

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any], command: str) -> Self:
        """Read ``{"epoch": …, "number": …, "score": …}``.

        Raises:
            CommandError: a figure is missing or out of range.
        """
        epoch, number, score = (arguments.get(name) for name in ("epoch", "number", "score"))
        if not (type(epoch) is int and type(number) is int and Version(epoch, number).in_range()):
            raise CommandError(f"save_best names no version: epoch={epoch!r}, number={number!r}")
        if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
            raise CommandError(f"save_best needs a finite score, not {score!r}")
        return cls(Version(epoch, number), float(score), command)


def save_best(folder: Path, best: Best, source: Announced) -> str:
    """Keep a version's weights; what came of it, as a sentence.

    In this order: (1) find its announcement, (2) pin it, so that no clean-up can come in between, (3) fetch it by its
    announced key and sha256, (4) write the folder beside the old one, (5) rename, the commit point. Each step can be
    repeated: a process that dies in between starts over.

    Args:
        folder: ``best_model/``; the one before is kept as ``best_model.previous/``.
        best: what to keep.
        source: the announced versions.

    Raises:
        CommandError: the version was never announced, or the one that is kept scored higher.
        PipelineError: as `Announced`.
        OSError: the disk refuses; the model kept before is still there.
    """
    kept = kept_best(folder)
    if kept is not None and kept.command == best.command:
        return f"{folder.resolve()} holds version {best.version}"
    if kept is not None and kept.score > best.score:
        raise CommandError(
            f"{folder} keeps version {kept.version}, which scored {kept.score:g}, more than {best.version} with "
            f"{best.score:g}"
        )
    record = source.announced(best.version)
    if record is None:
        raise CommandError(f"version {best.version} was never announced, so it cannot be saved")
    source.pin(best.version, f"best: {best.score:g}")
    weights = source.fetch(record)
    facts = {
        "epoch": best.version.epoch,
        "number": best.version.number,
        "score": best.score,
        "sha256": record.sha256,
        "key": record.key,
        "command": best.command,
    }
    replace_folder(folder, {_WEIGHTS: weights, _FACTS: (json.dumps(facts, indent=2) + "\n").encode()})
    return f"{folder.resolve()} holds version {best.version}"


def kept_best(folder: Path) -> Best | None:
    """What ``best_model/`` holds; None: nothing that can be read."""
    try:
        facts = cast("dict[str, Any]", json.loads((folder / _FACTS).read_bytes()))
        return Best.from_arguments(facts, str(facts["command"])) if (folder / _WEIGHTS).exists() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CommandError):
        return None
