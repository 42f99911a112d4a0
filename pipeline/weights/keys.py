"""Object keys: write-once, because they hold epoch and number."""

import re

from pipeline.experience import Version

_NAME = re.compile(r"([0-9]{6,7})-([0-9]{9,13})\.safetensors")


def weights_prefix(run: str) -> str:
    """What the keys of all weights of a run begin with, and no others do."""
    return f"{run}/weights/"


def weights_key(run: str, version: Version) -> str:
    """Key of a version's weights; keys sort as versions do."""
    return f"{weights_prefix(run)}{version.epoch:06d}-{version.number:09d}.safetensors"


def version_of(run: str, key: str) -> Version | None:
    """The version whose `weights_key` this is; None for any other key."""
    name = _NAME.fullmatch(key.removeprefix(weights_prefix(run)))
    if name is None:
        return None
    version = Version(int(name[1]), int(name[2]))
    return version if key == weights_key(run, version) else None
