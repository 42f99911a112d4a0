"""Where the log has forgotten or was replaced, a learner says so; it goes on where it honestly can."""

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from pipeline.services import Services
from tests.recovery.recorded import SETTINGS, record
from tests.recovery.runs import Run
from tests.waiting import wait_until

CHUNKS = 150


@pytest.mark.timeout(300)
def test_retention_and_a_topic_made_again(local_services: Services, tmp_path: Path):
    run = Run(local_services, "forgotten", tmp_path, *SETTINGS, namespace="forgotten")
    record(run.config, CHUNKS, tmp_path / "actors.ledger")
    run.dies("announce.after:25")
    before = run.lineage()
    admin = AdminClient({"bootstrap.servers": local_services.bootstrap_servers})

    # Half of what the buffer was made of is gone.
    place = TopicPartition(run.topics.samples, 0, before.positions(before.number)[0] - 20)
    admin.delete_records([place])[place].result(30.0)
    refused = run.ends(60.0, "learner.require_exact=true", status=1)
    assert "no longer on the samples topic" in refused and "learner.require_exact=false" in refused
    run.dies("announce.after:5")
    assert "goes on from its published weights" in run.log.read_text()
    after = run.lineage()
    assert [version.number for version in after.versions] == list(range(len(after)))
    assert len(after) > len(before)
    assert sum(bool(after.journal(version.number).broken) for version in after.versions) == 1

    # The newer versions have a checkpoint of their own.
    run.dies("announce.after:3")
    assert "cannot be reached" not in run.log.read_text()

    admin.delete_topics([run.topics.samples])[run.topics.samples].result(30.0)
    wait_until(lambda: run.topics.samples not in admin.list_topics(timeout=10.0).topics, "the topic is gone")
    assert "was deleted and made again" in run.ends(60.0, status=1)
