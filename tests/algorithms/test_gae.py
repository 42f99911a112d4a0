"""Generalised advantages against a plain loop, and where their chains end."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipeline.algorithms import Rollout, generalised_advantages
from pipeline.errors import LearnerError
from pipeline.experience import Ending


def plain_loop(
    values: NDArray[np.float32],
    reward: NDArray[np.float32],
    length: list[int],
    ending: list[int],
    continues: list[bool],
    gamma: float,
    lam: float,
) -> list[float]:
    """The definition, step by step from the end."""
    advantages = [0.0] * len(reward)
    step, row = len(reward), len(values)
    for segment in reversed(range(len(length))):
        row -= 1
        following = advantages[step] if continues[segment] else 0.0
        bootstrap = 0.0 if ending[segment] == Ending.TERMINATED else float(values[row])
        for _ in range(length[segment]):
            step -= 1
            row -= 1
            following = float(reward[step]) + gamma * bootstrap - float(values[row]) + gamma * lam * following
            advantages[step] = following
            bootstrap = float(values[row])
    return advantages


segments = st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0, 1, 2, "continues"])), min_size=1, max_size=12)


@given(segments, st.integers(0, 2**32 - 1), st.floats(0, 1), st.floats(0, 1))
def test_advantages_are_those_of_a_plain_loop(
    table: list[tuple[int, Any]], seed: int, gamma: float, lam: float
) -> None:
    length = [count for count, _ in table]
    ending = [0 if how == "continues" else how for _, how in table]
    continues = [how == "continues" for _, how in table]
    continues[-1] = False
    rng = np.random.default_rng(seed)
    reward = rng.normal(size=sum(length)).astype(np.float32)
    values = rng.normal(size=sum(length) + len(length)).astype(np.float32)
    expected = plain_loop(values, reward, length, ending, continues, gamma, lam)
    found = generalised_advantages(
        values, reward, np.array(length), np.array(ending, np.uint8), np.array(continues), gamma, lam
    )
    assert (found.dtype, found.shape) == (np.float32, (sum(length),))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def two_steps(ending: int) -> list[float]:
    return generalised_advantages(
        np.array([1, 2, 4], np.float32),
        np.array([10, 20], np.float32),
        np.array([2]),
        np.array([ending], np.uint8),
        np.array([False]),
        0.5,
        0.5,
    ).tolist()


def test_worked_examples() -> None:
    """TD errors are 10 + 0.5 * 2 - 1 = 10, and 20 - 2, or 20 + 0.5 * 4 - 2 where the last observation has a value."""
    assert two_steps(Ending.TERMINATED) == [10 + 0.25 * 18, 18]
    assert two_steps(Ending.TRUNCATED) == two_steps(Ending.OPEN) == [10 + 0.25 * 20, 20]


@given(st.integers(2, 40), st.data())
def test_how_an_episode_is_divided_into_segments_does_not_matter(steps: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(steps)
    values, reward = rng.normal(size=steps + 1).astype(np.float32), rng.normal(size=steps).astype(np.float32)
    cuts = sorted(data.draw(st.sets(st.integers(1, steps - 1), max_size=5)))
    ends = [*cuts, steps]
    whole = generalised_advantages(
        values, reward, np.array([steps]), np.array([2], np.uint8), np.array([False]), 0.9, 0.8
    )
    # The observation between two segments is the last of one and the first of the other.
    rows = np.concatenate([np.arange(first, last + 1) for first, last in zip([0, *cuts], ends, strict=True)])
    ending = np.zeros(len(ends), np.uint8)
    ending[-1] = 2
    parts = generalised_advantages(
        values[rows], reward, np.diff([0, *ends]), ending, np.arange(len(ends)) < len(cuts), 0.9, 0.8
    )
    np.testing.assert_array_equal(parts, whole)


def rollout(**changes: Any) -> Rollout:
    arrays: dict[str, Any] = {
        "observations": {"observation": np.zeros((7, 2), np.float32)},
        "columns": {"action": np.zeros(5, np.int64), "log_prob": np.zeros(5, np.float32)},
        "reward": np.zeros(5, np.float32),
        "length": np.array([2, 3]),
        "ending": np.array([0, 1], np.uint8),
        "continues": np.array([True, False]),
    }
    return Rollout(**(arrays | changes))


def test_a_rollout_knows_its_rows() -> None:
    assert rollout().steps == 5
    assert rollout().rows.tolist() == [0, 1, 3, 4, 5]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"length": np.array([5, 0])}, "each of one step or more"),
        ({"length": np.array([], np.int64)}, "each of one step or more"),
        ({"reward": np.zeros(4, np.float32)}, "'reward' has 4 rows where 2 segments of 5 steps need 5"),
        ({"columns": {"action": np.zeros(6)}}, "'action' has 6 rows"),
        ({"observations": {"observation": np.zeros(5)}}, "'observation' has 5 rows .* need 7"),
        ({"ending": np.array([0], np.uint8)}, "'ending' has 1 rows"),
        ({"continues": np.array([False, True]), "ending": np.array([0, 0], np.uint8)}, "only an open segment"),
        ({"ending": np.array([2, 1], np.uint8)}, "only an open segment"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(LearnerError, match=says):
        rollout(**changes)
