"""Pacing, exploration and the size of chunks, against what a learner may say; without services."""

import pytest

from pipeline.client import DQNConnector
from tests.client.made import Scene


def scene_of(monkeypatch: pytest.MonkeyPatch, *words: str) -> Scene:
    return Scene(monkeypatch, "client.chunk_steps=16", "client.chunk_age_s=1000", *words)


def push(scene: Scene, connector: DQNConnector, first: int, count: int) -> None:
    for number in range(first, first + count):
        connector.push_sample(scene.sample(number))


def test_exploration_comes_with_the_weights(monkeypatch: pytest.MonkeyPatch):
    """So a schedule that the learner changes is followed from the next version on."""
    scene = scene_of(monkeypatch)
    connector = DQNConnector(scene.config)
    assert connector.epsilon == 0.25
    scene.uplink.deliver(1, exploration=0.75)
    assert connector.epsilon == 0.25
    with connector:
        assert (connector.model_id, connector.epsilon) == (1, 0.75)
    connector.close()


def test_pace_waits_for_the_learner_only(monkeypatch: pytest.MonkeyPatch):
    """By what it has judged; not after the run's end."""
    scene = scene_of(monkeypatch, "client.max_lead=20")
    connector = DQNConnector(scene.config)
    push(scene, connector, 0, 20)
    assert connector.pace(timeout=0.0)
    push(scene, connector, 20, 1)
    assert connector.lead == 21
    assert not connector.pace(timeout=0.05)
    scene.uplink.judge(sequence=0, transitions=16)
    assert connector.lead == 5
    assert connector.pace(timeout=0.0)
    push(scene, connector, 21, 32)
    scene.uplink.end_run()
    assert connector.pace(timeout=0.0)
    connector.close()


@pytest.mark.parametrize("adapt", [True, False])
def test_chunks_get_smaller_while_some_are_refused_as_stale(monkeypatch: pytest.MonkeyPatch, adapt: bool):
    """And the client keeps nearer to the learner."""
    scene = scene_of(monkeypatch, f"client.adapt_chunks={str(adapt).lower()}", "client.max_lead=32")
    connector = DQNConnector(scene.config)
    push(scene, connector, 0, 16)
    scene.uplink.judge(sequence=0, transitions=16, stale=16)
    push(scene, connector, 16, 48)
    assert [chunk.steps for _, chunk in scene.chunks(connector)] == ([16, 16, 8, 8, 8, 8] if adapt else [16] * 4)
    scene.uplink.judge(sequence=3, transitions=40, stale=16)
    lead = connector.lead
    assert connector.pace(timeout=0.01) == (lead <= (16 if adapt else 32))
    connector.close()


def test_chunks_are_cut_when_they_are_old(monkeypatch: pytest.MonkeyPatch):
    scene = scene_of(monkeypatch)
    scene.config.client.chunk_age_s = 0.0
    connector = DQNConnector(scene.config)
    push(scene, connector, 0, 3)
    assert scene.chunks(connector) == []
    scene.uplink.tick()
    assert [chunk.steps for _, chunk in scene.chunks(connector)] == [3]
    connector.close()
