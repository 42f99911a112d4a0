"""Learning rules as pure functions, named as in rlax and in the papers.

Shapes: B is the batch, A the number of actions. All values are float32 unless said otherwise.
No gradient flows into targets.
"""

import torch
from torch import Tensor
from torch.nn import functional

from pipeline.errors import LearnerError


def q_learning(q_tm1: Tensor, a_tm1: Tensor, r_t: Tensor, discount_t: Tensor, q_t: Tensor) -> Tensor:
    """TD errors of Q-learning (Watkins and Dayan, 1992).

    Args:
        q_tm1: action values at s_tm1, (B, A).
        a_tm1: index of the action taken at s_tm1, int64 (B,).
        r_t: reward, or n-step return, (B,).
        discount_t: discount of the bootstrap, 0 at termination, (B,).
        q_t: action values at s_t, (B, A).

    Returns:
        target - q_tm1[a_tm1], (B,).

    Raises:
        LearnerError: shapes do not fit.
    """
    _check(q_tm1, a_tm1, r_t, discount_t, q_t=q_t)
    target = (r_t + discount_t * q_t.amax(1)).detach()
    return target - q_tm1.gather(1, a_tm1[:, None])[:, 0]


def double_q_learning(
    q_tm1: Tensor,
    a_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    q_t_value: Tensor,
    q_t_selector: Tensor,
) -> Tensor:
    """TD errors of double Q-learning (van Hasselt, Guez and Silver, 2016, arXiv 1509.06461).

    Args:
        q_tm1: action values at s_tm1, (B, A).
        a_tm1: index of the action taken at s_tm1, int64 (B,).
        r_t: reward, or n-step return, (B,).
        discount_t: discount of the bootstrap, 0 at termination, (B,).
        q_t_value: action values at s_t that the target takes (target network), (B, A).
        q_t_selector: action values at s_t that choose the action (online network), (B, A).

    Returns:
        target - q_tm1[a_tm1], (B,).

    Raises:
        LearnerError: shapes do not fit.
    """
    _check(q_tm1, a_tm1, r_t, discount_t, q_t_value=q_t_value, q_t_selector=q_t_selector)
    chosen = q_t_selector.argmax(1, keepdim=True)
    target = (r_t + discount_t * q_t_value.gather(1, chosen)[:, 0]).detach()
    return target - q_tm1.gather(1, a_tm1[:, None])[:, 0]


def huber(td_error: Tensor, delta: float) -> Tensor:
    """Mean Huber loss: half the square within ``delta``, linear beyond; ``delta`` 0: squares only.

    DQN clips errors this way (Mnih et al., 2015, Methods).
    """
    if delta == 0:
        return 0.5 * td_error.square().mean()
    return functional.huber_loss(td_error, torch.zeros_like(td_error), delta=delta)


def q_loss(q_tm1: Tensor, a_tm1: Tensor, r_t: Tensor, discount_t: Tensor, q_t: Tensor, delta: float = 1.0) -> Tensor:
    """Huber loss of ``q_learning``, a scalar; arguments as there."""
    return huber(q_learning(q_tm1, a_tm1, r_t, discount_t, q_t), delta)


def double_q_loss(
    q_tm1: Tensor,
    a_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    q_t_value: Tensor,
    q_t_selector: Tensor,
    delta: float = 1.0,
) -> Tensor:
    """Huber loss of ``double_q_learning``, a scalar; arguments as there."""
    return huber(double_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t_value, q_t_selector), delta)


def _check(q_tm1: Tensor, a_tm1: Tensor, r_t: Tensor, discount_t: Tensor, **q_t: Tensor) -> None:
    if q_tm1.ndim != 2:
        raise LearnerError(f"loss: q_tm1 has shape {tuple(q_tm1.shape)}, but has to be (batch, actions)")
    expected = {name: (tensor, q_tm1.shape) for name, tensor in q_t.items()}
    for name, tensor in (("a_tm1", a_tm1), ("r_t", r_t), ("discount_t", discount_t)):
        expected[name] = (tensor, q_tm1.shape[:1])
    for name, (tensor, shape) in expected.items():
        if tensor.shape != shape:
            raise LearnerError(
                f"loss: {name} has shape {tuple(tensor.shape)} where q_tm1 of shape "
                f"{tuple(q_tm1.shape)} asks for {tuple(shape)}"
            )
    if a_tm1.dtype != torch.int64:
        raise LearnerError(f"loss: a_tm1 is {a_tm1.dtype}, but actions are indices of torch.int64")
