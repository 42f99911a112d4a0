"""Action masks: from the environment's info to the learner's batches."""

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from pipeline.algorithms import DQN, Agent, DQNSettings, NetworkSettings, PolicyAgent, PolicySettings
from pipeline.buffers import UniformBuffer
from pipeline.client.acting import choose_by_policy, choose_by_value
from pipeline.client.builder import ChunkBuilder
from pipeline.client.stepping import Stepping
from pipeline.client.transition import Transition
from pipeline.config import EnvironmentConfig
from pipeline.environment import action_masks, make_vector, read_layout
from pipeline.errors import ConfigError
from pipeline.experience import Identity, Layout, NStepReader, Version
from pipeline.wire import decode_chunk, encode_chunk

gymnasium.register("ShortTaxi-v0", "gymnasium.envs.toy_text.taxi:TaxiEnv", max_episode_steps=7)
TAXI = EnvironmentConfig(id="ShortTaxi-v0", action_masks=True)
NETWORK = NetworkSettings((8,))


class Connector:
    """Collects what the acting loop pushes."""

    def __init__(self, environment: EnvironmentConfig, layout: Layout) -> None:
        self.run_config = SimpleNamespace(environment=environment)
        self.layout = layout
        on_policy = "log_prob" in layout.by_name
        self.agent = PolicyAgent(layout, PolicySettings((8,)), seed=0) if on_policy else Agent(layout, NETWORK, seed=0)
        self.epsilon = 0.9
        self.seed = 0
        self.pushed: list[Transition] = []
        self.episodes = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass

    def push_sample(self, sample: Transition) -> None:
        self.pushed.append(sample)

    def push_episode_info(self, info: dict[str, Any]) -> None:
        self.episodes += 1


def test_masks_go_from_the_environment_into_the_batch():
    """With episodes that are cut off in between; Taxi says what its mask is for any state."""
    layout = read_layout(TAXI)
    connector = Connector(TAXI, layout)
    environment = make_vector(TAXI, 3)
    allowed = environment.envs[0].unwrapped.action_mask  # type: ignore[attr-defined]
    loop = Stepping(connector, environment, 0, choose_by_value(connector))  # type: ignore[arg-type]
    builder = ChunkBuilder(layout, 1000, 1_000_000)
    builder.reserve(3)
    for _ in range(30):
        assert loop.step() == 3
        sample = connector.pushed[-1]
        assert sample.extras is not None
        for at in range(3):
            assert allowed(sample.observation[at])[sample.action[at]] == 1
            assert sample.extras["action_mask"][at].tolist() == (allowed(sample.next_observation[at]) == 1).tolist()
        builder.add(sample, Version(1, 1))
    assert connector.episodes >= 12
    chunk = builder.cut()
    assert chunk is not None
    chunk = decode_chunk(encode_chunk(chunk, layout), layout)
    buffer = UniformBuffer(200, layout, seed=0)
    buffer.insert(NStepReader(3, 0.9).read(Identity("a", "0" * 32, 0), chunk, layout))
    batch = buffer.sample(64)
    for state, mask in zip(batch.next_observation["observation"], batch.columns["action_mask"], strict=True):
        assert mask.tolist() == (allowed(state) == 1).tolist()
    DQN(layout, DQNSettings(network=NETWORK), seed=0).update(batch)


def test_a_policy_s_steps_say_what_was_allowed_where_they_acted():
    """And how likely the action was under that mask."""
    layout = read_layout(TAXI, on_policy=True)
    connector = Connector(TAXI, layout)
    environment = make_vector(TAXI, 2)
    allowed = environment.envs[0].unwrapped.action_mask  # type: ignore[attr-defined]
    loop = Stepping(connector, environment, 0, choose_by_policy(connector))  # type: ignore[arg-type]
    for _ in range(20):
        loop.step()
        sample = connector.pushed[-1]
        assert sample.extras is not None and sample.extras.keys() == {"log_prob", "acted_mask"}
        assert sample.extras["log_prob"].dtype == np.float32 and (sample.extras["log_prob"] <= 0).all()
        for at in range(2):
            mask = allowed(sample.observation[at]) == 1
            assert sample.extras["acted_mask"][at].tolist() == mask.tolist()
            assert mask[sample.action[at]]
    assert connector.episodes >= 4


def test_a_mask_belongs_to_the_run_s_layout():
    assert read_layout(EnvironmentConfig()).extras == ()
    (column,) = read_layout(TAXI).extras
    assert (column.name, column.dtype, column.shape) == ("action_mask", np.dtype(np.bool_), (6,))
    layout = read_layout(TAXI)
    assert Layout.from_json(layout.to_json()) == layout
    with pytest.raises(ConfigError, match="needs Discrete actions"):
        read_layout(EnvironmentConfig(id="Pendulum-v1", action_masks=True))


def test_an_environment_without_masks_is_refused_where_they_are_needed():
    config = EnvironmentConfig(action_masks=True)
    with pytest.raises(ConfigError, match="holds no 'action_mask'"):
        Stepping(Connector(config, read_layout(config)), make_vector(config, 2), 0, lambda *_: None)  # type: ignore


def test_what_info_does_not_tell_is_allowed():
    vector = SimpleNamespace(num_envs=2, single_action_space=spaces.Discrete(3))
    masks = np.array([[0, 1, 0], [0, 0, 0]], np.int8)
    told = {"action_mask": masks, "_action_mask": np.array([True, False])}
    assert action_masks(told, vector).tolist() == [[False, True, False], [True] * 3]  # type: ignore[arg-type]
    assert action_masks({}, vector).all()  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="shape"):
        action_masks({"action_mask": masks[:, :2]}, vector)  # type: ignore[arg-type]
