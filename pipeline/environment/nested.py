"""Observations of several sub-environments at once, nested as their space is."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray


def leaves(value: Any, change: Callable[[NDArray[Any]], Any]) -> Any:
    """The same nested dicts and tuples with every array changed."""
    if isinstance(value, dict):
        return {key: leaves(item, change) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, tuple):
        return tuple(leaves(item, change) for item in cast("tuple[Any, ...]", value))
    return change(np.asarray(value))


def rows(value: Any, index: Any) -> Any:
    """The given sub-environments' part; one number gives the value of one, without the leading axis."""
    return leaves(value, lambda array: array[index])


def last_observations(following: Any, ended: NDArray[np.bool_], info: Mapping[str, Any]) -> Any:
    """What the steps led to, where an environment resets itself in the step that ends an episode.

    Args:
        following: what ``step`` gave: the first observations of new episodes where ``ended``.
        ended: bool (environments,).
        info: of the same step, with ``final_obs``: an array of whole observations, or nested as ``following`` is.

    Returns:
        ``following`` itself where no episode ended, otherwise a copy with the true last observations.
    """
    if not ended.any():
        return following
    return _patched(following, info["final_obs"], np.flatnonzero(ended))


def _patched(following: Any, final: Any, index: NDArray[np.int64]) -> Any:
    if isinstance(following, dict):
        parts = cast("dict[str, Any]", following)
        return {key: _patched(part, _part(final, key), index) for key, part in parts.items()}
    if isinstance(following, tuple):
        members = cast("tuple[Any, ...]", following)
        return tuple(_patched(part, _part(final, at), index) for at, part in enumerate(members))
    patched = np.array(following)
    for at in index:
        patched[at] = final[at]
    return patched


def _part(final: Any, key: Any) -> Any:
    """One leaf of final observations, which Gymnasium gives as an array of whole ones or nested like the others."""
    if isinstance(final, dict | tuple):
        return cast("Any", final)[key]
    return [None if one is None else one[key] for one in final]
