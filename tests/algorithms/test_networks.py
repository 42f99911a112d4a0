"""Networks: every space becomes features, and seeds decide the weights."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from pipeline.algorithms import NetworkSettings, build_network
from pipeline.algorithms.noisy import NoisyLinear
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


BOX = spaces.Box(-1, 1, (4,), np.float32)
ALL = {"dueling": True, "noisy": True, "atoms": 5, "v_min": -2.0, "v_max": 2.0}


def names_and_shapes(**settings: Any) -> dict[str, tuple[int, ...]]:
    network = build_network(layout_of(BOX), NetworkSettings((8, 6), **settings), seed=0)
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


def test_without_extensions_the_tensors_are_those_of_a_perceptron() -> None:
    shapes = {"body.0": (8, 4), "body.2": (6, 8), "body.4": (3, 6)}
    expected = {f"{name}.weight": shape for name, shape in shapes.items()}
    expected |= {f"{name}.bias": shape[:1] for name, shape in shapes.items()}
    assert names_and_shapes() == expected


def test_extensions_shape_the_heads() -> None:
    assert names_and_shapes(atoms=5)["body.4.weight"] == (15, 6)
    dueling = names_and_shapes(dueling=True, atoms=5)
    assert dueling["body.0.weight"] == (8, 4)
    assert dueling["value.0.weight"] == dueling["advantage.0.weight"] == (6, 8)
    assert (dueling["value.2.weight"], dueling["advantage.2.weight"]) == ((5, 6), (15, 6))
    noisy = names_and_shapes(noisy=True)
    assert noisy["body.4.weight_sigma"] == noisy["body.4.weight"] == (3, 6)
    assert noisy["body.4.bias_sigma"] == (3,)


def test_dueling_adds_value_to_advantages_less_their_mean() -> None:
    network = build_network(layout_of(BOX), NetworkSettings((), dueling=True), seed=0)
    with torch.no_grad():
        for stream, biases in ((network.value, [10.0]), (network.advantage, [1.0, 2.0, 6.0])):
            stream[0].weight.zero_()
            stream[0].bias.copy_(torch.tensor(biases))
    assert network(torch.rand(2, 4)).tolist() == [[8.0, 9.0, 13.0]] * 2


def test_categorical_values_are_means_of_the_support() -> None:
    network = build_network(layout_of(BOX), NetworkSettings((), atoms=3, v_min=-1.0, v_max=3.0), seed=0)
    assert network.support.tolist() == [-1.0, 1.0, 3.0]
    probabilities = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.25, 0.5, 0.25]])
    outputs = (probabilities + 1e-12).log()[None]
    np.testing.assert_allclose(network.values(outputs).numpy(), [[0, 3, 1]], atol=1e-5)
    observation = torch.rand(2, 4)
    assert network.outputs(observation).shape == (2, 3, 3)
    assert network(observation).shape == (2, 3)


def test_noise_is_factorised_and_given_from_outside() -> None:
    torch.manual_seed(0)
    layer = NoisyLinear(3, 2, std=0.5)
    assert layer.noise_size == 5
    assert torch.equal(layer.weight_sigma, torch.full((2, 3), 0.5 / 3**0.5))
    with torch.no_grad():
        layer.weight_sigma.uniform_()
        layer.bias_sigma.uniform_()
    x = torch.rand(4, 3)
    quiet = x @ layer.weight.T + layer.bias
    torch.testing.assert_close(layer(x), quiet)
    layer.set_noise(torch.tensor([4.0, -9.0, 0.25, 1.0, -16.0]))
    inputs, outputs = torch.tensor([2.0, -3.0, 0.5]), torch.tensor([1.0, -4.0])
    weight = layer.weight + layer.weight_sigma * outputs[:, None] * inputs
    torch.testing.assert_close(layer(x), x @ weight.T + layer.bias + layer.bias_sigma * outputs)
    layer.set_noise(None)
    torch.testing.assert_close(layer(x), quiet)


def test_each_noisy_layer_has_its_own_part_of_the_noise() -> None:
    network = build_network(layout_of(BOX), NetworkSettings((8, 6), **ALL), seed=0)
    layers = (4 + 8) + (8 + 6) * 2 + (6 + 5) + (6 + 15)
    assert network.noise_size == layers
    observation = torch.rand(2, 4)
    quiet = network(observation)
    noise = torch.randn(layers)
    network.set_noise(noise)
    noisy = network(observation)
    assert not torch.equal(noisy, quiet)
    network.set_noise(None)
    assert torch.equal(network(observation), quiet)
    network.set_noise(noise)
    assert torch.equal(network(observation), noisy)
    plain = build_network(layout_of(BOX), NetworkSettings((8,)), seed=0)
    assert plain.noise_size == 0


@pytest.mark.parametrize("encoder", ["nature", "impala", "minatar"])
@pytest.mark.parametrize("shape", [(40, 44, 3), (3, 40, 44)])
def test_images_are_read_in_either_order_of_axes(encoder: str, shape: tuple[int, ...]) -> None:
    space = spaces.Box(0, 255, shape, np.uint8)
    network = build_network(layout_of(space), NetworkSettings((8,), encoder, **ALL), seed=0)
    image = torch.randint(0, 256, (2, *shape), dtype=torch.uint8)
    assert network(image).shape == (2, 3)
    scaled: list[torch.Tensor] = []
    network.images["0"].layers.register_forward_pre_hook(lambda _, inputs: scaled.append(inputs[0]))
    network(image)
    planes = image.permute(0, 3, 1, 2) if shape[2] == 3 else image
    torch.testing.assert_close(scaled[0], planes / 255)


def test_the_nature_network_is_that_of_the_paper() -> None:
    space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    network = build_network(layout_of(space), NetworkSettings((512,), "nature"), seed=0)
    assert network.images["0"].width == 7 * 7 * 64
    assert sum(p.numel() for p in network.parameters()) == 1_684_128 + 3 * 513


def test_small_images_need_the_impala_network() -> None:
    space = spaces.Box(0, 1, (10, 10, 4), np.bool_)
    network = build_network(layout_of(space), NetworkSettings((8,), "impala"), seed=0)
    assert network(torch.rand(2, 10, 10, 4) > 0.5).shape == (2, 3)
    with pytest.raises(SpaceError, match="at least 36"):
        build_network(layout_of(space), NetworkSettings((8,), "nature"), seed=0)


def test_the_minatar_network_is_that_of_the_paper() -> None:
    space = spaces.Box(0, 1, (10, 10, 4), np.bool_)
    network = build_network(layout_of(space), NetworkSettings((128,), "minatar"), seed=0)
    assert network.images["0"].width == 8 * 8 * 16
    assert sum(p.numel() for p in network.parameters()) == 4 * 9 * 16 + 16 + 1024 * 128 + 128 + 128 * 3 + 3
    with pytest.raises(SpaceError, match="at least 3"):
        build_network(layout_of(spaces.Box(0, 1, (2, 10, 2), np.bool_)), NetworkSettings((8,), "minatar"), seed=0)


def test_each_image_of_a_dict_has_a_network_of_its_own() -> None:
    space = spaces.Dict(
        {
            "front": spaces.Box(0, 255, (40, 40, 3), np.uint8),
            "pose": BOX,
            "rear": spaces.Box(0, 255, (1, 36, 36), np.uint8),
            "kind": spaces.Discrete(5),
        }
    )
    layout = layout_of(space)
    network = build_network(layout, NetworkSettings((8,), "nature"), seed=0)
    encoders = list(network.images.values())
    assert len(encoders) == 2
    assert network.body[0].in_features == sum(encoder.width for encoder in encoders) + 4 + 5
    space.seed(0)
    rows = [flatten("observation", space, space.sample(), batch=False) for _ in range(3)]
    columns = {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}
    before = network(columns)
    columns["observation/rear"] = 255 - columns["observation/rear"]
    assert not torch.equal(network(columns), before)
    assert build_network(layout, NetworkSettings((8,)), seed=0).body[0].in_features == 40 * 40 * 3 + 4 + 36 * 36 + 5
