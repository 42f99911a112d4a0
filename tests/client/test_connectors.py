"""What both connectors do alike, without services."""

import numpy as np
import pytest

from pipeline.client import DQNConnector, PPOConnector
from pipeline.client.builder import ChunkBuilder
from pipeline.client.connector import Connector
from pipeline.errors import (
    ClientError,
    ConnectorClosedError,
    InvalidRecordError,
    InvalidSampleError,
    ServerTimeoutError,
)
from pipeline.experience import Ending, Version
from pipeline.wire import encode_chunk
from tests.client.made import Scene, numbers

EPISODE = {"steps": 1, "total_return": 1.0, "ending": Ending.TRUNCATED}
KINDS = {"dqn": DQNConnector, "ppo": PPOConnector}


class Case:
    """One algorithm's run and its connector."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
        self.kind = KINDS[algorithm]
        self.other = PPOConnector if self.kind is DQNConnector else DQNConnector
        self.scene = Scene(monkeypatch, f"algorithm={algorithm}", "client.chunk_steps=10", "client.chunk_age_s=1000")

    def connect(self) -> Connector:
        return self.kind(self.scene.config)


@pytest.fixture(params=sorted(KINDS))
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(monkeypatch, request.param)


def test_the_agent_holds_what_was_announced(case: Case):
    """Weights, version and model_id belong together from the constructor on; epsilon is what came with them."""
    connector = case.connect()
    with connector as entered:
        assert entered is connector
        assert connector.model_id == 0 and connector.version == Version(1, 0)
        assert all((array == 0).all() for array in connector.agent.weights().values())
    if isinstance(connector, DQNConnector):
        assert connector.epsilon == 0.25
    connector.close()


def test_everything_pushed_arrives_once_in_order(case: Case):
    """Chunks are numbered without gaps, say their version and count, and close() sends the rest."""
    connector = case.connect()
    for number in range(35):
        connector.push_sample(case.scene.sample(number))
    connector.push_episode_info({**EPISODE, "steps": 35})
    connector.close()
    sent = case.scene.chunks(connector)
    assert [number for _, chunk in sent for number in numbers(chunk)] == list(range(35))
    assert [headers.sequence for headers, _ in sent] == list(range(len(sent)))
    for headers, chunk in sent:
        assert (headers.actor, headers.session) == ("a", connector.session)
        assert headers.version == chunk.version == Version(1, 0)
        assert headers.count == chunk.steps <= 10
    (episode,) = case.scene.episodes(connector)
    assert (episode.session, episode.steps, episode.version) == (connector.session, 35, Version(1, 0))
    connector.close()
    with pytest.raises(ConnectorClosedError):
        connector.push_sample(case.scene.sample(35))
    with pytest.raises(ConnectorClosedError):
        connector.push_episode_info(EPISODE)


def test_a_bad_sample_is_refused_and_the_others_arrive(case: Case):
    """Also the one whose push would have cut a full chunk."""
    connector = case.connect()
    for number in range(10):
        connector.push_sample(case.scene.sample(number))
        with pytest.raises(InvalidSampleError):
            connector.push_sample(case.scene.sample(number, reward=float("nan")))
    with pytest.raises(ClientError, match="not complete"):
        connector.push_episode_info({**EPISODE, "colour": 3})
    connector.close()
    assert [number for _, chunk in case.scene.chunks(connector) for number in numbers(chunk)] == list(range(10))


def test_an_encoded_chunk_is_taken_in_its_place(case: Case):
    """Checked as the learner checks it, and sent behind what was pushed before."""
    connector = case.connect()
    builder = ChunkBuilder(connector.layout, 64, 1 << 20)
    for number in (1, 2):
        builder.add(case.scene.sample(number), connector.version)
    chunk = builder.cut()
    assert chunk is not None
    data = encode_chunk(chunk, connector.layout)
    connector.push_sample(case.scene.sample(0))
    with pytest.raises(InvalidRecordError):
        connector.push_sample(data[:-1])
    connector.push_sample(data)
    connector.push_sample(case.scene.sample(3))
    connector.close()
    assert [numbers(chunk) for _, chunk in case.scene.chunks(connector)] == [[0], [1, 2], [3]]


def test_a_run_of_another_algorithm_is_refused(case: Case):
    """Before anything is started, with a sentence that names both."""
    with pytest.raises(ClientError, match=rf"trains '{case.scene.config.algorithm.name}'.*{case.other.__name__}"):
        case.other(case.scene.config)
    assert not hasattr(case.scene, "uplink")


def test_a_learner_that_says_nothing_is_an_error(case: Case):
    """It says what to look for; the uplink is closed."""
    case.scene.script = lambda uplink: None
    with pytest.raises(ServerTimeoutError, match=r"learner.* running"):
        case.connect()
    assert case.scene.uplink.closed


def test_a_wait_for_the_learner_can_be_ended(case: Case):
    """As a signal does it."""
    case.scene.script = lambda uplink: None
    case.scene.config.client.first_weights_timeout_s = 1000.0
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 3

    with pytest.raises(ConnectorClosedError, match="from outside"):
        case.kind(case.scene.config, stop=stop)
    assert case.scene.uplink.closed


def test_clients_started_alike_do_not_act_alike(case: Case):
    """The seed is made of client.seed and the actor's name, and of nothing else."""
    seeds = []
    for actor, seed in (("a", 0), ("a", 0), ("b", 0), ("a", 1)):
        case.scene.config.client.actor, case.scene.config.client.seed = actor, seed
        connector = case.connect()
        seeds.append(connector.seed)
        connector.close()
    assert seeds[0] == seeds[1] and len(set(seeds)) == 3
    assert np.random.default_rng(seeds[0]).random() != np.random.default_rng(seeds[2]).random()
