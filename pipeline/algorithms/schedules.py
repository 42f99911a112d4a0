"""Values that change with progress."""

from dataclasses import dataclass

from pipeline.errors import ConfigError


@dataclass(frozen=True)
class LinearSchedule:
    """Goes from ``start`` to ``end`` in ``steps`` equal steps and stays there.

    Attributes:
        start: value at step 0.
        end: value from step ``steps`` on.
        steps: length of the slope; 0 gives ``end`` at once.

    Raises:
        ConfigError: ``steps`` is negative.
    """

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        """Check the length of the slope."""
        if self.steps < 0:
            raise ConfigError(f"schedule: steps is {self.steps}, but has to be 0 or more")

    def __call__(self, step: int) -> float:
        """Value at ``step``; steps before 0 count as 0."""
        if step >= self.steps:
            return self.end
        return self.start + (self.end - self.start) * max(step, 0) / self.steps
