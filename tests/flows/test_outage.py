"""The environment loop goes on when the broker or the uplink goes away, and nothing queued is lost."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from pipeline.broker import LogReader
from pipeline.client import DQNConnector, Transition
from pipeline.client.outbox import Item
from pipeline.config import PipelineConfig
from pipeline.services import Services
from pipeline.wire import RecordHeaders, decode_chunk
from tests.flows.processes import Watcher, config_of, overrides, role
from tests.waiting import wait_until

# `make soak` takes the full half minute.
OUTAGE_S = float(os.environ.get("OUTAGE_S", "4"))
PAUSE_S = 0.0002


@pytest.fixture
def run(own_local_services: Services, tmp_path: Path) -> Iterator[PipelineConfig]:
    """A run with a learner, on services that the test may stop."""
    common = overrides(own_local_services, "outage", tmp_path / "saves")
    with role("learner", tmp_path / "learner.log", *common):
        yield config_of(
            own_local_services,
            "outage",
            tmp_path / "saves",
            "client.actor=a",
            "client.max_lead=0",
            "client.chunk_age_s=0.2",
            "kafka.timeout_s=60",
        )


def count_up(connector: DQNConnector, seconds: float, first: int) -> tuple[int, float]:
    """Push numbered transitions at full rate; the next number, and the slowest step in seconds."""
    slowest = 0.0
    number = first
    deadline = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < deadline:
        with connector:
            assert connector.model_id >= 0
        observation = np.array([number, 0, 0, 0], np.float32)
        following = np.array([number + 1, 0, 0, 0], np.float32)
        connector.push_sample(Transition(observation, number % 2, 1.0, following, False, False))
        number += 1
        slowest = max(slowest, time.perf_counter() - begun)
        time.sleep(PAUSE_S)
    return number, slowest


def arrived(config: PipelineConfig, services: Services) -> Counter[int]:
    """How often each number is on the log, each identity counted once, in order per session."""
    watcher = Watcher(services, config.run)
    from pipeline.environment import read_layout

    layout = read_layout(config.environment)
    reader = LogReader(watcher.settings, watcher.topics.samples)
    seen: set[tuple[str, int]] = set()
    numbers: Counter[int] = Counter()
    for record in reader.read_to_end(60.0):
        headers = RecordHeaders.from_kafka(record.headers)
        if (headers.session, headers.sequence) in seen:
            continue
        seen.add((headers.session, headers.sequence))
        chunk = decode_chunk(record.value or b"", layout)
        row = 0
        for length in chunk.segments.length:
            numbers.update(chunk.columns["observation"][row : row + length, 0].astype(int).tolist())
            row += length + 1
    reader.close()
    watcher.close()
    return numbers


@pytest.mark.timeout(240)
def test_broker_away_at_full_rate(run: PipelineConfig, own_local_services: Services, caplog):
    """The loop's slowest step stays short, one warning is said, and afterwards each sample is there exactly once."""
    assert gymnasium.spec(run.environment.id) is not None
    connector = DQNConnector(run)
    number, _ = count_up(connector, 1.0, 0)
    own_local_services.kafka.stop()
    number, slowest = count_up(connector, OUTAGE_S, number)
    wait_until(lambda: not connector.connected, "the connector notices", 30.0)
    own_local_services.kafka.start()
    wait_until(lambda: connector.connected, "the connector is back", 60.0)
    number, _ = count_up(connector, 1.0, number)
    assert connector.flush(60.0)
    assert connector.dropped == 0
    connector.close()
    assert slowest < 0.05, f"slowest step {slowest * 1000:.1f} ms"
    warnings = [r for r in caplog.records if "Acting goes on" in r.getMessage()]
    assert len(warnings) == 1, [r.getMessage() for r in caplog.records]
    assert arrived(run, own_local_services) == Counter(range(number))


@pytest.mark.timeout(240)
def test_uplink_killed(run: PipelineConfig, own_local_services: Services):
    """Another one is started; what was not acknowledged is sent again, with the same identity."""
    connector = DQNConnector(run)
    number = 0
    for _ in range(3):
        number, slowest = count_up(connector, 0.7, number)
        restarts = connector.uplink_restarts
        connector._uplink.process.kill()
        number, slowest = count_up(connector, 0.7, number)
        assert slowest < 0.05
        wait_until(lambda before=restarts: connector.uplink_restarts > before, "the uplink is replaced")
    assert connector.flush(60.0)
    connector.close()
    assert arrived(run, own_local_services) == Counter(range(number))


@pytest.mark.timeout(240)
def test_store_away(run: PipelineConfig, own_local_services: Services, tmp_path: Path):
    """Versions stop while the store is away, training and acting do not, and versions resume."""
    common = overrides(own_local_services, run.run, tmp_path / "saves")
    watcher = Watcher(own_local_services, run.run)
    with role("client", tmp_path / "c.log", *common, "client.actor=c", "kafka.timeout_s=60") as client:
        watcher.wait(lambda: "c" in watcher.actors and watcher.actors["c"].version_number >= 1, "version 1 acts")
        own_local_services.minio.kill()
        accepted, held = watcher.accepted, watcher.actors["c"].version_number
        watcher.wait(lambda: watcher.accepted > accepted, "samples are taken while the store is away")
        own_local_services.minio.start()
        watcher.wait(lambda: watcher.actors["c"].version_number > held + 2, "newer versions act")
        assert client.poll() is None
    watcher.close()


@pytest.mark.timeout(240)
def test_a_record_that_the_broker_will_never_take(run: PipelineConfig, own_local_services: Services):
    """It is dropped and counted, and what follows it is sent."""
    connector = DQNConnector(run)
    connector._outbox.put(Item("samples", bytes(4 << 20), [], 5))
    number, _ = count_up(connector, 0.3, 0)
    assert connector.flush(60.0)
    assert connector.dropped == 5
    assert connector.uplink_restarts == 0
    connector.close()
    assert arrived(run, own_local_services) == Counter(range(number))


@pytest.mark.timeout(240)
def test_an_encoded_chunk_is_taken_as_it_is(run: PipelineConfig, own_local_services: Services):
    """push_sample(bytes): checked as the learner checks it, then sent under the session's next sequence."""
    from pipeline.client.builder import ChunkBuilder
    from pipeline.errors import InvalidRecordError
    from pipeline.wire import encode_chunk

    connector = DQNConnector(run)
    builder = ChunkBuilder(connector.layout, 64, 1 << 20)
    for number in range(10):
        here, there = np.array([number, 0, 0, 0], np.float32), np.array([number + 1, 0, 0, 0], np.float32)
        builder.add(Transition(here, 0, 1.0, there, False, False), connector.version)
    chunk = builder.cut()
    assert chunk is not None
    data = encode_chunk(chunk, connector.layout)
    with pytest.raises(InvalidRecordError):
        connector.push_sample(data[:-1])
    connector.push_sample(data)
    assert connector.flush(30.0)
    connector.close()
    assert arrived(run, own_local_services) == Counter(range(10))
