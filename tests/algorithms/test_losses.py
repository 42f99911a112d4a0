"""Learning rules: worked examples, shapes, and where gradients flow."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.algorithms import double_q_learning, double_q_loss, q_learning, q_loss
from pipeline.algorithms.losses import huber
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
