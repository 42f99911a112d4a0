"""Model weights: safetensors in an object store, published once and followed by announcement.

The only package that imports ``minio``. It imports no torch.
"""

from pipeline.weights.follower import FollowedVersion, Follower
from pipeline.weights.keys import weights_key
from pipeline.weights.publisher import BackgroundPublisher, Publisher
from pipeline.weights.settings import StoreSettings
from pipeline.weights.store import ObjectInfo, ObjectStore
from pipeline.weights.tensors import pack, sha256, unpack

__all__ = [
    "BackgroundPublisher",
    "FollowedVersion",
    "Follower",
    "ObjectInfo",
    "ObjectStore",
    "Publisher",
    "StoreSettings",
    "pack",
    "sha256",
    "unpack",
    "weights_key",
]
