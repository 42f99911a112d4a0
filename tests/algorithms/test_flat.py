"""One vector and the network's own parameters are the same memory."""

import torch
from torch import nn

from pipeline.algorithms.flat import FlatParameters


def test_values_and_gradients_are_shared() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    inputs = torch.rand(5, 3)
    expected = network(inputs)
    flat = FlatParameters(network)
    assert flat.size == 3 * 4 + 4 + 4 * 2 + 2
    torch.testing.assert_close(network(inputs), expected, rtol=0, atol=0)

    gradient = flat.zero_gradient()
    for _ in range(2):
        flat.zero_gradient()
        network(inputs).square().sum().backward()
    own = [parameter.grad for parameter in network.parameters()]
    assert torch.equal(gradient, torch.cat([part.reshape(-1) for part in own if part is not None]))
    assert flat.parameter.grad is gradient

    with torch.no_grad():
        flat.parameter.zero_()
    assert not network(inputs).any()


def test_loading_a_state_dict_goes_into_the_vector() -> None:
    torch.manual_seed(0)
    source, network = nn.Linear(3, 2), nn.Linear(3, 2)
    flat = FlatParameters(network)
    network.load_state_dict(source.state_dict())
    assert torch.equal(flat.parameter[:6].detach(), source.weight.detach().reshape(-1))


def test_moves_part_of_the_way_or_copies_to_the_bit() -> None:
    torch.manual_seed(0)
    near, far = FlatParameters(nn.Linear(3, 2)), FlatParameters(nn.Linear(3, 2))
    before = near.parameter.detach().clone()
    near.move_to(far, 0.25)
    torch.testing.assert_close(near.parameter.detach(), 0.75 * before + 0.25 * far.parameter)
    near.move_to(far, 1.0)
    assert torch.equal(near.parameter, far.parameter)
