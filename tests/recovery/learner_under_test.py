"""``pipeline learner`` in a process that dies by SIGKILL at the n-th pass of a named point.

Functions are wrapped from outside; the learner's own code knows nothing of it. Every pass of a traced point is
appended to a file, so that a test can act at that very moment.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.broker import Producer
from pipeline.cli import main
from pipeline.learner import DQNTrainingNode, PPOTrainingNode
from pipeline.learner.intake.ledger import LearnerLedger
from pipeline.weights import ObjectStore


def _of_checkpoint(path: Any) -> bool:
    """Whether a path, or an open file, is a checkpoint or part of one."""
    name = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else str(path)
    return not {"checkpoints", "manual_save"}.isdisjoint(Path(name).parts)


def _to_versions(producer: Any, topic: str, *rest: Any, **named: Any) -> bool:
    return topic.endswith(".versions")


def _always(*arguments: Any, **named: Any) -> bool:
    return True


POINTS: dict[str, tuple[list[tuple[Any, str]], Callable[..., bool]]] = {
    "insert": ([(DQNTrainingNode, "insert"), (PPOTrainingNode, "insert")], _always),
    "train": ([(DQNTrainingNode, "train_step"), (PPOTrainingNode, "train_step")], _always),
    "fsync": ([(os, "fsync")], _of_checkpoint),
    "rename": ([(os, "rename"), (os, "replace")], lambda old, new: _of_checkpoint(old)),
    "put": ([(ObjectStore, "put_once")], _always),
    "stat": ([(ObjectStore, "stat")], _always),
    "announce": ([(Producer, "send_and_wait")], _to_versions),
    "send-version": ([(Producer, "send")], _to_versions),
    "rewind": ([(LearnerLedger, "rewind")], _always),
}
"""The functions that are wrapped, by the point's name, and which calls count; a pass is ``before`` or ``after``."""

UNTRACED = ("insert", "train")
"""These pass too often."""


def run_learner(overrides: list[str], die_at: str, trace: str, log: str) -> None:
    """A process's whole life.

    Args:
        overrides: settings.
        die_at: ``name.before:n`` or ``name.after:n``; empty: it goes on.
        trace: a file that passes are appended to, as ``pid point n``.
        log: gets standard output and error.
    """
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    passed = _recorder(die_at, os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
    for name, (functions, counts) in POINTS.items():
        for owner, attribute in functions:
            setattr(owner, attribute, _around(name, getattr(owner, attribute), counts, passed))
    passed("started.before")
    sys.exit(main(["learner", *overrides]))


def _recorder(die_at: str, trace: int) -> Callable[[str], None]:
    fatal, _, number = die_at.partition(":")
    passes: Counter[str] = Counter()

    def passed(point: str) -> None:
        passes[point] += 1
        if point.partition(".")[0] not in UNTRACED:
            os.write(trace, f"{os.getpid()} {point} {passes[point]}\n".encode())
        if point == fatal and passes[point] == int(number):
            os.kill(os.getpid(), signal.SIGKILL)

    return passed


def _around(
    name: str, function: Callable[..., Any], counts: Callable[..., bool], passed: Callable[[str], None]
) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **named: Any) -> Any:
        if not counts(*arguments, **named):
            return function(*arguments, **named)
        passed(f"{name}.before")
        result = function(*arguments, **named)
        passed(f"{name}.after")
        return result

    return wrapped
