"""Generalised advantage estimation over segments (Schulman et al., 2016, arXiv 1506.02438)."""

import numpy as np
from numpy.typing import NDArray

from pipeline.experience import Ending


def generalised_advantages(
    values: NDArray[np.float32],
    reward: NDArray[np.float32],
    length: NDArray[np.int64],
    ending: NDArray[np.uint8],
    continues: NDArray[np.bool_],
    gamma: float,
    lam: float,
) -> NDArray[np.float32]:
    """Advantages of steps, which stand as in :class:`pipeline.algorithms.Rollout`.

    With the TD error of a step, d = r + gamma V(s') - V(s), the advantage is d + gamma lam times the advantage of the
    step after it (equation 16). Where a chain of steps ends:

    - terminated: V(s') counts as 0, and nothing follows;
    - truncated: V(s') of the last observation counts, since the episode would have gone on, but no advantage follows:
      the next episode has nothing to do with this one;
    - open: as truncated, unless the next segment goes on with it: then the chain does too.

    Args:
        values: V of all observation rows, (steps + S,).
        reward: (steps,).
        length: steps of each segment, (S,).
        ending: how each segment ends, (S,).
        continues: whether the next segment goes on with it, (S,).
        gamma: discount per step.
        lam: λ; 0: TD errors, 1: discounted returns less values.

    Returns:
        float32 (steps,), computed in float64. The result does not depend on how steps are divided into segments that
        continue each other, if values of the observations between them are the same.
    """
    steps = len(reward)
    last = np.cumsum(length) - 1
    rows = np.arange(steps) + np.repeat(np.arange(len(length)), length)
    v = values.astype(np.float64)
    following = v[rows + 1]
    following[last[ending == Ending.TERMINATED]] = 0.0
    advantages = reward + gamma * following - v[rows]
    factor = np.full(steps, gamma * lam)
    factor[last[~continues]] = 0.0
    # Each pass lets an advantage reach twice as far, instead of a loop over steps: after pass k it holds 2^k of its
    # terms, and factor what the one 2^k steps on counts.
    reach = 1
    while reach < steps and factor.any():
        advantages[:-reach] += factor[:-reach] * advantages[reach:]
        factor[:-reach] *= factor[reach:]
        factor[-reach:] = 0.0
        reach *= 2
    return advantages.astype(np.float32)
