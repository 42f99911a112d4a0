"""What is measured: environment steps and seconds until the training episodes are good enough."""

from collections import deque
from dataclasses import dataclass, field

WINDOW = 100
"""Finished training episodes that a mean is taken over, exploration included."""
POINTS = 200
"""Points that are kept of a curve, about."""


@dataclass(frozen=True)
class Point:
    """Where a run stood when an episode ended.

    Attributes:
        steps: environment steps, over all environments, when the episode ended.
        seconds: since the run's processes were started.
        mean: mean return of the last ``WINDOW`` finished episodes, or of all if they are fewer.
    """

    steps: int
    seconds: float
    mean: float


@dataclass
class Progress:
    """The episodes of one run, in the order of their ends.

    Attributes:
        threshold: the mean return, over ``WINDOW`` episodes, from which on the environment counts as solved; None: it
            never does.
        budget: environment steps after which the run ends unsolved.
        episodes: how many have been added.
        solved: where the threshold was reached.
        last: where the run stands.
        curve: points of a curve, one for each 1/``POINTS`` of the budget, and the last.
    """

    threshold: float | None
    budget: int
    episodes: int = 0
    solved: Point | None = None
    last: Point | None = None
    curve: list[Point] = field(default_factory=list)
    _returns: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @property
    def ended(self) -> bool:
        """Whether the threshold is reached or the budget spent."""
        return self.solved is not None or (self.last is not None and self.last.steps >= self.budget)

    def add(self, steps: int, seconds: float, total_return: float) -> None:
        """An episode ended; those that end after the run has are passed over."""
        if self.ended:
            return
        self.episodes += 1
        self._returns.append(total_return)
        full = len(self._returns) == WINDOW
        self.last = Point(steps, seconds, sum(self._returns) / len(self._returns))
        if full and self.threshold is not None and self.last.mean >= self.threshold:
            self.solved = self.last
        if full and (self.ended or not self.curve or steps >= self.curve[-1].steps + self.budget / POINTS):
            self.curve.append(self.last)
