"""PPO's losses: worked examples, and where gradients flow."""

import math

import pytest
import torch

from pipeline.algorithms import clipped_surrogate, value_errors
from pipeline.algorithms.policy_losses import moved, standardised
from pipeline.errors import LearnerError


def logs(*probabilities: float) -> torch.Tensor:
    return torch.tensor(probabilities).log()


def test_ratios_gain_nothing_beyond_the_clip() -> None:
    """Ratios 1.5, 1.1, 0.5, 1.5, 0.5 with advantages 2, 2, 2, -2, -2, and a clip of 0.2."""
    taken = logs(0.75, 0.55, 0.25, 0.75, 0.25).requires_grad_()
    losses = clipped_surrogate(taken, logs(0.5, 0.5, 0.5, 0.5, 0.5), torch.tensor([2.0, 2, 2, -2, -2]), 0.2)
    assert losses.tolist() == pytest.approx([-1.2 * 2, -1.1 * 2, -0.5 * 2, 1.5 * 2, 0.8 * 2])
    losses.sum().backward()
    # Where the loss is the clipped one there is no gradient; elsewhere that of -r A is -r A.
    assert taken.grad is not None
    assert taken.grad.tolist() == pytest.approx([0, -1.1 * 2, -0.5 * 2, 1.5 * 2, 0])


def test_the_first_step_is_a_plain_policy_gradient() -> None:
    taken = logs(0.3, 0.6).requires_grad_()
    advantages = torch.tensor([1.5, -2.0])
    clipped_surrogate(taken, taken, advantages, 0.2).sum().backward()
    assert taken.grad is not None
    assert torch.equal(taken.grad, -advantages)


def test_values_are_clipped_to_where_they_were() -> None:
    values = torch.tensor([2.0, 2.0, 1.1, 0.0], requires_grad=True)
    earlier = torch.tensor([1.0, 1.0, 1.0, 1.0])
    returns = torch.tensor([3.0, 1.0, 2.0, 1.4])
    assert value_errors(values, earlier, returns, 0.0).tolist() == pytest.approx([1, 1, 0.81, 1.96])
    # Brought within 0.5 they are 1.5, 1.5, 1.1, 0.5; the larger of the two errors counts.
    errors = value_errors(values, earlier, returns, 0.5)
    assert errors.tolist() == pytest.approx([2.25, 1, 0.81, 1.96])
    errors.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([0, 2, -1.8, -2.8])


def test_advantages_are_standardised_by_their_own_mean_and_deviation() -> None:
    found = standardised(torch.tensor([1.0, 2.0, 3.0]))
    assert found.tolist() == pytest.approx([-1, 0, 1])
    assert standardised(torch.tensor([5.0])).tolist() == [5.0]
    assert standardised(torch.tensor([5.0, 5.0])).tolist() == [0.0, 0.0]


def test_how_far_a_policy_moved() -> None:
    """The ratios are 2 and 0.5: (2 - 1 - log 2 + 0.5 - 1 + log 2) / 2."""
    assert moved(logs(0.5, 0.25), logs(0.25, 0.5)).item() == pytest.approx(0.25)
    assert moved(logs(0.1, 0.7), logs(0.1, 0.7)).item() == 0.0
    # In expectation over the acting policy it is the divergence itself.
    acting, learning = torch.tensor([0.2, 0.8]), torch.tensor([0.6, 0.4])
    each = torch.stack([moved(new[None].log(), old[None].log()) for new, old in zip(learning, acting, strict=True)])
    divergence = 0.2 * math.log(0.2 / 0.6) + 0.8 * math.log(0.8 / 0.4)
    assert (acting * each).sum().item() == pytest.approx(divergence, rel=1e-5)


def test_shapes_have_to_fit() -> None:
    batch = torch.zeros(3)
    with pytest.raises(LearnerError, match="advantages has shape \\(2,\\)"):
        clipped_surrogate(batch, batch, torch.zeros(2), 0.2)
    with pytest.raises(LearnerError, match="values has shape \\(3, 1\\)"):
        value_errors(batch[:, None], batch, batch, 0.2)
