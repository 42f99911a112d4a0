"""Moving averages over episodes, as a pure fold."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline.experience import EpisodeInfo


class Point(NamedTuple):
    """One point of the figure: after ``episodes`` episodes and ``transitions`` steps."""

    episodes: int
    transitions: int
    mean_return: float
    mean_steps: float
    version: int


@dataclass
class Statistics:
    """Running sums and the window of the newest episodes.

    Attributes:
        window: episodes that the averages are taken over.
        episodes: episodes seen.
        transitions: their steps.
        best_return: the highest return of one episode; minus infinity before the first.
        history: one point per window written.
    """

    window: int
    episodes: int = 0
    transitions: int = 0
    best_return: float = float("-inf")
    version: int = 0
    first_ms: int = 0
    last_ms: int = 0
    recent: deque[EpisodeInfo] = field(default_factory=deque[EpisodeInfo])
    history: list[Point] = field(default_factory=list[Point])

    def add(self, episode: EpisodeInfo) -> None:
        """Take one episode in."""
        if not self.episodes:
            self.first_ms = episode.ended_ms
        self.episodes += 1
        self.transitions += episode.steps
        self.best_return = max(self.best_return, episode.total_return)
        self.version = max(self.version, episode.version.number)
        self.last_ms = max(self.last_ms, episode.ended_ms)
        self.recent.append(episode)
        while len(self.recent) > self.window:
            self.recent.popleft()

    @property
    def mean_return(self) -> float:
        """Average undiscounted return over the window."""
        return sum(e.total_return for e in self.recent) / max(1, len(self.recent))

    @property
    def mean_steps(self) -> float:
        """Average length over the window, in steps."""
        return sum(e.steps for e in self.recent) / max(1, len(self.recent))

    def mean_info(self) -> dict[str, float]:
        """Average of each ``info`` key over the episodes of the window that have it."""
        sums: dict[str, list[float]] = {}
        for episode in self.recent:
            for key, value in episode.info.items():
                sums.setdefault(key, []).append(value)
        return {key: sum(values) / len(values) for key, values in sums.items()}

    def mark(self) -> Point:
        """Put the present averages into the history."""
        point = Point(self.episodes, self.transitions, self.mean_return, self.mean_steps, self.version)
        self.history.append(point)
        return point
