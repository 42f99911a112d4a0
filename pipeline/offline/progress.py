"""How far it is: a bar on a terminal, otherwise a line now and then; always on stderr."""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

_EVERY_S = 5.0


class Advance(Protocol):
    """Called with how much more is done, and perhaps with what is in hand."""

    def __call__(self, done: int, /, now: str = "") -> None: ...


@contextmanager
def progress(what: str, total: int, unit: str) -> Generator[Advance]:
    """Show progress while the block runs.

    Args:
        what: said before the bar.
        total: of all that is to be done; 0: nothing is shown.
        unit: what is counted.
    """
    if total <= 0:
        yield lambda done, now="": None
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task(what, total=total, now="")

            def advance(done: int, /, now: str = "") -> None:
                bar.update(task, advance=done, now=now)

            yield advance
    else:
        yield _Lines(what, total, unit)


def silent(done: int, /, now: str = "") -> None:
    """Shows nothing."""


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, TextColumn("{task.fields[now]}"), console=Console(stderr=True), transient=True)


class _Lines:
    """A line every five seconds; none when it is done sooner."""

    def __init__(self, what: str, total: int, unit: str) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._done = 0
        self._due = time.monotonic() + _EVERY_S

    def __call__(self, done: int, /, now: str = "") -> None:
        self._done += done
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _EVERY_S
        share = min(100.0, 100.0 * self._done / self._total)
        text = f"{self._what}: {self._done:,} of {self._total:,} {self._unit} ({share:.0f} %)"
        print(f"{text} {now}".rstrip(), file=sys.stderr, flush=True)
