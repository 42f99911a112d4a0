"""What is measured: environment steps and seconds until the greedy policy is good enough."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

FIRST = 20
"""Greedy episodes of an evaluation."""
ALL = 100
"""Greedy episodes that have to reach the threshold on average, the first ones included."""
EVALUATION_SEED = 1_000_003
"""Far from those of training; a run's seed times 1,000 is added."""


@dataclass(frozen=True)
class Point:
    """An evaluation.

    Attributes:
        steps: environment steps, over all environments, that the training had taken.
        seconds: since the run's processes were started, without those of evaluations.
        mean: mean return of ``FIRST`` greedy episodes; of ``ALL`` where the first ones reached the threshold.
    """

    steps: int
    seconds: float
    mean: float


@dataclass
class Progress:
    """The evaluations of one run, in their order.

    Attributes:
        threshold: the mean return from which on the environment counts as solved; None: it never does.
        budget: environment steps after which the run ends.
        every: environment steps between evaluations.
        solved: the first evaluation whose ``ALL`` episodes reached the threshold.
        curve: every evaluation.
    """

    threshold: float | None
    budget: int
    every: int
    solved: Point | None = None
    curve: list[Point] = field(default_factory=list)

    @property
    def last(self) -> Point | None:
        """Where the run stands."""
        return self.curve[-1] if self.curve else None

    @property
    def ended(self) -> bool:
        """Whether the threshold is reached or the budget spent."""
        return self.solved is not None or (self.last is not None and self.last.steps >= self.budget)

    def due(self, steps: int) -> bool:
        """Whether so many steps ask for an evaluation; marks that one evaluation passed over are not made up for."""
        evaluated = self.last.steps if self.last else 0
        return steps // self.every > evaluated // self.every and not self.ended

    def evaluate(self, steps: int, seconds: float, first: Callable[[], float], others: Callable[[], float]) -> int:
        """Evaluate the policy, and note how good it is.

        Args:
            steps: environment steps taken.
            seconds: what the clock showed.
            first: plays ``FIRST`` greedy episodes and returns their mean return.
            others: plays the others of ``ALL``; called only if the first ones reach the threshold.

        Returns:
            How many episodes were played.
        """
        mean, episodes = first(), FIRST
        if self._reached(mean):
            mean, episodes = (FIRST * mean + (ALL - FIRST) * others()) / ALL, ALL
        self.add(steps, seconds, mean, episodes)
        return episodes

    def _reached(self, mean: float) -> bool:
        return self.threshold is not None and mean >= self.threshold

    def add(self, steps: int, seconds: float, mean: float, episodes: int) -> None:
        """An evaluation of so many episodes ended."""
        point = Point(steps, seconds, mean)
        self.curve.append(point)
        if episodes >= ALL and self._reached(mean):
            self.solved = point


class Clock:
    """Seconds since it was made, without those for which it was held."""

    def __init__(self, started: float | None = None) -> None:
        self._started = time.time() if started is None else started
        self._held = 0.0

    @property
    def seconds(self) -> float:
        """What it shows."""
        return time.time() - self._started - self._held

    @contextmanager
    def held(self) -> Generator[None]:
        """Time within the block does not count."""
        since = time.time()
        try:
            yield
        finally:
            self._held += time.time() - since
