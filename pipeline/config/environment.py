"""Settings of what the actors act in."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class EnvironmentConfig:
    """What the actors act in."""

    id: str = "CartPole-v1"
    """The Gymnasium id."""
    envs: int = 8
    """Sub-environments in one client process."""
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    """Passed to gymnasium.make_vec as they are."""
    frame_stack: int = 1
    """An observation is made of this many newest ones, stacked along a new first axis; 1: of the newest alone."""
    actions: list[int] = field(default_factory=list[int])
    """The environment's Discrete actions that the agent chooses among, in its order; empty: all."""
    action_masks: bool = False
    """Whether the environment's info tells with `action_mask` which actions are allowed, as Taxi's does."""
    solved_return: float = 475.0
    """The average greedy return from which on the environment counts as solved."""
