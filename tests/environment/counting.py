"""An environment whose observations tell which episode and which step they are of."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

ACTIONS = 5


class Counting(gymnasium.Env[dict[str, Any], int]):
    """Episode e takes ``lengths[e % len(lengths)]`` steps; odd ones terminate, even ones are truncated.

    Its reward is the action, of 2 … 6, and its mask allows the actions that leave a remainder of the step number.
    """

    def __init__(self, lengths: tuple[int, ...] = (3, 1, 5), number: int = 0) -> None:
        self.observation_space = spaces.Dict(
            {
                "flags": spaces.MultiBinary(2),
                "numbers": spaces.Box(-1.0, 1000.0, (3,), np.float32),
                "pair": spaces.Tuple([spaces.Discrete(7, start=1), spaces.MultiDiscrete([3, 4])]),
            }
        )
        self.action_space = spaces.Discrete(ACTIONS, start=2)
        self._lengths = lengths
        self._number = number
        self._episode = -1
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        self._episode += 1
        self._step = 0
        return observation(self._number, self._episode, 0), {"action_mask": mask(0)}

    def step(self, action: int):
        assert action in range(2, 2 + ACTIONS)
        self._step += 1
        ended = self._step == self._lengths[self._episode % len(self._lengths)]
        told = {"action_mask": mask(self._step)}
        odd = self._episode % 2 == 1
        value = observation(self._number, self._episode, self._step)
        return value, float(action), ended and odd, ended and not odd, told


def observation(number: int, episode: int, step: int) -> dict[str, Any]:
    return {
        "flags": np.array([step % 2, episode % 2], np.int8),
        "numbers": np.array([number, episode, step], np.float32),
        "pair": (np.int64(1 + step % 7), np.array([episode % 3, step % 4], np.int64)),
    }


def stack(number: int, episode: int, step: int, depth: int) -> dict[str, Any]:
    """What an agent sees of it: the newest observations, the first one standing in for those before it."""
    parts = [observation(number, episode, max(0, step - back)) for back in reversed(range(depth))]
    return {
        "flags": np.array([part["flags"] for part in parts]),
        "numbers": np.array([part["numbers"] for part in parts]),
        "pair": tuple(np.array([part["pair"][at] for part in parts]) for at in range(2)),
    }


def mask(step: int) -> np.ndarray[Any, np.dtype[np.int8]]:
    return np.array([(action + step) % 3 > 0 for action in range(ACTIONS)], np.int8)


gymnasium.register("Counting-v0", Counting)
