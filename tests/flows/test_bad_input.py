"""Records that are not ours never stop the learner: a dead letter each, a count, and their share of its time only."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.broker import LogReader, Producer, Topics, ensure_topics
from pipeline.connect import connect
from pipeline.experience import new_session
from pipeline.learner.intake.dead_letters import BURST
from pipeline.services import Services
from pipeline.wire import DeadLetter
from tests.flows.processes import Watcher, config_of, overrides, role
from tests.fuzz.nonsense import STEPS, headers_of, nonsense, sound


def letters_of(watcher: Watcher) -> list[DeadLetter]:
    with LogReader(watcher.settings, watcher.topics.dead_letters) as reader:
        return [DeadLetter.decode(record.value) for record in reader.read_to_end(30.0)]


@pytest.mark.timeout(240)
def test_each_class_of_nonsense_is_one_dead_letter(local_services: Services, tmp_path: Path):
    """With its reason, in order; and a good record after all of them is accepted."""
    run, session = "bad-input", new_session()
    watcher = Watcher(local_services, run)
    cases = list(nonsense(run, session))
    with role("learner", tmp_path / "learner.log", *overrides(local_services, run, tmp_path / "saves")) as learner:
        watcher.wait(lambda: watcher.version >= 0, "the learner is there")
        with Producer(watcher.settings) as producer:
            for case in cases:
                producer.send_and_wait(watcher.topics.samples, case.value, key="mallory", headers=case.headers)
            good = headers_of(0, session, run)
            producer.send_and_wait(watcher.topics.samples, sound(), key="mallory", headers=good)
        watcher.wait(lambda: watcher.accepted == STEPS, "the good one is accepted after all the bad ones")
        assert learner.poll() is None
    letters = letters_of(watcher)
    watcher.close()
    assert [letter.reason for letter in letters] == [case.reason.value for case in cases]
    assert len({(letter.partition, letter.offset) for letter in letters}) == len(letters) >= 50
    assert [letter.head for letter in letters] == [case.value[:1024] for case in cases]


@pytest.mark.timeout(240)
def test_a_flood_takes_its_share_only(local_services: Services, tmp_path: Path):
    """What waits in other partitions is not behind it, and a few letters tell of it."""
    run, session, flood = "flood", new_session(), 60_000
    config = config_of(local_services, run, tmp_path / "saves")
    settings = connect(config).broker
    rejected_then: list[int] = []
    topics = Topics(config.namespace, run)
    ensure_topics(settings, topics.specs(**config.kafka.topic_settings()), replication=1)
    with Producer(settings) as producer:
        for number in range(flood):
            headers: Any = headers_of(number, session, run, count=b"1")
            producer.send(topics.samples, b"rubbish", headers=headers, partition=0)
            producer.poll(0)
        assert producer.flush(60.0) == 0
        honest: Any = headers_of(0, new_session(), run)
        producer.send_and_wait(topics.samples, sound(), headers=honest, partition=1)
    watcher = Watcher(local_services, run)
    with role("learner", tmp_path / "learner.log", *overrides(local_services, run, tmp_path / "saves")):

        def accepted() -> bool:
            if watcher.learner is not None and watcher.accepted == STEPS:
                rejected_then.append(watcher.learner.rejected)
            return bool(rejected_then)

        watcher.wait(accepted, "the honest record is accepted")
        watcher.wait(lambda: watcher.learner and watcher.learner.rejected >= flood, "the flood is worked off")
    letters = letters_of(watcher)
    watcher.close()
    assert rejected_then[0] < flood
    assert 0 < len(letters) < BURST + 2_000
    assert (tmp_path / "learner.log").read_text().count("dead_letters_per_s") <= 2
