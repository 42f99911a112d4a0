"""What an environment loop hands to the connector."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


# Not frozen: a frozen dataclass takes four times as long to make, and one is made every step.
@dataclass(slots=True, eq=False)
class Transition:
    """One step of one sub-environment, or one step of each of E sub-environments.

    Every field is a single value, or has a leading dimension E; ``reward`` decides which it is.

    Attributes:
        observation: what the action was chosen on; a value of the observation space (E of them stacked).
        action: the action taken; a value of the action space (E of them stacked).
        reward: float, or float[E].
        next_observation: what the step led to. At the end of an episode the true last observation, not the first
            of the next episode.
        terminated: bool, or bool[E]: the episode ended in a terminal state; nothing is bootstrapped from it.
        truncated: bool, or bool[E]: the episode was cut off; the last observation is bootstrapped from.
        environment: which sub-environment; int, or int[E]. By default 0, or 0 … E-1.
        extras: further columns of the run's layout, such as the behaviour's log-probability; None where there are none.
            ``action_mask``, bool[actions] or bool[E, actions], tells what is allowed at ``next_observation``.
    """

    observation: Any
    action: Any
    reward: Any
    next_observation: Any
    terminated: Any
    truncated: Any
    environment: Any = None
    extras: Mapping[str, Any] | None = None
