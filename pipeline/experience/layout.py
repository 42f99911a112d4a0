"""The layout of a run: which columns its chunks have, declared once in the run manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import gymnasium as gym
import numpy as np

from pipeline.errors import SpaceError
from pipeline.experience.spaces import (
    Column,
    dtype_from_json,
    flatten_space,
    shape_from_json,
    space_from_json,
    space_to_json,
)

ACTION_MASK = "action_mask"
"""Name of an extra column: which actions are allowed at the observation that the step led to, bool (actions,)."""
ACTED_MASK = "acted_mask"
"""Name of an extra column: which actions were allowed where the step's action was chosen, bool (actions,). On-policy
training needs it to give that action the probability that it had."""
LOG_PROB = "log_prob"
"""Name of an extra column: logarithm of the probability that the acting policy gave the action, float32 ()."""
REWARD = Column("reward", np.dtype(np.float32), ())
_MAX_EXTRAS = 64


@dataclass(frozen=True)
class Layout:
    """The columns of a run's chunks, from its spaces and what the algorithm adds.

    Attributes:
        observation_space: flattened under the prefix ``observation``.
        action_space: flattened under the prefix ``action``.
        extras: further columns with one row a step, such as the behaviour's log-probability.

    Raises:
        SpaceError: a space that cannot be carried, or two columns of the same name.
    """

    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    extras: tuple[Column, ...] = ()

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        for extra in self.extras:
            prefix = extra.name.partition("/")[0]
            if names.count(extra.name) > 1 or prefix in ("observation", "action"):
                raise SpaceError(f"extra column {extra.name!r} takes the name of another column")

    @cached_property
    def observation(self) -> tuple[Column, ...]:
        """Observation columns: one row per observation."""
        return flatten_space("observation", self.observation_space)

    @cached_property
    def action(self) -> tuple[Column, ...]:
        """Action columns: one row per step."""
        return flatten_space("action", self.action_space)

    @cached_property
    def step_columns(self) -> tuple[Column, ...]:
        """All columns with one row per step: action, ``reward`` (float32), extras."""
        return (*self.action, REWARD, *self.extras)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """All columns: observation, action, ``reward`` (float32, shape ()), extras."""
        return (*self.observation, *self.step_columns)

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """All columns by name."""
        return {column.name: column for column in self.columns}

    @cached_property
    def enforced(self) -> tuple[Column, ...]:
        """Columns whose bounds a chunk must keep: actions, and categories in observations."""
        return tuple(
            column
            for column in (*self.action, *self.observation)
            if column.bounded and (column.discrete or column in self.action)
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object from which `from_json` makes an equal layout."""
        return {
            "observation": space_to_json(self.observation_space),
            "action": space_to_json(self.action_space),
            "extras": [{"name": c.name, "dtype": c.dtype.name, "shape": list(c.shape)} for c in self.extras],
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Layout:
        """The layout that `to_json` described.

        Raises:
            SpaceError: the object is malformed or names a space that cannot be carried.
        """
        extras: Any = value.get("extras", [])
        if not isinstance(extras, list) or len(cast("list[Any]", extras)) > _MAX_EXTRAS:
            raise SpaceError("layout: extras must be a list of at most 64 columns")
        return Layout(
            space_from_json(value.get("observation")),
            space_from_json(value.get("action")),
            tuple(_extra(item) for item in cast("list[Any]", extras)),
        )


def _extra(item: Any) -> Column:
    if not isinstance(item, Mapping):
        raise SpaceError("layout: an extra column must be an object with name, dtype and shape")
    fields = cast("Mapping[str, Any]", item)
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise SpaceError("layout: an extra column has no name")
    return Column(name, dtype_from_json(fields.get("dtype")), shape_from_json(fields.get("shape")))
