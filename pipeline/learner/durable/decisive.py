"""The settings that decide what comes of the same records: change one, and the fold is another."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from pipeline.config import AlgorithmConfig, PipelineConfig, from_dict, to_dict
from pipeline.errors import ConfigError
from pipeline.learner.parameters import LIVE, PREFIX, UNUSED, rule

_LEARNER = ("seed", "version_window", "max_chunk_bytes", "actors", "torch_threads", "device")
_ENVIRONMENT = ("id", "kwargs", "frame_stack", "actions", "action_masks")


def decisive(config: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a whole configuration, as :func:`to_dict` gives it, by dotted name."""
    chosen = {
        "algorithm": config["algorithm"],
        "environment": {name: config["environment"][name] for name in _ENVIRONMENT if name in config["environment"]},
        "learner": {name: config["learner"][name] for name in _LEARNER if name in config["learner"]},
    }
    return dict(_leaves(chosen, ""))


def changed_settings(before: str, config: PipelineConfig) -> tuple[dict[str, Any], str]:
    """What was changed by hand since another learner of the run was launched.

    Args:
        before: that learner's configuration, JSON; empty: unknown.
        config: this learner's.

    Returns:
        The new values of those settings that can change while a run goes on, by full name; and each of the others with
        its old and new value, as a sentence: empty if none decides anything else, or nothing is known.
    """
    if not before:
        return {}, ""
    old, new = decisive(json.loads(before)), decisive(to_dict(config))
    # A setting that an older release did not have is made so that its default is what that release did.
    defaults = decisive(to_dict(PipelineConfig()))
    old = {name: defaults[name] for name in new if name in defaults} | old
    live: dict[str, Any] = {}
    others: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        before_value, value = old.get(name), new.get(name)
        if before_value == value:
            continue
        found = ""
        if name.startswith(PREFIX):
            found = rule(config.algorithm, name.removeprefix(PREFIX), before_value, value)
        if found == LIVE:
            live[name] = value
        elif found != UNUSED:
            others.append(f"{name} from {before_value} to {value}")
    return live, "settings were changed: " + ", ".join(others) if others else ""


def launched_with(config_json: str) -> AlgorithmConfig | None:
    """The algorithm's settings in a learner's claim; None where there are none that this release reads."""
    try:
        return from_dict({"algorithm": json.loads(config_json)["algorithm"]}).algorithm
    except (ValueError, KeyError, TypeError, ConfigError):
        return None


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
