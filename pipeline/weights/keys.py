"""Object keys: write-once, because they hold epoch and number."""

from pipeline.experience import Version


def weights_key(run: str, version: Version) -> str:
    """Key of a version's weights; keys sort as versions do."""
    return f"{run}/weights/{version.epoch:06d}-{version.number:09d}.safetensors"
