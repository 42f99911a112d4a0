"""Networks: every space becomes features, and seeds decide the weights."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from pipeline.algorithms import NetworkSettings, build_network
from pipeline.errors import SpaceError
from pipeline.experience import Layout, flatten

SETTINGS = NetworkSettings((8,))


def layout_of(observation: gym.Space[Any], actions: gym.Space[Any] | None = None) -> Layout:
    return Layout(observation, spaces.Discrete(3) if actions is None else actions)


NESTED = spaces.Dict(
    {
        "box": spaces.Box(-1, 1, (2, 3), np.float64),
        "image": spaces.Box(0, 255, (2, 2), np.uint8),
        "choice": spaces.Discrete(4, start=-2),
        "pair": spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(5)]),
    }
)


@pytest.mark.parametrize(
    ("space", "features"),
    [
        (spaces.Box(-1, 1, (4,), np.float32), 4),
        (spaces.Box(-1, 1, (), np.float64), 1),
        (spaces.Box(0, 255, (3, 3), np.uint8), 9),
        (spaces.Discrete(5), 5),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), 14),
        (spaces.MultiBinary((2, 3)), 6),
        (NESTED, 6 + 4 + 4 + 5 + 5),
    ],
)
def test_every_space_is_read(space: gym.Space[Any], features: int) -> None:
    layout = layout_of(space)
    network = build_network(layout, SETTINGS, seed=0)
    space.seed(1)
    values = [space.sample() for _ in range(6)]
    rows = [flatten("observation", space, value, batch=False) for value in values]
    columns = {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}
    assert network.body[0].in_features == features
    q = network(columns)
    assert (q.shape, q.dtype) == ((6, 3), torch.float32)
    assert bool(torch.isfinite(q).all())


def test_integers_are_one_hot_and_images_scaled() -> None:
    layout = layout_of(NESTED)
    network = build_network(layout, NetworkSettings(()), seed=0)
    features: list[torch.Tensor] = []
    network.body.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0]))
    network(
        {
            "observation/box": torch.zeros(1, 2, 3, dtype=torch.float64),
            "observation/image": torch.full((1, 2, 2), 255, dtype=torch.uint8),
            "observation/choice": torch.tensor([-1]),
            "observation/pair/0": torch.tensor([[1, 2]]),
            "observation/pair/1": torch.ones(1, 5, dtype=torch.int8),
        }
    )
    by_column = {
        "observation/box": [0] * 6,
        "observation/image": [1] * 4,
        "observation/choice": [0, 1, 0, 0],
        "observation/pair/0": [0, 1, 0, 0, 1],
        "observation/pair/1": [1] * 5,
    }
    expected = [value for column in layout.observation for value in by_column[column.name]]
    assert features[0][0].tolist() == pytest.approx(expected)


def test_a_single_tensor_is_enough_for_a_flat_space() -> None:
    network = build_network(layout_of(spaces.Box(-1, 1, (4,), np.float32)), SETTINGS, seed=0)
    observation = torch.rand(5, 4)
    torch.testing.assert_close(network(observation), network({"observation": observation}))


def test_the_seed_decides_and_the_global_generator_stays() -> None:
    layout = layout_of(spaces.Box(-1, 1, (4,), np.float32))
    before = torch.get_rng_state()
    one, same, other = (build_network(layout, SETTINGS, seed).state_dict()["body.0.weight"] for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    build_network(layout, SETTINGS)
    assert not torch.equal(torch.get_rng_state(), before)


def test_continuous_actions_are_refused() -> None:
    box = spaces.Box(-1, 1, (2,), np.float32)
    with pytest.raises(SpaceError, match="Discrete action space"):
        build_network(layout_of(box, actions=box), SETTINGS)


def test_unknown_observation_spaces_are_refused() -> None:
    with pytest.raises(SpaceError):
        build_network(layout_of(spaces.Text(5)), SETTINGS)
