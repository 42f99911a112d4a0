"""The settings that decide what comes of the same records: change one, and the fold is another."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from pipeline.config import PipelineConfig, to_dict

_LEARNER = ("seed", "version_window", "max_chunk_bytes", "actors", "torch_threads", "device")
_ENVIRONMENT = ("id", "kwargs", "action_masks")


def decisive(config: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a whole configuration, as :func:`to_dict` gives it, by dotted name."""
    chosen = {
        "algorithm": config["algorithm"],
        "environment": {name: config["environment"][name] for name in _ENVIRONMENT if name in config["environment"]},
        "learner": {name: config["learner"][name] for name in _LEARNER if name in config["learner"]},
    }
    return dict(_leaves(chosen, ""))


def changed_settings(before: str, config: PipelineConfig) -> str:
    """What was changed since another learner of the run, as a sentence.

    Args:
        before: that learner's configuration, JSON; empty: unknown.
        config: this learner's.

    Returns:
        Each setting with its old and new value; empty if none decides anything else, or nothing is known.
    """
    if not before:
        return ""
    old, new = decisive(json.loads(before)), decisive(to_dict(config))
    # A setting that an older release did not have is made so that its default is what that release did.
    defaults = decisive(to_dict(PipelineConfig()))
    old = {name: defaults[name] for name in new if name in defaults} | old
    names = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    if not names:
        return ""
    return "settings were changed: " + ", ".join(f"{name} from {old.get(name)} to {new.get(name)}" for name in names)


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
