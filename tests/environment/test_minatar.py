"""MinAtar's games through the settings, where the package is installed."""

import numpy as np
import pytest

from pipeline.config import load_config
from pipeline.environment import make_vector, read_layout

pytest.importorskip("minatar")


def test_breakout_is_an_image_of_bools() -> None:
    config = load_config(["environment=minatar_breakout"]).environment
    (column,) = read_layout(config).observation
    assert (column.shape, column.dtype) == ((10, 10, 4), np.bool_)
    environment = make_vector(config, 2)
    observation, _ = environment.reset(seed=0)
    assert observation.shape == (2, 10, 10, 4)
    for _ in range(60):
        observation, _, terminated, *_ = environment.step(np.zeros(2, np.int64))
        assert observation.dtype == np.bool_
        if terminated.any():
            return
    pytest.fail("a ball that nobody hits ends the game")
