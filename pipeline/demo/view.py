"""What the demo's terminal shows."""

import time
from collections import deque
from dataclasses import dataclass, field

from rich.panel import Panel
from rich.table import Table

from pipeline.demo.evaluation import EvaluationThread, Score
from pipeline.wire import Heartbeat, TelemetryWindow

RATE_WINDOW_S = 5.0
START_S = 60.0


@dataclass
class Progress:
    """The newest figures of a run, as its topics tell them.

    Attributes:
        target: the average greedy return that counts as solved.
        limit_s: seconds of training after which the demo gives up.
    """

    target: float
    limit_s: float
    accepted: int = 0
    rejected: int = 0
    version: int = 0
    episodes: int = 0
    mean_return: float = float("nan")
    refused: int = 0
    actors: dict[str, Heartbeat] = field(default_factory=dict[str, Heartbeat])
    best: Score | None = None
    last: Score | None = None
    evaluated: int = 0
    learner_seen: bool = False
    started: float | None = None
    ended: float | None = None
    launched: float = field(default_factory=time.monotonic)
    _rates: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])

    @property
    def seconds(self) -> float:
        """Seconds from the first accepted transition until training ended, or until now."""
        end = time.monotonic() if self.ended is None else self.ended
        return 0.0 if self.started is None else end - self.started

    @property
    def out_of_time(self) -> bool:
        """Whether training took too long, or never began."""
        waited = time.monotonic() - self.launched
        return self.seconds > self.limit_s or (self.started is None and waited > START_S + self.limit_s)

    @property
    def rate(self) -> float:
        """Accepted transitions a second, over the last seconds."""
        if len(self._rates) < 2:
            return 0.0
        (first, low), (last, high) = self._rates[0], self._rates[-1]
        return (high - low) / max(1e-3, last - first)

    def note_heartbeat(self, beat: Heartbeat) -> None:
        """Take a node's heartbeat in."""
        if beat.role == "actor":
            self.actors[beat.node] = beat
        if beat.role != "learner":
            return
        self.learner_seen = True
        self.accepted, self.rejected, self.version = (
            beat.transitions,
            beat.rejected,
            beat.version_number,
        )
        now = time.monotonic()
        if self.started is None and beat.transitions:
            self.started = now
        self._rates.append((now, beat.transitions))
        while self._rates and now - self._rates[0][0] > RATE_WINDOW_S:
            self._rates.popleft()

    def note_window(self, window: TelemetryWindow) -> None:
        """Take a window of the telemetry in."""
        self.episodes, self.mean_return = window.episodes, window.mean_return

    def note_evaluation(self, evaluation: EvaluationThread) -> None:
        """Take the evaluation's newest results in."""
        self.best, self.last, self.evaluated = (
            evaluation.best,
            evaluation.last,
            evaluation.evaluated,
        )


def render(progress: Progress) -> Panel:
    """The panel for the present figures."""
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="bold")
    table.add_column()
    dropped = sum(beat.dropped for beat in progress.actors.values())
    table.add_row("training", f"{progress.seconds:6.1f} s of at most {progress.limit_s:g} s")
    table.add_row("actors", f"{len(progress.actors)}, {dropped:,} transitions dropped")
    table.add_row("episodes", f"{progress.episodes:,}, mean return of the last {progress.mean_return:.1f}")
    table.add_row("version", f"{progress.version}")
    table.add_row(
        "transitions",
        f"{progress.accepted:,} accepted, {progress.rejected:,} rejected, {progress.rate:,.0f}/s",
    )
    table.add_row("greedy", _greedy(progress))
    return Panel(table, title="pipeline demo", expand=False)


def _greedy(progress: Progress) -> str:
    if progress.last is None or progress.best is None:
        return "no version evaluated yet"
    bound = "" if progress.last.complete else "at most "
    return (
        f"{bound}{progress.last.mean_return:.1f} at version {progress.last.version.number} "
        f"(solved at {progress.target:g}; {progress.evaluated} evaluated)"
    )
