"""A robot's arm: a rod on a motor too weak to lift it at once, so that it has to be swung up.

Here it is simulated. It could be any machine that can be read and driven a few times a second.
"""

import math

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

OBSERVATIONS = spaces.Box(-8.0, 8.0, (3,), np.float32)
"""What `Arm.sense` gives."""
TORQUES = (-2.0, -0.7, 0.0, 0.7, 2.0)
"""What the motor can do, in newton metres."""
ACTIONS = spaces.Discrete(len(TORQUES))
"""Numbers of `TORQUES`."""

_TICK = 0.05
_GRAVITY, _LENGTH, _MASS, _FASTEST = 10.0, 1.0, 1.0, 8.0


class Arm:
    """The arm, hanging or standing; its angle is 0 where it stands upright."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.release()

    def release(self) -> None:
        """Let it swing freely for a while: it ends up anywhere."""
        self._angle = float(self._random.uniform(-math.pi, math.pi))
        self._speed = float(self._random.uniform(-1.0, 1.0))

    def sense(self) -> NDArray[np.float32]:
        """Cosine and sine of the angle, and the speed in radians a second: float32 (3,)."""
        return np.array([math.cos(self._angle), math.sin(self._angle), self._speed], np.float32)

    def drive(self, torque: float) -> None:
        """Apply a torque for one tick of 0.05 s."""
        push = 1.5 * _GRAVITY / _LENGTH * math.sin(self._angle) + 3.0 / (_MASS * _LENGTH**2) * torque
        self._speed = max(-_FASTEST, min(_FASTEST, self._speed + push * _TICK))
        self._angle = math.remainder(self._angle + self._speed * _TICK, 2 * math.pi)

    def penalty(self, torque: float) -> float:
        """How far this is from standing still upright, at least 0."""
        return self._angle**2 + 0.1 * self._speed**2 + 0.001 * torque**2
