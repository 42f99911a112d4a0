"""Model weights: safetensors in an object store, published once and followed by announcement.

The only package that imports ``minio``. It imports no torch.
"""

from pipeline.weights.cleanup import clean_up, removable, run_clean_up
from pipeline.weights.follower import FollowedVersion, Follower
from pipeline.weights.keys import version_of, weights_key, weights_prefix
from pipeline.weights.lineage import Lineage, Progress, read_lineage
from pipeline.weights.publisher import BackgroundPublisher, Publisher
from pipeline.weights.settings import StoreSettings
from pipeline.weights.store import ObjectInfo, ObjectStore
from pipeline.weights.tensors import below, pack, sha256, unpack

__all__ = [
    "BackgroundPublisher",
    "FollowedVersion",
    "Follower",
    "Lineage",
    "ObjectInfo",
    "ObjectStore",
    "Progress",
    "Publisher",
    "StoreSettings",
    "below",
    "clean_up",
    "pack",
    "read_lineage",
    "removable",
    "run_clean_up",
    "sha256",
    "unpack",
    "version_of",
    "weights_key",
    "weights_prefix",
]
