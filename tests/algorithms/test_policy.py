"""The policy and value network: its shape, how it begins, and who shares what."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from pipeline.algorithms import ActorCritic, NetworkSettings, PolicySettings, build_network, build_policy
from pipeline.errors import SpaceError
from pipeline.experience import Layout

BOX = spaces.Box(-1, 1, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (40, 44, 3), np.uint8)


def policy(observation: Any = BOX, action: Any = None, seed: int | None = 0, **settings: Any) -> ActorCritic:
    action = spaces.Discrete(3) if action is None else action
    return build_policy(Layout(observation, action), PolicySettings(**({"hidden": (8, 6)} | settings)), seed)


def test_policy_and_value_have_layers_of_their_own() -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in policy().state_dict().items()}
    expected: dict[str, tuple[int, ...]] = {}
    for trunk, outputs in (("policy", 3), ("value", 1)):
        for layer, shape in (("0", (8, 4)), ("2", (6, 8)), ("4", (outputs, 6))):
            expected |= {f"{trunk}.{layer}.weight": shape, f"{trunk}.{layer}.bias": shape[:1]}
    assert shapes == expected


def test_continuous_actions_add_deviations_that_begin_at_one() -> None:
    network = policy(action=spaces.Box(-2, 2, (2, 1), np.float32))
    assert network.state_dict()["log_std"].tolist() == [0, 0]
    outputs, values = network(torch.rand(5, 4))
    assert (outputs.shape, values.shape) == ((5, 4), (5,))
    assert outputs[:, 2:].tolist() == [[0, 0]] * 5


def test_both_parts_alone_are_those_of_the_whole() -> None:
    network, observation = policy(), torch.rand(5, 4)
    outputs, values = network(observation)
    assert torch.equal(network.outputs({"observation": observation}), outputs)
    assert torch.equal(network.values(observation), values)


def test_weights_begin_orthogonal_and_small_where_actions_are_chosen() -> None:
    network = policy(hidden=(16, 16))
    gains = {
        "policy.0": math.sqrt(2),
        "policy.2": math.sqrt(2),
        "policy.4": 0.01,
        "value.2": math.sqrt(2),
        "value.4": 1,
    }
    for name, gain in gains.items():
        weight = network.state_dict()[f"{name}.weight"]
        small = weight if weight.shape[0] <= weight.shape[1] else weight.T
        torch.testing.assert_close(small @ small.T, gain**2 * torch.eye(len(small)), atol=1e-5, rtol=1e-4)
        assert not network.state_dict()[f"{name}.bias"].any()
    # So every action is about as likely at first.
    probabilities = network.outputs(torch.randn(100, 4)).softmax(1)
    assert float((probabilities.detach() - 1 / 3).abs().max()) < 0.02


def test_an_image_is_read_once_for_both() -> None:
    network = policy(IMAGE, image="nature")
    image = torch.randint(0, 256, (2, 40, 44, 3), dtype=torch.uint8)
    calls: list[Any] = []
    network.images["0"].register_forward_hook(lambda *_: calls.append(None))
    outputs, values = network(image)
    assert (outputs.shape, values.shape, len(calls)) == ((2, 3), (2,), 1)
    gradients = []
    for part in (outputs.sum(), values.sum()):
        network.zero_grad()
        part.backward(retain_graph=True)
        gradients.append(network.images["0"].layers[0].weight.grad.abs().sum().item())
    assert min(gradients) > 0


@pytest.mark.parametrize(("name", "kind"), [("tanh", nn.Tanh), ("relu", nn.ReLU)])
def test_activations_follow_hidden_layers_of_every_network(name: str, kind: type[nn.Module]) -> None:
    layout = Layout(BOX, spaces.Discrete(3))
    trunks = [policy(activation=name).policy, policy(activation=name).value]
    trunks.append(build_network(layout, NetworkSettings((8, 6), activation=name), seed=0).body)
    for trunk in trunks:
        assert [type(module) for module in trunk] == [nn.Linear, kind, nn.Linear, kind, nn.Linear]


def test_the_seed_decides_and_the_global_generator_stays() -> None:
    before = torch.get_rng_state()
    one, same, other = (policy(seed=seed).state_dict()["policy.0.weight"] for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_stacked_images_are_one_image_with_more_channels() -> None:
    stacked = spaces.Box(0, 255, (2, 40, 44, 3), np.uint8)
    network = policy(stacked, image="nature")
    image = torch.randint(0, 256, (5, 2, 40, 44, 3), dtype=torch.uint8)
    seen: list[torch.Tensor] = []
    network.images["0"].layers.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network(image)
    expected = torch.cat([image[:, 0], image[:, 1]], dim=3).permute(0, 3, 1, 2) / 255
    torch.testing.assert_close(seen[0], expected)


def test_spaces_that_no_network_reads_are_refused() -> None:
    with pytest.raises(SpaceError, match="a policy needs"):
        policy(action=spaces.MultiBinary(2))
    with pytest.raises(SpaceError):
        policy(spaces.Text(5))
