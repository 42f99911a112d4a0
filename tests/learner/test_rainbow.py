"""What the training node does with Rainbow's settings."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.algorithms import Agent
from pipeline.algorithms.spec import network_spec
from pipeline.buffers import PrioritizedBuffer, UniformBuffer
from pipeline.errors import CheckpointError, ConfigError
from pipeline.learner import DQNTrainingNode
from tests.learner.made import feed, node_in, record_of


def fed(node: DQNTrainingNode, count: int = 12) -> DQNTrainingNode:
    node.publish()
    feed(node, [record_of(node, sequence, sequence) for sequence in range(count)])
    return node


def test_each_part_can_be_switched_off(tmp_path: Path):
    """Rainbow without its parts has the tensors of DQN."""
    off = ("dueling", "noisy", "categorical.enabled", "prioritised.enabled")
    bare = node_in(tmp_path, "algorithm=rainbow", *(f"algorithm.{name}=false" for name in off))
    plain, whole = node_in(tmp_path), node_in(tmp_path, "algorithm=rainbow")
    assert isinstance(bare.buffer, UniformBuffer)
    assert isinstance(whole.buffer, PrioritizedBuffer)
    shapes = [{name: array.shape for name, array in node.weights().items()} for node in (bare, plain, whole)]
    assert shapes[0] == shapes[1] != shapes[2]


def test_an_actor_builds_the_learner_s_network(tmp_path: Path):
    node = node_in(tmp_path, "algorithm=rainbow")
    agent = Agent(node.layout, network_spec(node.config.algorithm), seed=5)
    agent.load(node.weights())
    values = agent.values({"observation": np.zeros((1, 4), np.float32)})
    assert np.isfinite(values).all()


def test_updates_give_their_transitions_new_priorities(tmp_path: Path):
    node = fed(node_in(tmp_path, "algorithm=rainbow"))
    priorities = node.buffer.state().arrays["priorities"]
    assert node.updates > 10
    assert len(np.unique(priorities[priorities > 0])) > 10


def test_beta_rises_with_the_updates(tmp_path: Path):
    node = node_in(tmp_path, "algorithm=rainbow", "algorithm.prioritised.beta_updates=20")
    assert isinstance(node.buffer, PrioritizedBuffer)
    betas: dict[int, float] = {}
    sample = node.buffer.sample

    def noted(size: int):
        betas[node.updates] = node.buffer.beta
        return sample(size)

    node.buffer.sample = noted  # type: ignore[method-assign]
    fed(node, 16)
    assert betas[0] == pytest.approx(0.4)
    assert betas[10] == pytest.approx(0.7)
    assert betas[20] == betas[max(betas)] == 1.0


def test_dqn_s_checkpoint_is_none_of_rainbow_s(tmp_path: Path):
    fed(node_in(tmp_path / "dqn")).checkpoint(tmp_path / "checkpoint", {})
    with pytest.raises(CheckpointError, match="another network"):
        node_in(tmp_path / "rainbow", "algorithm=rainbow").load_checkpoint(tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("algorithm.categorical.atoms=1", "2 or more"),
        ("algorithm.categorical.v_max=-100", "v_min"),
        ("algorithm.prioritised.alpha=-1", "alpha"),
        ("algorithm.prioritised.epsilon=0", "epsilon"),
        ("algorithm.network=resnet", "nature"),
        ("algorithm.noisy_std=-1", "noisy_std"),
    ],
)
def test_settings_out_of_range_are_refused(tmp_path: Path, override: str, says: str):
    with pytest.raises(ConfigError, match=says):
        node_in(tmp_path, "algorithm=rainbow", override)
