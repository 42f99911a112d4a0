"""A boss fight with a Dict observation; importing this lets Gymnasium know ``Souls-v0``."""

import gymnasium

from examples.souls.environment import ID, MAX_TICKS

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]
    ID, "examples.souls.environment:SoulsEnv", max_episode_steps=MAX_TICKS
)
