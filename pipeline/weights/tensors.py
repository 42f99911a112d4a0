"""Weights as bytes: safetensors, the same bytes for the same tensors."""

import hashlib
from collections.abc import Mapping

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from pipeline.errors import WeightsCorruptError


def pack(tensors: Mapping[str, np.ndarray]) -> bytes:
    """Tensors as safetensors bytes: deterministic, whatever the order of the mapping.

    Raises:
        ValueError: a dtype that safetensors has no name for.
    """
    ordered = {name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}
    # ascontiguousarray makes scalars 1-D.
    ordered = {name: array.reshape(tensors[name].shape) for name, array in ordered.items()}
    try:
        return save(ordered)
    except (SafetensorError, KeyError) as exc:
        raise ValueError(f"these tensors cannot be packed: {exc}") from exc


def unpack(data: bytes) -> dict[str, np.ndarray]:
    """The tensors of safetensors bytes, by name.

    Raises:
        WeightsCorruptError: the bytes are not safetensors.
    """
    try:
        return load(data)
    except (SafetensorError, KeyError, ValueError, TypeError) as exc:
        raise WeightsCorruptError(f"{len(data)} bytes are not safetensors: {exc}") from exc


def below(prefix: str, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors under ``prefix/``, by the rest of their names."""
    start = f"{prefix}/"
    return {name[len(start) :]: np.asarray(array) for name, array in tensors.items() if name.startswith(start)}


def sha256(data: bytes) -> str:
    """SHA-256 as 64 hexadecimal characters."""
    return hashlib.sha256(data).hexdigest()
