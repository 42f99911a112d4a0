"""Commands reach the log, and their outcome comes back through the learner's heartbeats."""

import json
import threading
from collections.abc import Iterator

import pytest

from pipeline.broker import BrokerSettings, LogReader, Producer, Topics
from pipeline.broker.commands import await_outcome, order, send_command
from pipeline.errors import BrokerUnreachableError, CommandError
from pipeline.wire import Command, Heartbeat, Outcome


class Learner(threading.Thread):
    """Reads commands and tells of them in its heartbeats; applies all but those of kind ``sleep`` and ``refuse``."""

    def __init__(self, settings: BrokerSettings, topics: Topics) -> None:
        super().__init__()
        self._topics = topics
        self._reader = LogReader(settings, topics.commands)
        self._producer = Producer(settings)
        self._ending = threading.Event()
        self.commands: list[Command] = []
        self._outcomes: list[Outcome] = []

    def run(self) -> None:
        sequence = 0
        while not self._ending.is_set():
            for record in self._reader.poll(100, 0.05):
                command = Command.decode(record.value)
                self.commands.append(command)
                if command.kind != "sleep":
                    self._outcomes.append(Outcome(command.id, command.kind != "refuse", "as the test says"))
            self._producer.send(self._topics.progress, b"noise")
            for role in ("actor", "learner"):
                outcomes = tuple(self._outcomes) if role == "learner" else ()
                beat = Heartbeat("run", role, role, "0" * 32, sequence, 0, outcomes=outcomes)
                self._producer.send(self._topics.progress, beat.encode())
            self._producer.poll(0)
            sequence += 1
        self._reader.close()
        self._producer.close()

    def end(self) -> None:
        self._ending.set()
        self.join()


@pytest.fixture
def learner(settings: BrokerSettings, topics: Topics) -> Iterator[Learner]:
    thread = Learner(settings, topics)
    thread.start()
    yield thread
    thread.end()


def test_an_order_comes_back_confirmed(settings: BrokerSettings, topics: Topics, learner: Learner):
    outcome = order(settings, topics, "quicksave", {"note": "now"}, "a test", timeout=20.0)
    assert outcome.done and outcome.detail == "as the test says"
    [command] = learner.commands
    assert (command.id, command.kind, command.issuer) == (outcome.id, "quicksave", "a test")
    assert json.loads(command.argument_json) == {"note": "now"}
    assert len(command.id) == 32


def test_a_refused_order_is_an_error(settings: BrokerSettings, topics: Topics, learner: Learner):
    with pytest.raises(CommandError, match="did not carry out command an-id: as the test says"):
        order(settings, topics, "refuse", id="an-id", timeout=20.0)


def test_a_silent_learner_is_told_from_none(settings: BrokerSettings, topics: Topics, learner: Learner):
    with pytest.raises(CommandError, match=r"lives \(version 0\.0\), but did not confirm command id-1"):
        order(settings, topics, "sleep", id="id-1", timeout=6.0)
    learner.end()
    with pytest.raises(CommandError, match="no learner of run run was heard of"):
        order(settings, topics, "sleep", id="id-2", timeout=1.0)
    with LogReader(settings, topics.commands) as reader:
        assert [Command.decode(record.value).id for record in reader.read_to_end()] == ["id-1", "id-2"]


def test_an_outcome_can_be_waited_for_later(settings: BrokerSettings, topics: Topics, learner: Learner):
    """Every heartbeat tells of the last ones."""
    with Producer(settings) as producer:
        command = send_command(settings, topics, "save_best", {"score": 1.0}, "a test", "again", producer=producer)
        send_command(settings, topics, "save_best", {"score": 1.0}, "a test", "again", producer=producer)
    assert await_outcome(settings, topics, command.id, timeout=20.0).done


def test_nobody_at_the_address(dead_address: str):
    with pytest.raises(BrokerUnreachableError, match=dead_address):
        order(BrokerSettings(dead_address), Topics("t", "run"), "quicksave", timeout=1.0)
