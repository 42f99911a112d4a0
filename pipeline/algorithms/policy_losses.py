"""PPO's losses as pure functions (Schulman et al., 2017, arXiv 1707.06347). B is the batch; everything is float32."""

import torch
from torch import Tensor

from pipeline.errors import LearnerError


def clipped_surrogate(log_prob: Tensor, behaviour_log_prob: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Losses of the policy: the negative of equation 7, (B,).

    With the ratio r of the action's probability to that under the acting policy: -min(r A, clip(r, 1 - c, 1 + c) A). So
    there is no gain in moving the ratio further than c from 1, and a gradient only where moving it back would gain.

    Args:
        log_prob: of the actions taken, under the policy that learns, (B,).
        behaviour_log_prob: under the policy that acted, (B,); no gradient flows there.
        advantages: (B,); no gradient flows there.
        clip: c.

    Raises:
        LearnerError: shapes do not fit.
    """
    _check(log_prob=log_prob, behaviour_log_prob=behaviour_log_prob, advantages=advantages)
    ratio = torch.exp(log_prob - behaviour_log_prob.detach())
    advantages = advantages.detach()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


def value_errors(values: Tensor, earlier: Tensor, returns: Tensor, clip: float) -> Tensor:
    """Squared errors of values, (B,).

    With ``clip`` the larger of two: that of the value, and that of the value brought within ``clip`` of what it was
    before the update. So there is no gain in moving a value further than that (as in OpenAI's baselines; whether it
    helps is doubtful, Andrychowicz et al., 2021, arXiv 2006.05990).

    Args:
        values: that learn, (B,).
        earlier: before the update, (B,); no gradient flows there.
        returns: what they ought to be, (B,); no gradient flows there.
        clip: 0: no clipping.

    Raises:
        LearnerError: shapes do not fit.
    """
    _check(values=values, earlier=earlier, returns=returns)
    returns, earlier = returns.detach(), earlier.detach()
    errors = (values - returns).square()
    if not clip:
        return errors
    near = earlier + (values - earlier).clamp(-clip, clip)
    return torch.maximum(errors, (near - returns).square())


def standardised(advantages: Tensor) -> Tensor:
    """Advantages less their mean, over their deviation, (B,); a single one stays as it is."""
    if len(advantages) < 2:
        return advantages
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


def moved(log_prob: Tensor, behaviour_log_prob: Tensor) -> Tensor:
    """How far the policy has moved from the one that acted, a scalar: an estimate of the Kullback-Leibler divergence.

    The mean of r - 1 - log r (Schulman, 2020, "Approximating KL divergence"): without bias, and never negative.
    """
    difference = (log_prob - behaviour_log_prob).detach()
    return (torch.expm1(difference) - difference).mean()


def _check(**tensors: Tensor) -> None:
    first, *others = tensors
    shape = tensors[first].shape
    if len(shape) != 1:
        raise LearnerError(f"loss: {first} has shape {tuple(shape)}, but has to be (batch,)")
    for name in others:
        if tensors[name].shape != shape:
            raise LearnerError(
                f"loss: {name} has shape {tuple(tensors[name].shape)} where {first} of shape {tuple(shape)} asks for "
                "the same"
            )
