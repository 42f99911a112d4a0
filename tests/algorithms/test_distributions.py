"""Distributions of actions: what is drawn is as likely as its log-probability says."""

from math import erf, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from pipeline.algorithms.distributions import ClippedGaussian, action_distribution
from pipeline.errors import SpaceError
from pipeline.experience import Layout

BOX = spaces.Box(-1, 1, (2,), np.float32)


def distribution(space: Any) -> Any:
    return action_distribution(Layout(BOX, space))


def outputs(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows)


def test_discrete_actions_come_as_often_as_they_are_likely() -> None:
    space = spaces.Discrete(3, start=-1)
    logits = outputs([0.0, 1.0, -1.0]).expand(20_000, 3)
    found = distribution(space).sample(logits.numpy(), np.random.default_rng(0), None)
    assert (found.dtype, found.shape) == (space.dtype, (20_000,))
    each = distribution(space).log_prob(logits[:3], torch.tensor([-1, 0, 1]), None).exp()
    np.testing.assert_allclose(each.numpy(), logits[0].softmax(0).numpy(), rtol=1e-5)
    np.testing.assert_allclose(np.bincount(found + 1) / len(found), each.numpy(), atol=0.012)
    assert distribution(space).sample(logits[:2].numpy(), None, None).tolist() == [0, 0]


def test_masked_actions_are_never_drawn_and_the_others_share_their_probability() -> None:
    space = spaces.Discrete(3, start=-1)
    logits = outputs([0.0, 9.0, 0.0]).expand(3000, 3)
    mask = np.zeros((3000, 3), bool)
    mask[:2000, [0, 2]] = True
    found = distribution(space).sample(logits.numpy(), np.random.default_rng(0), mask)
    assert set(found[:2000].tolist()) == {-1, 1}
    assert np.mean(found[:2000] == 1) == pytest.approx(0.5, abs=0.04)
    # Where nothing is allowed, everything is.
    assert np.mean(found[2000:] == 0) > 0.99
    masks = torch.as_tensor(mask)
    logs = distribution(space).log_prob(logits[:1], torch.tensor([1]), masks[:1])
    assert logs.tolist() == pytest.approx([np.log(0.5)])
    assert distribution(space).entropy(logits[:1], masks[:1]).tolist() == pytest.approx([np.log(2)])
    last = distribution(space).log_prob(logits[-1:], torch.tensor([0]), masks[-1:])
    assert last.tolist() == distribution(space).log_prob(logits[-1:], torch.tensor([0]), None).tolist()
    greedy = distribution(space).sample(np.array([[1, 9, 2]], np.float32), None, np.array([[True, False, True]]))
    assert greedy.tolist() == [1]


def test_gradients_of_masked_logits_are_zero_and_finite() -> None:
    logits = outputs([0.3, 9.0, -0.2]).requires_grad_()
    mask = torch.tensor([[True, False, True]])
    chosen = distribution(spaces.Discrete(3))
    (chosen.log_prob(logits, torch.tensor([2]), mask) + chosen.entropy(logits, mask)).sum().backward()
    assert logits.grad is not None
    assert logits.grad[0, 1] == 0
    assert bool(torch.isfinite(logits.grad).all())


def test_multi_discrete_actions_are_independent() -> None:
    space = spaces.MultiDiscrete([[2, 3]], start=[[0, 5]])
    chosen = distribution(space)
    logits = outputs([0.0, 1.0, 0.0, 2.0, -1.0])
    first, second = logits[0, :2].log_softmax(0), logits[0, 2:].log_softmax(0)
    actions = torch.tensor([[[0, 5]], [[1, 6]], [[1, 7]]])
    expected = [first[0] + second[0], first[1] + second[1], first[1] + second[2]]
    assert chosen.log_prob(logits.expand(3, 5), actions, None).tolist() == pytest.approx([float(e) for e in expected])
    entropy = -sum(float((part.exp() * part).sum()) for part in (first, second))
    assert chosen.entropy(logits, None).tolist() == pytest.approx([entropy])
    found = chosen.sample(logits.expand(5000, 5).numpy(), np.random.default_rng(0), None)
    assert (found.dtype, found.shape) == (space.dtype, (5000, 1, 2))
    assert np.mean((found == [[1, 6]]).all((1, 2))) == pytest.approx(expected[1].exp().item(), abs=0.02)
    assert chosen.sample(logits.numpy(), None, None).tolist() == [[[1, 6]]]
    with pytest.raises(SpaceError, match="need Discrete actions"):
        chosen.sample(logits.numpy(), None, np.ones((1, 5), bool))


def test_unbounded_actions_are_gaussian() -> None:
    space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    chosen = distribution(space)
    row = outputs([0.5, -3.0, np.log(2.0), np.log(0.1)])
    actions = np.array([[1.0, -3.1], [-4.0, -2.5]])
    density = np.exp(-(((actions - [0.5, -3]) / [2, 0.1]) ** 2) / 2) / np.sqrt(2 * np.pi) / [2, 0.1]
    found = chosen.log_prob(row.expand(2, 4), torch.as_tensor(actions), None)
    np.testing.assert_allclose(found.numpy(), np.log(density).sum(1), rtol=1e-5)
    entropy = np.log(2 * np.pi * np.e * np.array([2, 0.1]) ** 2).sum() / 2
    assert chosen.entropy(row, None).tolist() == pytest.approx([entropy], rel=1e-5)
    drawn = chosen.sample(row.expand(20_000, 4).numpy(), np.random.default_rng(0), None)
    assert (drawn.dtype, drawn.shape) == (np.float64, (20_000, 2))
    np.testing.assert_allclose(drawn.mean(0), [0.5, -3], atol=0.05)
    np.testing.assert_allclose(drawn.std(0), [2, 0.1], rtol=0.03)
    assert chosen.sample(row.numpy(), None, None).tolist() == [[0.5, -3.0]]


def test_what_is_drawn_beyond_a_bound_counts_to_the_bound() -> None:
    """Probabilities of the two bounds and the density between them add up to 1, and are those of what is drawn."""
    space = spaces.Box(np.float32(-2), np.float32(6), (1,), np.float32)
    chosen = distribution(space)
    row = outputs([0.3, np.log(0.9)])
    # In units in which the bounds are -1 and 1 the action 2 + 4 u has mean 0.3.
    u = np.linspace(-1, 1, 4001)[1:-1]
    density = chosen.log_prob(row.expand(len(u), 2), torch.as_tensor((2 + 4 * u)[:, None]), None).double().exp().numpy()
    tails = chosen.log_prob(row.expand(2, 2), torch.tensor([[-2.0], [6.0]]), None).exp().numpy()
    expected = [(1 + erf((-1 - 0.3) / 0.9 / sqrt(2))) / 2, (1 - erf((1 - 0.3) / 0.9 / sqrt(2))) / 2]
    np.testing.assert_allclose(tails, expected, rtol=1e-4)
    assert density.sum() * (u[1] - u[0]) + tails.sum() == pytest.approx(1, abs=1e-3)
    drawn = chosen.sample(row.expand(20_000, 2).numpy(), np.random.default_rng(0), None)
    assert space.low.item() == drawn.min() and space.high.item() == drawn.max()
    np.testing.assert_allclose([np.mean(drawn == -2), np.mean(drawn == 6)], tails, atol=0.01)
    assert chosen.sample(row.numpy(), None, None).tolist() == [[pytest.approx(3.2)]]
    assert chosen.sample(outputs([7.0, 0.0]).numpy(), None, None).tolist() == [[6.0]]


def test_gradients_at_the_bounds_are_finite_however_far_the_mean_is() -> None:
    chosen = distribution(spaces.Box(-1, 1, (4,), np.float32))
    row = outputs([30.0, -30.0, 0.0, 2.0, -3.0, -3.0, 0.0, -5.0]).requires_grad_()
    logs = chosen.log_prob(row, torch.tensor([[-1.0, 1.0, 1.0, 0.3]]), None)
    logs.sum().backward()
    assert row.grad is not None
    assert bool(torch.isfinite(logs).all()) and bool(torch.isfinite(row.grad).all())
    # A mean above a density's action is drawn down, one that has to reach the other bound up.
    assert row.grad[0, :4].sign().tolist() == [-1, 1, 1, -1]


def test_every_drawn_action_is_in_its_space() -> None:
    low = np.array([-np.inf, 0.1, -0.3, -np.finfo(np.float32).max, -1e-3], np.float32)
    high = np.array([0.7, np.inf, 0.9, np.finfo(np.float32).max, 1e9], np.float32)
    space = spaces.Box(low, high, dtype=np.float32)
    chosen = distribution(space)
    assert isinstance(chosen, ClippedGaussian)
    rows = np.zeros((2000, 10), np.float32)
    drawn = chosen.sample(rows, np.random.default_rng(0), None)
    layout = Layout(BOX, space)
    assert layout.action[0].contains(drawn)
    assert bool(torch.isfinite(chosen.log_prob(torch.as_tensor(rows), torch.as_tensor(drawn), None)).all())
    # Bounds that are none in effect do not blow up the units.
    assert np.abs(drawn[:, 3]).max() < 10


@pytest.mark.parametrize(
    "space", [spaces.MultiBinary(3), spaces.Box(0, 255, (2,), np.uint8), spaces.Dict({"a": spaces.Discrete(2)})]
)
def test_other_action_spaces_are_refused(space: Any) -> None:
    with pytest.raises(SpaceError, match="a policy needs"):
        distribution(space)
