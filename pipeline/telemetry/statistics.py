"""Moving averages over episodes, as a pure fold."""

from collections import deque
from typing import NamedTuple

import numpy as np

from pipeline.experience import EpisodeInfo, Version

MOST_POINTS = 2_000
"""Of the history; with more, every second one goes."""


class Point(NamedTuple):
    """One point of the figure: after ``episodes`` episodes and ``transitions`` steps."""

    episodes: int
    transitions: int
    mean_return: float
    mean_steps: float
    version: int


class Statistics:
    """Running sums and the window of the newest episodes.

    The same episodes in the same order give the same figures and the same history, however fast they came.

    Args:
        window: episodes that the averages are taken over.

    Attributes:
        episodes: episodes seen.
        transitions: their steps.
        best_return: the highest return of one episode; minus infinity before the first.
        version: number of the newest version that acted.
        first_ms, last_ms: the actors' time of the first and the last end of an episode, unix milliseconds.
        history: a point every few episodes, at most `MOST_POINTS`.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.episodes = 0
        self.transitions = 0
        self.best_return = float("-inf")
        self.version = 0
        self.first_ms = 0
        self.last_ms = 0
        self.history: list[Point] = []
        self._recent: deque[EpisodeInfo] = deque(maxlen=window)
        self._returns = np.zeros(window)
        self._steps = np.zeros(window)
        self._stride = 1

    def add(self, episode: EpisodeInfo) -> None:
        """Take one episode in."""
        row = self.episodes % self.window
        self._returns[row] = episode.total_return
        self._steps[row] = episode.steps
        self._recent.append(episode)
        if not self.episodes:
            self.first_ms = episode.ended_ms
        self.episodes += 1
        self.transitions += episode.steps
        self.best_return = max(self.best_return, episode.total_return)
        self.version = max(self.version, episode.version.number)
        self.last_ms = max(self.last_ms, episode.ended_ms)
        if self.episodes % self._stride == 0:
            self.history.append(self.point)
        if len(self.history) > MOST_POINTS:
            self.history = self.history[1::2]
            self._stride *= 2

    @property
    def full(self) -> bool:
        """Whether there were as many episodes as the window holds."""
        return self.episodes >= self.window

    @property
    def mean_return(self) -> float:
        """Average undiscounted return over the window."""
        return float(self._returns[: self.episodes].mean()) if self.episodes else 0.0

    @property
    def mean_steps(self) -> float:
        """Average length over the window, in steps."""
        return float(self._steps[: self.episodes].mean()) if self.episodes else 0.0

    @property
    def median_version(self) -> Version:
        """The version in the middle of the window's: half of its episodes were played with older ones.

        Raises:
            IndexError: before the first episode.
        """
        return sorted(episode.version for episode in self._recent)[len(self._recent) // 2]

    @property
    def point(self) -> Point:
        """The present averages."""
        return Point(self.episodes, self.transitions, self.mean_return, self.mean_steps, self.version)

    def mean_info(self) -> dict[str, float]:
        """Average of each ``info`` key over the episodes of the window that have it."""
        sums: dict[str, list[float]] = {}
        for episode in self._recent:
            for key, value in episode.info.items():
                sums.setdefault(key, []).append(value)
        return {key: sum(values) / len(values) for key, values in sums.items()}
