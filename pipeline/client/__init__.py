"""Actors: the connectors that carry experience out and weights in, and the acting loop.

Names are loaded when they are asked for, so that the uplink process, which needs no torch, does not import it.
"""

from typing import TYPE_CHECKING

from pipeline.lazy import lazily

if TYPE_CHECKING:
    from pipeline.client.dqn import DQNConnector
    from pipeline.client.ppo import PPOConnector
    from pipeline.client.transition import Transition

__all__ = ["DQNConnector", "PPOConnector", "Transition"]

__getattr__ = lazily(__name__, {"DQNConnector": "dqn", "PPOConnector": "ppo", "Transition": "transition"})
