"""Learning rules as pure functions, named as in rlax and in the papers.

Shapes: B is the batch, A the number of actions, N the number of atoms of a distribution. All values are float32 unless
said otherwise. No gradient flows into targets.
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


def masked(q: Tensor, mask: Tensor) -> Tensor:
    """Action values that make ``argmax`` choose among the actions allowed.

    Args:
        q: action values, (B, A).
        mask: which actions are allowed, bool (B, A); a row that allows none allows all.

    Returns:
        ``q`` with the least finite number for what is not allowed, (B, A): to select by, not to bootstrap from.

    Raises:
        LearnerError: shapes do not fit, or the mask is not of bool.
    """
    if q.ndim != 2 or mask.shape != q.shape or mask.dtype != torch.bool:
        raise LearnerError(
            f"loss: the action mask is {mask.dtype} of shape {tuple(mask.shape)} where values of shape "
            f"{tuple(q.shape)} ask for torch.bool of that shape"
        )
    forbidden = ~mask & mask.any(1, keepdim=True)
    return q.masked_fill(forbidden, torch.finfo(q.dtype).min)


def project(returns: Tensor, probabilities: Tensor, support: Tensor) -> Tensor:
    """Distributions over some returns, brought onto others (Bellemare et al., 2017, arXiv 1707.06887, equation 7).

    Each probability is shared by the two atoms of the support next to its return, in proportion to how near they are;
    what lies outside goes to the outermost atom.

    Args:
        returns: (B, N).
        probabilities: of each return, (B, N).
        support: evenly spaced and rising, (N,), at least 2.

    Returns:
        Probabilities of the support, (B, N), with the same sums, without gradient.

    Raises:
        LearnerError: shapes do not fit.
    """
    atoms = support.shape[0]
    if support.ndim != 1 or atoms < 2 or returns.ndim != 2 or returns.shape[1] != atoms:
        raise LearnerError(
            f"loss: returns of shape {tuple(returns.shape)} and a support of shape {tuple(support.shape)} have to be "
            "(batch, atoms) and (atoms,), with 2 atoms or more"
        )
    if probabilities.shape != returns.shape:
        raise LearnerError(
            f"loss: probabilities have shape {tuple(probabilities.shape)} where returns have {tuple(returns.shape)}"
        )
    with torch.no_grad():
        low, high = support[0], support[-1]
        # In steps between atoms, so that the atoms are whole numbers.
        places = (returns.clamp(low, high) - low) * ((atoms - 1) / (high - low))
        whole = torch.arange(atoms, dtype=places.dtype, device=places.device)
        # Triangles instead of a scatter: the order of sums does not depend on the device. In place, for speed.
        shares = places[:, None, :] - whole[None, :, None]
        shares.abs_().neg_().add_(1).clamp_min_(0)
        return (shares @ probabilities[:, :, None])[:, :, 0]


def categorical_target(
    r_t: Tensor, discount_t: Tensor, support: Tensor, logits_t: Tensor, q_t_selector: Tensor
) -> Tensor:
    """What the distribution of the action taken ought to be, by categorical (double) Q-learning.

    Bellemare et al., 2017, algorithm 1; with the double estimator as in Hessel et al., 2018, arXiv 1710.02298.

    Args:
        r_t: reward, or n-step return, (B,).
        discount_t: discount of the bootstrap, 0 at termination, (B,).
        support: returns that the logits belong to, (N,).
        logits_t: distributions at s_t that the target takes (target network), (B, A, N).
        q_t_selector: action values at s_t that choose the action, (B, A): the online network's, or, without the
            double estimator, the means of ``logits_t``.

    Returns:
        Probabilities of the support, (B, N), without gradient.

    Raises:
        LearnerError: shapes do not fit.
    """
    if logits_t.ndim != 3 or support.shape != logits_t.shape[2:] or q_t_selector.shape != logits_t.shape[:2]:
        raise LearnerError(
            f"loss: logits_t of shape {tuple(logits_t.shape)}, a support of shape {tuple(support.shape)} and "
            f"q_t_selector of shape {tuple(q_t_selector.shape)} have to be (batch, actions, atoms), (atoms,), and "
            "(batch, actions)"
        )
    for name, tensor in (("r_t", r_t), ("discount_t", discount_t)):
        if tensor.shape != logits_t.shape[:1]:
            raise LearnerError(
                f"loss: {name} has shape {tuple(tensor.shape)} where logits_t of shape {tuple(logits_t.shape)} asks "
                f"for {tuple(logits_t.shape[:1])}"
            )
    with torch.no_grad():
        chosen = q_t_selector.argmax(1)
        probabilities = logits_t[torch.arange(len(chosen), device=chosen.device), chosen].softmax(1)
        return project(r_t[:, None] + discount_t[:, None] * support, probabilities, support)


def cross_entropy(logits_tm1: Tensor, a_tm1: Tensor, target: Tensor) -> Tensor:
    """Cross entropies of the distributions of the actions taken (Bellemare et al., 2017, algorithm 1).

    Args:
        logits_tm1: distributions at s_tm1, (B, A, N).
        a_tm1: index of the action taken at s_tm1, int64 (B,).
        target: probabilities that they ought to have, (B, N); no gradient flows there.

    Returns:
        -sum_i target_i log p_i, (B,).

    Raises:
        LearnerError: shapes do not fit.
    """
    if logits_tm1.ndim != 3:
        raise LearnerError(
            f"loss: logits_tm1 has shape {tuple(logits_tm1.shape)}, but has to be (batch, actions, atoms)"
        )
    batch, _, atoms = logits_tm1.shape
    if a_tm1.shape != (batch,) or a_tm1.dtype != torch.int64 or target.shape != (batch, atoms):
        raise LearnerError(
            f"loss: a_tm1 is {a_tm1.dtype} of shape {tuple(a_tm1.shape)} and target has shape {tuple(target.shape)} "
            f"where logits_tm1 of shape {tuple(logits_tm1.shape)} asks for torch.int64 {(batch,)} and {(batch, atoms)}"
        )
    taken = logits_tm1[torch.arange(batch, device=a_tm1.device), a_tm1]
    return -(target.detach() * taken.log_softmax(1)).sum(1)


def divergence(cross_entropies: Tensor, target: Tensor) -> Tensor:
    """Kullback-Leibler divergences that go with cross entropies: Rainbow's priorities (Hessel et al., 2018).

    Args:
        cross_entropies: as :func:`cross_entropy` gives them, (B,).
        target: as it was given there, (B, N).

    Returns:
        How far the distributions are from their targets, (B,), 0 or more, without gradient.
    """
    entropies = -torch.xlogy(target, target).sum(1)
    return (cross_entropies.detach() - entropies).clamp_min(0)


def weighted_mean(losses: Tensor, weights: Tensor) -> Tensor:
    """Mean of losses times importance weights, a scalar (Schaul et al., 2016, arXiv 1511.05952, algorithm 1).

    Args:
        losses: one a transition, (B,).
        weights: (B,).

    Raises:
        LearnerError: shapes do not fit.
    """
    if losses.ndim != 1 or weights.shape != losses.shape:
        raise LearnerError(
            f"loss: importance weights have shape {tuple(weights.shape)} where losses have {tuple(losses.shape)}; "
            "both have to be (batch,)"
        )
    return (weights * losses).mean()


def huber(td_error: Tensor, delta: float, weights: Tensor | None = None) -> Tensor:
    """Mean Huber loss: half the square within ``delta``, linear beyond; ``delta`` 0: squares only.

    DQN clips errors this way (Mnih et al., 2015, Methods).

    Args:
        td_error: (B,).
        delta: see above.
        weights: importance weights, (B,); None: all alike.

    Raises:
        LearnerError: weights are of another shape.
    """
    if weights is not None:
        losses = 0.5 * td_error.square()
        if delta > 0:
            losses = functional.huber_loss(td_error, torch.zeros_like(td_error), reduction="none", delta=delta)
        return weighted_mean(losses, weights)
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
