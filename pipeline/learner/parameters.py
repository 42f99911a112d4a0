"""Which of the algorithm's settings can change while a run goes on, and what a change makes of them.

A change is part of the fold: it has its place among the samples, is in the journal, and every version after it is
computed with it. So a setting can change only if all that it decides comes after the change: not what the replay buffer
was already made with, nor what clients were told when they began.
"""

import copy
import difflib
import math
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from pipeline.config import AlgorithmConfig, PipelineConfig
from pipeline.config.ranges import CHOICES, check_ranges
from pipeline.errors import CommandError, ConfigError

PREFIX = "algorithm."

LIVE = "live"
"""It can change."""
UNUSED = "unused"
"""This algorithm does not read it."""

_RUN = "it decides what kind of run this is; start another run"
_NETWORK = "it shapes the network, of which clients and checkpoints hold copies; start another run"
_MADE = "the transitions in the replay buffer were made with it; start another run"
_BUFFER = "the replay buffer was made with it; start another run"
_ONCE = "it decides the beginning alone, which is over"
_TOLD = "the clients were told when they began; start another run"
_JUDGED = "samples were judged by it; start another run"
_TRIGGER = "whether training is free-running decides how journals are written; start another run"

TABLE: Mapping[str, tuple[str, str]] = {
    # setting: of DQN and Rainbow, of PPO; `LIVE`, `UNUSED`, or why it cannot change
    "name": (_RUN, _RUN),
    "hidden": (_NETWORK, _NETWORK),
    "activation": (_NETWORK, _NETWORK),
    "network": (_NETWORK, _NETWORK),
    "normalise_observations": (_NETWORK, _NETWORK),
    "dueling": (_NETWORK, UNUSED),
    "noisy": (_NETWORK, UNUSED),
    "noisy_std": (_ONCE, UNUSED),
    "categorical.enabled": (_NETWORK, UNUSED),
    "categorical.atoms": (_NETWORK, UNUSED),
    "categorical.v_min": (_NETWORK, UNUSED),
    "categorical.v_max": (_NETWORK, UNUSED),
    "prioritised.enabled": (_BUFFER, UNUSED),
    "prioritised.alpha": (LIVE, UNUSED),
    "prioritised.beta": (LIVE, UNUSED),
    "prioritised.beta_updates": (LIVE, UNUSED),
    "prioritised.epsilon": (LIVE, UNUSED),
    "huber_delta": (LIVE, UNUSED),
    "double": (LIVE, UNUSED),
    "n_step": (_MADE, UNUSED),
    "gamma": (_MADE, LIVE),
    "reward_scale": (_MADE, LIVE),
    "reward_clip": (_MADE, LIVE),
    "lr": (LIVE, LIVE),
    "lr_decay_transitions": (LIVE, LIVE),
    "adam_eps": (LIVE, LIVE),
    "grad_clip": (LIVE, LIVE),
    "batch_size": (LIVE, UNUSED),
    "target_interval": (LIVE, UNUSED),
    "target_rate": (LIVE, UNUSED),
    "buffer_rows": (_BUFFER, UNUSED),
    "learning_starts": (_ONCE, UNUSED),
    "transitions_per_update": (LIVE, UNUSED),
    "updates_per_version": (LIVE, UNUSED),
    "exploration.start": (LIVE, UNUSED),
    "exploration.end": (LIVE, UNUSED),
    "exploration.transitions": (LIVE, UNUSED),
    "ppo.rollout_steps": (UNUSED, _TOLD),
    "ppo.max_rollout": (UNUSED, _JUDGED),
    "ppo.epochs": (UNUSED, LIVE),
    "ppo.minibatch_size": (UNUSED, LIVE),
    "ppo.gae_lambda": (UNUSED, LIVE),
    "ppo.clip": (UNUSED, LIVE),
    "ppo.clip_decay_transitions": (UNUSED, LIVE),
    "ppo.value_clip": (UNUSED, LIVE),
    "ppo.value_coefficient": (UNUSED, LIVE),
    "ppo.entropy_coefficient": (UNUSED, LIVE),
    "ppo.normalise_advantages": (UNUSED, LIVE),
    "ppo.target_kl": (UNUSED, LIVE),
    "sync.clients": (UNUSED, LIVE),
    "sync.min_clients": (UNUSED, LIVE),
    "sync.discovery_s": (UNUSED, LIVE),
    "sync.client_timeout_s": (UNUSED, LIVE),
    "sync.collect_fraction": (UNUSED, LIVE),
    "sync.collect_grace_s": (UNUSED, LIVE),
    "sync.on_lost_client": (UNUSED, LIVE),
}

_PRIORITIES = ("prioritised.alpha", "prioritised.beta", "prioritised.beta_updates", "prioritised.epsilon")
_LARGEST = 2**63 - 1


def changed(settings: AlgorithmConfig, changes: Mapping[str, Any]) -> AlgorithmConfig:
    """Settings with changes, checked as far as they can be without the algorithm.

    Depends on its arguments alone: whoever follows the journal comes to the same end.

    Args:
        settings: in force now; not changed.
        changes: new values by full name, such as ``algorithm.lr``. They may come from anybody who can write to the
            commands topic.

    Raises:
        CommandError: a setting is unknown or cannot change, or a value has the wrong type or is out of range. The
            sentence says which and why.
    """
    if not changes:
        raise CommandError("it names no setting; name one, such as algorithm.lr=1e-4")
    new = copy.deepcopy(settings)
    for full_name, value in changes.items():
        name = _known(full_name)
        old = value_of(settings, name)
        checked = _typed(full_name, value, old)
        found = rule(settings, name, old, checked)
        if found != LIVE:
            why = f"{settings.name} as it is set here does not read it" if found == UNUSED else found
            raise CommandError(f"{full_name} cannot be changed: {why}")
        _put(new, name, checked)
    try:
        check_ranges(OmegaConf.structured(PipelineConfig(algorithm=new)))
    except ConfigError as error:
        raise CommandError(str(error)) from error
    return new


def rule(settings: AlgorithmConfig, name: str, old: object = None, new: object = None) -> str:
    """Whether a setting can change under these settings: `LIVE`, `UNUSED`, or why it cannot.

    Args:
        settings: in force.
        name: as in `TABLE`; one that is not there, such as of an older release, is `UNUSED`.
        old, new: from which value to which, where that makes a difference.
    """
    if name in _PRIORITIES and not settings.prioritised.enabled:
        return UNUSED
    if name == "transitions_per_update" and (old == 0) != (new == 0):
        return _TRIGGER
    of_dqn, of_ppo = TABLE.get(name, (UNUSED, UNUSED))
    return of_ppo if settings.name == "ppo" else of_dqn


def live_values(settings: AlgorithmConfig) -> dict[str, Any]:
    """The values of all settings that can change, by name: what a checkpoint keeps of them."""
    return {name: value_of(settings, name) for name in TABLE if rule(settings, name) == LIVE}


def with_values(settings: AlgorithmConfig, values: Mapping[str, Any]) -> AlgorithmConfig:
    """Settings with the values that :func:`live_values` gave; those of unknown names are passed over."""
    new = copy.deepcopy(settings)
    for name, value in values.items():
        if name in TABLE:
            _put(new, name, value)
    return new


def difference(old: AlgorithmConfig, new: AlgorithmConfig) -> str:
    """Each setting that differs, with its old and new value, for people; empty if none does."""
    names = (name for name in TABLE if value_of(old, name) != value_of(new, name))
    return ", ".join(f"{PREFIX}{name} from {value_of(old, name)} to {value_of(new, name)}" for name in names)


def learning_rate(settings: AlgorithmConfig, transitions: int) -> float:
    """Adam's learning rate after so many accepted transitions."""
    over = settings.lr_decay_transitions
    return settings.lr * max(0.0, 1.0 - transitions / over) if over else settings.lr


def value_of(settings: AlgorithmConfig, name: str) -> Any:
    """The value of a setting by its name in `TABLE`."""
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _known(full_name: str) -> str:
    name = full_name.removeprefix(PREFIX)
    if full_name.startswith(PREFIX) and name in TABLE:
        return name
    near = difflib.get_close_matches(full_name, [PREFIX + known for known in TABLE], n=1)
    hint = f"did you mean {near[0]!r}?" if near else "settings of the algorithm alone can be changed"
    raise CommandError(f"there is no setting {full_name[:100]!r} to change; {hint}")


def _typed(full_name: str, value: object, old: object) -> Any:
    """The value, if it is one that the setting can have; numbers are not taken from text."""
    if isinstance(old, bool):
        fits, kind = isinstance(value, bool), "true or false"
    elif isinstance(old, int):
        fits, kind = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST, "an integer"
    elif isinstance(old, float):
        fits = isinstance(value, int | float) and not isinstance(value, bool) and _finite(value)
        kind = "a finite number"
    else:
        choices = CHOICES.get(full_name, ())
        fits, kind = isinstance(value, str) and value in choices, f"one of {', '.join(choices)}"
    if not fits:
        raise CommandError(f"{full_name} cannot be {str(value)[:100]!r}; it has to be {kind}")
    return float(value) if isinstance(old, float) and isinstance(value, int | float) else value


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def _put(settings: AlgorithmConfig, name: str, value: Any) -> None:
    *path, last = name.split(".")
    target: Any = settings
    for part in path:
        target = getattr(target, part)
    setattr(target, last, value)
