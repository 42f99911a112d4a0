"""Which version the best window of episodes was played with, and whether the learner was told to keep it."""

import json
import math
from typing import Any, NamedTuple, cast

from pipeline.experience import Version
from pipeline.wire import Command

KIND = "save_best"


class Candidate(NamedTuple):
    """The best version that the learner does not know of yet.

    Attributes:
        version: in the middle of the window's versions.
        score: mean return of the window.
    """

    version: Version
    score: float


class BestWindow:
    """Finds the best window; asks for a command at most once in a window's length, and once for a version.

    Args:
        run: the run's name.
        window: episodes in a window.

    Attributes:
        score: mean return of the best window so far; minus infinity before the first.
    """

    def __init__(self, run: str, window: int) -> None:
        self.score = float("-inf")
        self._run = run
        self._window = window
        self._since = window
        self._told: set[str] = set()
        self._candidate: Candidate | None = None

    def known(self, command: Command) -> None:
        """A command of the run's log: a telemetry process before this one may have sent it."""
        if command.kind != KIND:
            return
        self._told.add(command.id)
        try:
            score: object = cast("dict[str, Any]", json.loads(command.argument_json))["score"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return  # somebody else's nonsense, which the learner refuses
        if isinstance(score, int | float) and math.isfinite(score):
            self.score = max(self.score, score)

    def improves(self, score: float) -> bool:
        """One more episode ended: whether the window that ends with it is the best yet."""
        self._since += 1
        return math.isfinite(score) and score > self.score

    def note(self, score: float, version: Version) -> None:
        """The window at hand is the best yet."""
        self.score = score
        candidate = Candidate(version, score)
        self._candidate = None if self.command_id(candidate) in self._told else candidate

    @property
    def due(self) -> Candidate | None:
        """What the learner should be told now."""
        return self._candidate if self._since >= self._window else None

    @property
    def left(self) -> Candidate | None:
        """What the learner should be told before this process ends."""
        return self._candidate

    def told(self, candidate: Candidate) -> None:
        """The command is in the log."""
        self._told.add(self.command_id(candidate))
        self._since = 0
        if self._candidate == candidate:
            self._candidate = None

    def command_id(self, candidate: Candidate) -> str:
        """The same for a version whoever sends it, so it is applied once."""
        return f"best-{self._run}-{candidate.version}"
