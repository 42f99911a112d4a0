"""The fight as a Gymnasium environment whose observations are what a game's memory would show of it."""

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from examples.souls.game import ARENA, Action, Body, BossAnimation, Fight, PlayerAnimation

ID = "Souls-v0"
MAX_TICKS = 200
Observation = dict[str, Any]


class SoulsEnv(gymnasium.Env[Observation, np.int64]):
    """A boss fight; see :mod:`examples.souls.game`.

    Observation, a Dict:
        phase: Discrete(2), 1 or 2.
        player_hp, player_sp, boss_hp: float32 (1,), 0 … 1.
        player_pose, boss_pose: float32 (4,): x and y in metres, cosine and sine of the angle.
        player_animation, boss_animation: Discrete, see there.
        player_animation_time, boss_animation_time: float32 (1,), seconds since it began.
        relative: float32 (3,): distance in metres, cosine and sine of where the player is from the boss's front.

    Action: one of :class:`Action`. ``info["action_mask"]``, int8, tells which do something now.

    Reward: the boss's loss of health less the player's, and 1 for a victory. So 2 is the best there is.

    An episode ends when somebody is dead, and is cut off after ``MAX_TICKS``.
    """

    def __init__(self) -> None:
        share = spaces.Box(0.0, 1.0, (1,), np.float32)
        reach = np.array([ARENA, ARENA, 1.0, 1.0], np.float32)
        pose = spaces.Box(-reach, reach, dtype=np.float32)
        time = spaces.Box(0.0, np.inf, (1,), np.float32)
        self.observation_space = spaces.Dict(
            {
                "phase": spaces.Discrete(2, start=1),
                "player_hp": share,
                "player_sp": share,
                "boss_hp": share,
                "player_pose": pose,
                "boss_pose": pose,
                "player_animation": spaces.Discrete(len(PlayerAnimation)),
                "player_animation_time": time,
                "boss_animation": spaces.Discrete(len(BossAnimation)),
                "boss_animation_time": time,
                "relative": spaces.Box(-2 * ARENA, 2 * ARENA, (3,), np.float32),
            }
        )
        self.action_space = spaces.Discrete(len(Action))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """See ``gymnasium.Env.reset``."""
        super().reset(seed=seed)
        self.fight = Fight(self.np_random)
        return self._observation(), self._info()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """See ``gymnasium.Env.step``."""
        won, lost = self.fight.tick(Action(int(action)))
        victory = self.fight.boss_hp <= 0.0 < self.fight.player_hp
        return self._observation(), won - lost + victory, self.fight.over, False, self._info()

    def _observation(self) -> Observation:
        fight = self.fight
        bearing = fight.bearing
        return {
            "phase": np.int64(fight.phase),
            "player_hp": _floats(fight.player_hp),
            "player_sp": _floats(fight.player_sp),
            "boss_hp": _floats(fight.boss_hp),
            "player_pose": _pose(fight.player),
            "boss_pose": _pose(fight.boss),
            "player_animation": np.int64(fight.player_animation),
            "player_animation_time": _floats(0.2 * fight.player_ticks),
            "boss_animation": np.int64(fight.boss_animation),
            "boss_animation_time": _floats(0.2 * fight.boss_ticks),
            "relative": _floats(fight.player.distance(fight.boss), math.cos(bearing), math.sin(bearing)),
        }

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.array(self.fight.allowed(), np.int8), "boss_hp": self.fight.boss_hp}


def _pose(body: Body) -> NDArray[np.float32]:
    return _floats(body.x, body.y, math.cos(body.angle), math.sin(body.angle))


def _floats(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)
