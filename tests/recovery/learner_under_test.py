"""``pipeline learner`` in a process that dies by SIGKILL at the n-th pass of a named point.

    DIE_AT=announce.after:3 TRACE=file python -m tests.recovery.learner_under_test SETTING=VALUE ...

Functions are wrapped from outside; the learner's own code knows nothing of it. With ``TRACE`` every pass is appended
to a file, so that a test can act at that very moment.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from pipeline.broker import Producer
from pipeline.cli import main
from pipeline.learner import DQNTrainingNode
from pipeline.weights import ObjectStore

WRAPPED: dict[str, list[tuple[Any, str]]] = {
    "insert": [(DQNTrainingNode, "insert")],
    "train": [(DQNTrainingNode, "train_step")],
    "fsync": [(os, "fsync")],
    "rename": [(os, "rename"), (os, "replace")],
    "put": [(ObjectStore, "put_once")],
    "stat": [(ObjectStore, "stat")],
    "announce": [(Producer, "send_and_wait")],
    "send-version": [(Producer, "send")],
}
"""What is wrapped, by the point's name; each has a pass ``before`` and one ``after``."""

RARE = ("fsync", "rename", "put", "stat", "announce", "send-version")
"""Points that are traced; the others pass too often."""


def wrap(die_at: str, trace: str) -> None:
    """Wrap every named point.

    Args:
        die_at: ``name.before:n`` or ``name.after:n``; empty: never.
        trace: a file that each pass is appended to; empty: none.
    """
    place, _, number = die_at.partition(":")
    passes: Counter[str] = Counter()
    file = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if trace else -1

    def passed(point: str) -> None:
        passes[point] += 1
        if file >= 0 and point.partition(".")[0] in (*RARE, "started"):
            os.write(file, f"{os.getpid()} {point} {passes[point]}\n".encode())
        if point == place and passes[point] == int(number):
            os.kill(os.getpid(), signal.SIGKILL)

    for name, functions in WRAPPED.items():
        for owner, attribute in functions:
            setattr(owner, attribute, _around(name, getattr(owner, attribute), passed))
    passed("started.before")


def _around(name: str, function: Callable[..., Any], passed: Callable[[str], None]) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **named: Any) -> Any:
        # Heartbeats and dead letters pass here, too.
        counts = name != "send-version" or str(arguments[1]).endswith(".versions")
        if counts:
            passed(f"{name}.before")
        result = function(*arguments, **named)
        if counts:
            passed(f"{name}.after")
        return result

    return wrapped


if __name__ == "__main__":
    wrap(os.environ.get("DIE_AT", ""), os.environ.get("TRACE", ""))
    sys.exit(main(["learner", *sys.argv[1:]]))
