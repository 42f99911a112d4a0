import time
import uuid
from dataclasses import replace

import pytest

from pipeline.broker import (
    BrokerSettings,
    Producer,
    Topics,
    ensure_topics,
    find_run,
    list_runs,
    publish_manifest,
)
from pipeline.errors import RunNotFoundError
from pipeline.wire import RunManifest


def manifest(topics: Topics, **changes: object) -> RunManifest:
    made = RunManifest(
        run=topics.run,
        namespace=topics.namespace,
        created_ms=1000,
        epoch=1,
        config_json="{}",
        layout_json="{}",
        schemas=("0123456789abcdef",),
        store_endpoint="127.0.0.1:9000",
        store_bucket="bucket",
        store_secure=False,
        algorithm="dqn",
        environment="CartPole-v1",
    )
    return replace(made, **changes)


@pytest.fixture
def space(settings: BrokerSettings) -> list[Topics]:
    """Three runs in a namespace: an old one and a newest running, one stopped after it."""
    name = f"t{uuid.uuid4().hex[:8]}"
    runs = [Topics(name, run) for run in ("old", "new", "stopped")]
    ensure_topics(settings, runs[0].specs(), replication=1)
    with Producer(settings) as producer:
        for created, topics in enumerate(runs):
            publish_manifest(producer, topics, manifest(topics, created_ms=created))
        publish_manifest(producer, runs[2], manifest(runs[2], created_ms=2, state="stopped"))
        publish_manifest(producer, runs[1], manifest(runs[1], created_ms=1, epoch=2))
        producer.send_and_wait(runs[0].runs, b"not a manifest", key="old")
    return runs


def test_the_newest_running_run_is_found(settings: BrokerSettings, space: list[Topics]):
    found = find_run(settings, space[0].namespace, None)
    assert found == manifest(space[1], created_ms=1, epoch=2)


def test_a_run_is_found_by_name_whatever_its_state(settings: BrokerSettings, space: list[Topics]):
    assert find_run(settings, space[0].namespace, "stopped").state == "stopped"
    assert [m.run for m in list_runs(settings, space[0].namespace)] == ["old", "new", "stopped"]


def test_what_runs_exist_is_said(settings: BrokerSettings, space: list[Topics]):
    started = time.monotonic()
    with pytest.raises(RunNotFoundError) as caught:
        find_run(settings, space[0].namespace, "mistyped", timeout=3.0)
    for part in ("mistyped", "old (running)", "stopped (stopped)", settings.address, "learner"):
        assert part in str(caught.value)
    assert time.monotonic() - started < 20.0


def test_no_runs_topic_means_no_runs(settings: BrokerSettings):
    assert list_runs(settings, "nowhere", timeout=3.0) == []
    with pytest.raises(RunNotFoundError, match="none"):
        find_run(settings, "nowhere", None, timeout=3.0)
