"""Learning rules: worked examples, shapes, and where gradients flow."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.algorithms import (
    categorical_target,
    cross_entropy,
    double_q_learning,
    double_q_loss,
    masked,
    project,
    q_learning,
    q_loss,
)
from pipeline.algorithms.losses import divergence, huber, weighted_mean
from pipeline.errors import LearnerError


def example() -> dict[str, torch.Tensor]:
    return {
        "q_tm1": torch.tensor([[1.0, 1.0, 0.0], [1.0, 2.0, 0.0]]),
        "a_tm1": torch.tensor([0, 1]),
        "r_t": torch.tensor([1.0, 2.0]),
        "discount_t": torch.tensor([0.5, 0.0]),
        "q_t_value": torch.tensor([[99.0, 1.0, 98.0], [91.0, 2.0, 66.0]]),
        "q_t_selector": torch.tensor([[2.0, 10.0, 1.0], [11.0, 20.0, 1.0]]),
    }


def test_double_q_learning_takes_the_selector_s_action() -> None:
    """First row: 1 + 0.5 * 1 - 1; second row terminated: 2 + 0 - 2."""
    assert double_q_learning(**example()).tolist() == [0.5, 0.0]


def test_q_learning_takes_the_largest_value() -> None:
    given = example()
    q_t = given.pop("q_t_value")
    del given["q_t_selector"]
    assert q_learning(**given, q_t=q_t).tolist() == [1 + 0.5 * 99 - 1, 0.0]


def test_they_agree_when_the_networks_do() -> None:
    given = example()
    given["q_t_selector"] = given["q_t_value"]
    plain = {k: v for k, v in given.items() if not k.startswith("q_t_")}
    torch.testing.assert_close(double_q_learning(**given), q_learning(**plain, q_t=given["q_t_value"]))
    torch.testing.assert_close(double_q_loss(**given), q_loss(**plain, q_t=given["q_t_value"]))


def test_gradients_flow_into_the_taken_actions_only() -> None:
    given = example()
    for name in ("q_tm1", "q_t_value", "q_t_selector"):
        given[name].requires_grad_()
    double_q_loss(**given).backward()
    gradient = given["q_tm1"].grad
    assert gradient is not None
    assert gradient.tolist() == [[-0.25, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert given["q_t_value"].grad is None
    assert given["q_t_selector"].grad is None


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8), st.floats(0.125, 10))
def test_huber_is_half_the_square_near_and_linear_beyond(errors: list[float], delta: float) -> None:
    e = np.abs(np.array(errors, np.float32))
    expected = np.where(e <= delta, 0.5 * e * e, delta * (e - 0.5 * delta)).mean()
    found = huber(torch.tensor(errors, dtype=torch.float32), delta).item()
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_huber_without_delta_is_half_the_square() -> None:
    assert huber(torch.tensor([3.0, -1.0]), 0.0).item() == 2.5


@pytest.mark.parametrize("name", ["a_tm1", "r_t", "discount_t", "q_t_value", "q_t_selector"])
def test_shapes_are_checked(name: str) -> None:
    wrong: dict[str, Any] = example()
    wrong[name] = wrong[name][:1]
    with pytest.raises(LearnerError, match=name):
        double_q_learning(**wrong)


def test_columns_do_not_broadcast_against_rows() -> None:
    wrong = example()
    wrong["r_t"] = wrong["r_t"][:, None]
    with pytest.raises(LearnerError, match="r_t has shape"):
        double_q_learning(**wrong)


def test_actions_are_indices() -> None:
    wrong = example()
    wrong["a_tm1"] = wrong["a_tm1"].float()
    with pytest.raises(LearnerError, match="int64"):
        double_q_learning(**wrong)
    wrong = example()
    wrong["q_tm1"] = wrong["q_tm1"][0]
    with pytest.raises(LearnerError, match="batch, actions"):
        double_q_learning(**wrong)


SUPPORT = torch.tensor([-1.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("returns", "probabilities", "expected"),
    [
        ([-1.0, 0.0, 1.0], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),  # on the atoms
        ([-0.75, 0.25, 0.5], [0.2, 0.3, 0.5], [0.15, 0.05 + 0.225 + 0.25, 0.075 + 0.25]),
        ([-9.0, 7.0, 8.0], [0.2, 0.3, 0.5], [0.2, 0.0, 0.8]),  # beyond both ends
        ([0.5, 0.5, 0.5], [0.2, 0.3, 0.5], [0.0, 0.5, 0.5]),  # all at one return
    ],
)
def test_the_projection_shares_by_nearness(returns: Any, probabilities: Any, expected: Any) -> None:
    found = project(torch.tensor([returns]), torch.tensor([probabilities]), SUPPORT)
    assert found[0].tolist() == pytest.approx(expected, abs=1e-6)


def naive_projection(returns: np.ndarray, probabilities: np.ndarray, low: float, high: float) -> np.ndarray:
    """Algorithm 1 of the paper, as it stands there."""
    batch, atoms = returns.shape
    step = (high - low) / (atoms - 1)
    result = np.zeros((batch, atoms))
    for row in range(batch):
        for j in range(atoms):
            b = (min(max(returns[row, j], low), high) - low) / step
            lower, upper = int(np.floor(b)), int(np.ceil(b))
            if lower == upper:
                result[row, lower] += probabilities[row, j]
            else:
                result[row, lower] += probabilities[row, j] * (upper - b)
                result[row, upper] += probabilities[row, j] * (b - lower)
    return result


@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.floats(0, 1), st.floats(-50, 50))
def test_the_projection_is_that_of_the_paper(seed: int, atoms: int, discount: float, reward: float) -> None:
    random = np.random.default_rng(seed)
    low, high = -10.0, 30.0
    probabilities = random.dirichlet(np.ones(atoms), 3).astype(np.float32)
    support = torch.linspace(low, high, atoms)
    returns = (reward + discount * support).expand(3, atoms)
    found = project(returns, torch.from_numpy(probabilities), support).numpy()
    expected = naive_projection(returns.numpy().astype(np.float64), probabilities, low, high)
    np.testing.assert_allclose(found, expected, atol=2e-4)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-4)


def categorical_example() -> dict[str, torch.Tensor]:
    probabilities = torch.tensor([[[0.2, 0.3, 0.5], [0.5, 0.25, 0.25]], [[0.1, 0.1, 0.8], [0.4, 0.4, 0.2]]])
    return {
        "r_t": torch.tensor([0.5, 0.25]),
        "discount_t": torch.tensor([0.5, 0.0]),
        "support": SUPPORT,
        "logits_t": probabilities.log() + 3,
        "q_t_selector": torch.tensor([[1.0, 2.0], [1.0, 0.0]]),
    }


def test_the_categorical_target_moves_the_chosen_action_s_distribution() -> None:
    """Row 1: action 1, returns 0, 0.5, 1. Row 2 terminated: all at 0.25."""
    target = categorical_target(**categorical_example())
    expected = [[0.0, 0.5 + 0.125, 0.125 + 0.25], [0.0, 0.75, 0.25]]
    np.testing.assert_allclose(target.numpy(), expected, atol=1e-6)


def test_its_mean_is_the_target_of_double_q_learning() -> None:
    """As long as no return leaves the support."""
    given = categorical_example()
    target = categorical_target(**given)
    values = given["logits_t"].softmax(2) @ SUPPORT
    zeros, actions = torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64)
    expected = double_q_learning(zeros, actions, given["r_t"], given["discount_t"], values, given["q_t_selector"])
    torch.testing.assert_close(target @ SUPPORT, expected)


def test_cross_entropy_of_the_action_taken() -> None:
    """-(0.5 log 0.2 + 0.5 log 0.3); the divergence takes the target's own entropy off."""
    logits = torch.tensor([[[0.0, 0.0, 0.0], [0.2, 0.3, 0.5]]])
    logits[0, 1] = logits[0, 1].log() - 2
    target = torch.tensor([[0.5, 0.5, 0.0]])
    found = cross_entropy(logits, torch.tensor([1]), target)
    expected = -(0.5 * np.log(0.2) + 0.5 * np.log(0.3))
    assert found.tolist() == pytest.approx([expected])
    assert divergence(found, target).tolist() == pytest.approx([expected - np.log(2)])
    same = cross_entropy(logits, torch.tensor([1]), torch.tensor([[0.2, 0.3, 0.5]]))
    assert divergence(same, torch.tensor([[0.2, 0.3, 0.5]])).tolist() == pytest.approx([0], abs=1e-6)


def test_its_gradient_is_probabilities_less_target_and_flows_nowhere_else() -> None:
    given = categorical_example()
    logits = torch.zeros(2, 2, 3, requires_grad=True)
    given["logits_t"].requires_grad_()
    given["q_t_selector"].requires_grad_()
    target = categorical_target(**given)
    assert not target.requires_grad
    cross_entropy(logits, torch.tensor([1, 0]), target).sum().backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad[[0, 1], [1, 0]], torch.full((2, 3), 1 / 3) - target)
    assert not logits.grad[[0, 1], [0, 1]].any()
    assert given["logits_t"].grad is None


def test_importance_weights_scale_each_loss() -> None:
    """(2 * 0.5 * 1 + 0.5 * (3 - 0.5)) / 2."""
    errors, weights = torch.tensor([1.0, -3.0]), torch.tensor([2.0, 0.5])
    assert huber(errors, 1.0, weights).item() == (2 * 0.5 + 0.5 * 2.5) / 2
    assert huber(errors, 0.0, weights).item() == (2 * 0.5 + 0.5 * 4.5) / 2
    assert huber(errors, 1.0, torch.ones(2)).item() == huber(errors, 1.0).item()
    assert weighted_mean(torch.tensor([1.0, 3.0]), weights).item() == 1.75
    with pytest.raises(LearnerError, match="importance weights"):
        huber(errors, 1.0, weights[:, None])


def test_a_mask_takes_actions_out_of_the_choice_only() -> None:
    given = example()
    mask = torch.tensor([[True, False, True], [False, False, False]])
    selector = masked(given["q_t_selector"], mask)
    assert selector.argmax(1).tolist() == [0, 1]
    given["q_t_selector"] = selector
    # 1 + 0.5 * 99 - 1; the second row, where nothing is allowed, terminated, and all stays finite.
    assert double_q_learning(**given).tolist() == [49.5, 0.0]
    for wrong in (mask[:1], mask.float(), mask[0]):
        with pytest.raises(LearnerError, match="mask"):
            masked(given["q_t_value"], wrong)


@pytest.mark.parametrize("name", ["r_t", "discount_t", "support", "logits_t", "q_t_selector"])
def test_shapes_of_distributions_are_checked(name: str) -> None:
    wrong: dict[str, Any] = categorical_example()
    wrong[name] = wrong[name][:1]
    with pytest.raises(LearnerError, match=name):
        categorical_target(**wrong)


def test_shapes_of_cross_entropies_are_checked() -> None:
    logits, actions, target = torch.zeros(2, 2, 3), torch.tensor([0, 1]), torch.full((2, 3), 1 / 3)
    for changed in ((logits[0], actions, target), (logits, actions[:1], target), (logits, actions, target[:, :2])):
        with pytest.raises(LearnerError):
            cross_entropy(*changed)
    with pytest.raises(LearnerError, match="int64"):
        cross_entropy(logits, actions.float(), target)
    with pytest.raises(LearnerError, match="probabilities"):
        project(torch.zeros(2, 3), torch.zeros(2, 2), SUPPORT)
    with pytest.raises(LearnerError, match="support"):
        project(torch.zeros(2, 1), torch.zeros(2, 1), SUPPORT[:1])
