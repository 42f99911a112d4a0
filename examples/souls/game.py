"""A boss fight in the manner of a Souls game, simulated: two bodies, their animations, health and stamina.

One tick is 0.2 s. Both fighters are committed to an animation once it began: a swing can be seen coming, a roll is safe
while it lasts, and whoever strikes at the wrong time is struck. The camera is locked on the boss, so that moves are
relative to it. At half of its health the boss enters its second phase: it strikes sooner and has one strike more.
"""

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

ARENA = 6.0
"""Radius of the arena, in metres."""
ROLL_COST = 0.25
STRIKE_COST = 0.2
STAMINA_PER_TICK = 0.06


class Action(IntEnum):
    """What a player may do."""

    WAIT = 0
    FORWARD = 1
    BACK = 2
    LEFT = 3
    RIGHT = 4
    ROLL_BACK = 5
    ROLL_LEFT = 6
    ROLL_RIGHT = 7
    STRIKE = 8


class PlayerAnimation(IntEnum):
    """What a player is seen doing."""

    STAND = 0
    WALK = 1
    ROLL = 2
    STRIKE = 3
    STAGGER = 4
    DEAD = 5


class BossAnimation(IntEnum):
    """What a boss is seen doing."""

    STAND = 0
    WALK = 1
    SWING = 2
    THRUST = 3
    SLAM = 4
    DEAD = 5


@dataclass(frozen=True)
class Attack:
    """One of the boss's strikes.

    Attributes:
        hits_at: tick of its animation at which it hits.
        length: ticks of the whole animation.
        reach: metres.
        angle: how far to either side of the boss's front it reaches, in radians.
        damage: share of the player's health.
    """

    hits_at: int
    length: int
    reach: float
    angle: float
    damage: float


ATTACKS = {
    BossAnimation.SWING: Attack(4, 11, 2.2, 1.2, 0.25),
    BossAnimation.THRUST: Attack(5, 13, 4.0, 0.3, 0.35),
    BossAnimation.SLAM: Attack(6, 16, 3.0, math.pi, 0.45),
}
_PLAYER_LENGTH = {PlayerAnimation.ROLL: 2, PlayerAnimation.STRIKE: 4, PlayerAnimation.STAGGER: 3}
_STRIKE_HITS_AT, _STRIKE_REACH, _STRIKE_DAMAGE = 2, 2.0, 0.1
_STEP, _ROLL_STEP, _BOSS_STEP, _BOSS_TURN = 0.7, 0.8, 0.35, 0.35
_LIKES_TO_STRIKE = 0.35


@dataclass
class Body:
    """Where somebody is, and which way they look.

    Attributes:
        x, y: metres from the arena's middle.
        angle: radians, counter-clockwise from the x axis.
    """

    x: float
    y: float
    angle: float

    def towards(self, other: "Body") -> float:
        """Direction in which the other one is, in radians."""
        return math.atan2(other.y - self.y, other.x - self.x)

    def distance(self, other: "Body") -> float:
        """Metres between the two."""
        return math.hypot(other.x - self.x, other.y - self.y)

    def move(self, direction: float, metres: float) -> None:
        """Go there, as far as the arena's wall."""
        self.x += metres * math.cos(direction)
        self.y += metres * math.sin(direction)
        radius = math.hypot(self.x, self.y)
        if radius > ARENA:
            self.x *= ARENA / radius
            self.y *= ARENA / radius


class Fight:
    """One fight; the same generator state gives the same fight for the same actions.

    Attributes:
        player, boss: where they are.
        player_hp, player_sp, boss_hp: health and stamina, shares of the whole.
        player_animation, boss_animation: what they do.
        player_ticks, boss_ticks: for how many ticks they have done it.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        direction = float(random.uniform(-math.pi, math.pi))
        distance = float(random.uniform(3.0, 5.0))
        self.boss = Body(0.0, 0.0, direction)
        self.player = Body(distance * math.cos(direction), distance * math.sin(direction), direction + math.pi)
        self.player_hp = self.player_sp = self.boss_hp = 1.0
        self.player_animation, self.player_ticks = PlayerAnimation.STAND, 0
        self.boss_animation, self.boss_ticks = BossAnimation.STAND, 0
        self._rolls_to = 0.0

    @property
    def phase(self) -> int:
        """1, or 2 from half of the boss's health on."""
        return 1 if self.boss_hp > 0.5 else 2

    @property
    def over(self) -> bool:
        """Whether somebody is dead."""
        return self.player_hp <= 0.0 or self.boss_hp <= 0.0

    @property
    def bearing(self) -> float:
        """How far the player is from the boss's front, in radians, -π … π; positive: to the boss's left."""
        return _turned(self.boss.towards(self.player) - self.boss.angle)

    def allowed(self) -> list[bool]:
        """Which actions do something now: none but waiting during an animation, or without the stamina."""
        if self.player_animation not in (PlayerAnimation.STAND, PlayerAnimation.WALK):
            return [action is Action.WAIT for action in Action]
        costs = {Action.STRIKE: STRIKE_COST} | dict.fromkeys(
            (Action.ROLL_BACK, Action.ROLL_LEFT, Action.ROLL_RIGHT), ROLL_COST
        )
        return [self.player_sp >= costs.get(action, 0.0) for action in Action]

    def tick(self, action: Action) -> tuple[float, float]:
        """One tick.

        Args:
            action: what the player begins to do; one that is not allowed is waiting.

        Returns:
            How much health boss and player lost.
        """
        boss_hp, player_hp = self.boss_hp, self.player_hp
        self._player(action if self.allowed()[action] else Action.WAIT)
        self._boss()
        self.player_sp = min(1.0, self.player_sp + STAMINA_PER_TICK)
        if self.boss_hp <= 0.0:
            self.boss_animation, self.boss_ticks = BossAnimation.DEAD, 0
        if self.player_hp <= 0.0:
            self.player_animation, self.player_ticks = PlayerAnimation.DEAD, 0
        return boss_hp - self.boss_hp, player_hp - self.player_hp

    def _player(self, action: Action) -> None:
        self.player_ticks += 1
        if self.player_ticks >= _PLAYER_LENGTH.get(self.player_animation, 0):
            self._begin(action)
        self.player.angle = front = self.player.towards(self.boss)
        if self.player_animation is PlayerAnimation.WALK:
            sides = {Action.FORWARD: 0.0, Action.BACK: math.pi, Action.LEFT: math.pi / 2, Action.RIGHT: -math.pi / 2}
            near = action is Action.FORWARD and self.player.distance(self.boss) < 1.0
            self.player.move(front + sides[action], 0.0 if near else _STEP)
        elif self.player_animation is PlayerAnimation.ROLL:
            self.player.move(front + self._rolls_to, _ROLL_STEP)
        elif (self.player_animation, self.player_ticks) == (PlayerAnimation.STRIKE, _STRIKE_HITS_AT):
            reached = self.player.distance(self.boss) <= _STRIKE_REACH
            self.boss_hp = max(0.0, self.boss_hp - _STRIKE_DAMAGE * reached)

    def _begin(self, action: Action) -> None:
        animation = PlayerAnimation.STAND
        if action in (Action.FORWARD, Action.BACK, Action.LEFT, Action.RIGHT):
            animation = PlayerAnimation.WALK
        elif action is Action.STRIKE:
            animation = PlayerAnimation.STRIKE
            self.player_sp -= STRIKE_COST
        elif action is not Action.WAIT:
            animation = PlayerAnimation.ROLL
            self.player_sp -= ROLL_COST
            self._rolls_to = {Action.ROLL_LEFT: math.pi / 2, Action.ROLL_RIGHT: -math.pi / 2}.get(action, math.pi)
        self.player_animation, self.player_ticks = animation, 0

    def _boss(self) -> None:
        if self.boss_hp <= 0.0:
            return
        self.boss_ticks += 1
        attack = ATTACKS.get(self.boss_animation)
        if attack is None:
            self._decide()
            return
        if self.boss_ticks == attack.hits_at - (self.phase - 1):
            self._hit(attack)
        if self.boss_ticks >= attack.length:
            self.boss_animation, self.boss_ticks = BossAnimation.STAND, 0

    def _decide(self) -> None:
        """Turn to the player, and come nearer or strike."""
        self.boss.angle += max(-_BOSS_TURN, min(_BOSS_TURN, self.bearing))
        distance = self.player.distance(self.boss)
        inside = [BossAnimation.SWING, BossAnimation.SLAM] if self.phase == 2 else [BossAnimation.SWING]
        choices = [BossAnimation.THRUST] if 2.0 < distance <= 3.8 else inside
        in_sight = distance <= 3.8 and abs(self.bearing) < 0.6
        if in_sight and self._random.random() < _LIKES_TO_STRIKE:
            self.boss_animation = choices[int(self._random.integers(len(choices)))]
            self.boss_ticks = 0
        elif distance > 1.5:
            self.boss.move(self.boss.towards(self.player), _BOSS_STEP)
            if self.boss_animation is not BossAnimation.WALK:
                self.boss_animation, self.boss_ticks = BossAnimation.WALK, 0
        elif self.boss_animation is not BossAnimation.STAND:
            self.boss_animation, self.boss_ticks = BossAnimation.STAND, 0

    def _hit(self, attack: Attack) -> None:
        reached = self.player.distance(self.boss) <= attack.reach and abs(self.bearing) <= attack.angle
        if reached and self.player_animation is not PlayerAnimation.ROLL:
            self.player_hp = max(0.0, self.player_hp - attack.damage)
            self.player_animation, self.player_ticks = PlayerAnimation.STAGGER, 0


def _turned(angle: float) -> float:
    """The same direction within -π … π."""
    return math.remainder(angle, 2 * math.pi)
