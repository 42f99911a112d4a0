"""What is done to rewards before they are learned from."""

import dataclasses

import numpy as np
import pytest

from pipeline.errors import ConfigError
from pipeline.experience import Ending, Identity, NStepReader, RewardTransform
from tests.experience.test_nstep import LAYOUT, SESSION, Part, make_chunk, reward


def test_scaled_first_then_clipped():
    rewards = np.array([-3.0, -0.25, 0.0, 1.5, 400.0], np.float32)
    assert RewardTransform(0.5, 1.0)(rewards).tolist() == [-1.0, -0.125, 0.0, 0.75, 1.0]
    assert RewardTransform(-2.0)(rewards).tolist() == [6.0, 0.5, 0.0, -3.0, -800.0]
    assert RewardTransform()(rewards).tolist() == rewards.tolist()
    assert rewards[4] == 400.0


def test_each_step_s_reward_is_transformed_before_they_are_summed():
    """Also of the steps that waited for the next chunk; the waiting ones keep what the log holds."""
    transform, gamma = RewardTransform(4.0, 0.5), 0.9
    chunks = [make_chunk([Part(0, 0, 0, 4, Ending.OPEN)]), make_chunk([Part(0, 0, 4, 3, Ending.TERMINATED)])]
    reader = NStepReader(3, gamma, rewards=transform)
    parts = [reader.read(Identity("a", SESSION, index), chunk, LAYOUT) for index, chunk in enumerate(chunks)]
    learned = [max(-0.5, min(0.5, 4.0 * reward(step))) for step in range(7)]
    assert len(set(learned)) > 2
    expected = [sum(gamma**k * learned[step + k] for k in range(min(3, 7 - step))) for step in range(7)]
    assert np.concatenate([part.reward for part in parts]) == pytest.approx(expected, rel=1e-6)
    raw = NStepReader(3, gamma)
    raw.read(Identity("a", SESSION, 0), chunks[0], LAYOUT)
    reader = NStepReader(3, gamma, rewards=transform)
    reader.read(Identity("a", SESSION, 0), chunks[0], LAYOUT)
    assert reader.state()["columns:reward"].tolist() == raw.state()["columns:reward"].tolist()


@pytest.mark.parametrize("wrong", [{"scale": 0.0}, {"scale": float("inf")}, {"clip": -1.0}, {"clip": float("nan")}])
def test_what_is_out_of_range_is_refused(wrong: dict[str, float]):
    with pytest.raises(ConfigError, match=r"algorithm\.reward_"):
        dataclasses.replace(RewardTransform(), **wrong)
