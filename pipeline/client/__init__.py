"""Actors: the connectors that carry experience out and weights in, and the acting loop.

Names are loaded when they are asked for, so that the uplink process, which needs no torch, does not import it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.client.dqn import DQNConnector
    from pipeline.client.ppo import PPOConnector
    from pipeline.client.transition import Transition

__all__ = ["DQNConnector", "PPOConnector", "Transition"]

_HOMES = {"DQNConnector": "dqn", "PPOConnector": "ppo", "Transition": "transition"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
