"""Commands are applied once per id, whatever happens in between, and the best model is the one that scored."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from pipeline.broker import Record
from pipeline.errors import BrokerError, CheckpointError, FencedError, StoreUnreachableError, WeightsNotFoundError
from pipeline.experience import Version
from pipeline.learner.best_model import kept_best
from pipeline.learner.commands import Commands
from pipeline.learner.durable.run_folder import RunFolder
from pipeline.wire import Command, JournalCommand, ModelVersionRecord, Outcome
from tests.waiting import wait_until


class Node:
    """What the handlers see of a learner; its store and its disk can fail."""

    def __init__(self, saves: Path) -> None:
        self.folder = RunFolder(str(saves), "run")
        self.version = Version(2, 7)
        self.calls: list[str] = []
        self.trouble: dict[str, BaseException] = {}
        self.hold = Event()
        self.hold.set()
        self.stopped = False

    def _called(self, what: str) -> None:
        self.calls.append(what)
        if (error := self.trouble.get(what)) is not None:
            raise error

    def checkpoint(self, path: Path, options: Mapping[str, Any] | None = None) -> None:
        self._called("checkpoint")
        path.mkdir(parents=True)
        (path / "note").write_text((options or {})["note"])

    def shutdown(self) -> None:
        self.stopped = True

    def set_parameters(self, changes: Mapping[str, Any]) -> str:
        self._called("set")
        return f"set {dict(changes)}"

    def announced(self, version: Version) -> ModelVersionRecord | None:
        if version.number > 7:
            return None
        return ModelVersionRecord("run", *version, key=f"run/weights/{version}", size=1, sha256="0" * 64)

    def fetch(self, record: ModelVersionRecord) -> bytes:
        self.hold.wait(10)
        self._called("fetch")
        return f"weights of {record.version}".encode()

    def pin(self, version: Version, note: str) -> None:
        self._called("pin")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def commands() -> Iterator[Commands]:
    made = Commands()
    yield made
    made.close()


def quicksave(id: str = "q", note: str = "") -> Command:
    return Command(id, "quicksave", json.dumps({"note": note}))


def best(number: int, score: float, id: str = "") -> Command:
    arguments = {"epoch": 2, "number": number, "score": score}
    return Command(id or f"best-{number}", "save_best", json.dumps(arguments))


def outcome(commands: Commands, id: str) -> Outcome | None:
    return {each.id: each for each in commands.outcomes()}.get(id)


def settle(commands: Commands, id: str) -> Outcome:
    wait_until(lambda: outcome(commands, id) is not None, f"the outcome of {id}", 10.0)
    found = outcome(commands, id)
    assert found is not None
    return found


def test_quicksave_says_its_folder(commands: Commands, node: Node):
    commands.apply(quicksave(note="before lunch"), node)
    [saved] = node.folder.manual_save.iterdir()
    assert saved.name.startswith("000002-000000007-")
    assert (saved / "note").read_text() == "before lunch"
    assert commands.outcomes() == (Outcome("q", True, str(saved.resolve())),)


def test_the_same_id_is_applied_once_and_confirmed_again(commands: Commands, node: Node):
    """Also by the next learner of the run, whose epoch is another."""
    commands.apply(quicksave(), node)
    first = outcome(commands, "q")
    commands.apply(Command("x", "nonsense"), node)
    commands.apply(quicksave(), node)
    assert node.calls == ["checkpoint"]
    assert commands.outcomes()[-1] == first
    node.version = Version(3, 9)
    successor = Commands()
    successor.apply(quicksave(), node)
    assert node.calls == ["checkpoint"]
    assert outcome(successor, "q") == first


def test_ids_and_outcomes_survive_a_checkpoint(commands: Commands, node: Node):
    commands.apply(quicksave(), node)
    restored = Commands()
    restored.load_state(json.loads(json.dumps(commands.state())))
    restored.apply(quicksave(), node)
    assert node.calls == ["checkpoint"]
    assert restored.outcomes() == commands.outcomes()
    assert restored.state() == commands.state()


def test_what_the_journal_tells_of_is_not_done_again(commands: Commands, node: Node):
    """The folder is there: whoever waits across the restart is told, once the learner is live."""
    Commands().apply(quicksave(), node)
    commands.remember(JournalCommand("q", "quicksave"), node)
    commands.remember(JournalCommand("s", "stop"), node)
    assert commands.outcomes() == ()
    commands.resume(node)
    assert node.calls == ["checkpoint"] and not node.stopped
    told = outcome(commands, "q")
    assert told is not None and told.done and "manual_save" in told.detail
    commands.apply(quicksave(), node)
    assert node.calls == ["checkpoint"]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (Command("i", "make-coffee"), "no command 'make-coffee'"),
        (Command("i", "quicksave", "[1]"), "no JSON object"),
        (Command("i", "quicksave", "{"), "not JSON"),
        (Command("i", "quicksave", "[" * 100_000), "not JSON"),
        (Command("i", "save_best", "{}"), "names no version"),
        (best(-1, 1.0, "i"), "names no version"),
        (best(1, float("nan"), "i"), "finite score"),
        (Command("i", "save_best", '{"epoch": 1, "number": true, "score": 1}'), "names no version"),
    ],
)
def test_nonsense_is_refused_with_a_sentence(commands: Commands, node: Node, command: Command, says: str):
    commands.apply(command, node)
    [told] = commands.outcomes()
    assert not told.done and says in told.detail
    assert node.calls == []


@pytest.mark.parametrize("error", [CheckpointError("no room"), OSError(28, "No space left on device")])
def test_a_save_that_fails_does_not_end_the_learner(commands: Commands, node: Node, error: Exception):
    node.trouble["checkpoint"] = error
    commands.apply(quicksave(), node)
    [told] = commands.outcomes()
    assert not told.done and str(error) in told.detail


def test_a_record_that_is_no_command_is_counted(commands: Commands):
    for value in (b"", b"nonsense", quicksave().encode() + b"x"):
        assert commands.read(Record("t.commands", 0, 3, 0, None, value, None)) is None
    assert commands.refused == 3
    assert commands.read(Record("t.commands", 0, 4, 0, None, quicksave().encode(), None)) == quicksave()


def test_stop_is_for_the_learner_that_was_told(commands: Commands, node: Node):
    """One that was started after it goes on: otherwise it would stop at every start."""
    commands.apply(Command("old", "stop"), node, earlier=True)
    assert not node.stopped
    told = outcome(commands, "old")
    assert told is not None and not told.done
    commands.apply(Command("new", "stop"), node)
    assert node.stopped


def test_outcomes_are_told_for_a_minute(commands: Commands, node: Node, monkeypatch: pytest.MonkeyPatch):
    """Not in every heartbeat for ever; and again when the command comes again."""
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    commands.apply(quicksave(), node)
    now += 59
    assert len(commands.outcomes()) == 1
    now += 2
    assert commands.outcomes() == ()
    commands.apply(quicksave(), node)
    assert len(commands.outcomes()) == 1 and node.calls == ["checkpoint"]


def test_memory_is_bounded(commands: Commands, node: Node):
    for number in range(10_050):
        commands.apply(Command(f"{number}", "nothing"), node)
    assert len(commands.outcomes()) == 16
    ids = commands.state()["ids"]
    assert len(ids) == 10_000 and ids[0] == "50"


def test_the_best_model_is_the_one_that_was_named(commands: Commands, node: Node):
    """Not the one in force; pinned before it is fetched, and said only when it is there."""
    node.hold.clear()
    commands.apply(best(3, 10.0), node)
    wait_until(lambda: node.calls == ["pin"], "the pin", 10.0)
    assert commands.outcomes() == () and not node.folder.best_model.exists()
    node.hold.set()
    assert settle(commands, "best-3").done
    assert (node.folder.best_model / "weights.safetensors").read_bytes() == b"weights of 2.3"
    facts = json.loads((node.folder.best_model / "best.json").read_text())
    assert (facts["epoch"], facts["number"], facts["score"], facts["sha256"]) == (2, 3, 10.0, "0" * 64)


def test_the_best_before_is_kept_beside_it(commands: Commands, node: Node):
    for number, score in ((3, 10.0), (5, 12.0)):
        commands.apply(best(number, score), node)
        assert settle(commands, f"best-{number}").done
    previous = node.folder.best_model.with_name("best_model.previous")
    assert (previous / "weights.safetensors").read_bytes() == b"weights of 2.3"
    kept = kept_best(node.folder.best_model)
    assert kept is not None and kept.version == Version(2, 5)
    assert sorted(path.name for path in node.folder.path.iterdir()) == ["best_model", "best_model.previous"]


def test_a_lower_score_does_not_replace_a_higher_one(commands: Commands, node: Node):
    commands.apply(best(5, 12.0), node)
    assert settle(commands, "best-5").done
    commands.apply(best(6, 11.0), node)
    told = settle(commands, "best-6")
    assert not told.done and "2.5" in told.detail
    kept = kept_best(node.folder.best_model)
    assert kept is not None and kept.version == Version(2, 5)


@pytest.mark.parametrize(("what", "error"), [("fetch", StoreUnreachableError("away")), ("pin", BrokerError("away"))])
def test_the_best_model_waits_for_store_and_broker(commands: Commands, node: Node, what: str, error: Exception):
    """The fold does not; of several that wait only the best is saved."""
    node.trouble[what] = error
    commands.apply(best(3, 10.0), node)
    wait_until(lambda: what in node.calls, "the first try", 10.0)
    commands.apply(best(4, 12.0), node)
    commands.apply(best(5, 11.0), node)
    assert not settle(commands, "best-3").done and not settle(commands, "best-5").done
    node.trouble.clear()
    assert settle(commands, "best-4").done
    kept = kept_best(node.folder.best_model)
    assert kept is not None and kept.version == Version(2, 4)


def test_a_version_that_is_not_there_is_refused(commands: Commands, node: Node):
    commands.apply(best(8, 10.0), node)
    told = settle(commands, "best-8")
    assert not told.done and "never announced" in told.detail
    assert node.calls == []
    node.trouble["fetch"] = WeightsNotFoundError("removed")
    commands.apply(best(3, 10.0), node)
    assert not settle(commands, "best-3").done
    assert not node.folder.best_model.exists()


def test_a_learner_that_dies_before_it_was_saved_does_it_after_its_restart(commands: Commands, node: Node):
    """Whether the checkpoint knows of it or only the journal."""
    node.hold.clear()
    commands.apply(best(3, 10.0), node)
    from_checkpoint, from_journal = Commands(), Commands()
    from_checkpoint.load_state(json.loads(json.dumps(commands.state())))
    from_journal.remember(JournalCommand("best-3", "save_best", best(3, 10.0).argument_json), node)
    for number, restarted in enumerate((from_checkpoint, from_journal)):
        successor = Node(node.folder.path / f"{number}")
        restarted.resume(successor)
        assert settle(restarted, "best-3").done
        assert kept_best(successor.folder.best_model) is not None
        restarted.close()
    node.hold.set()


def test_what_was_saved_is_not_saved_again(commands: Commands, node: Node):
    commands.apply(best(3, 10.0), node)
    assert settle(commands, "best-3").done
    calls = list(node.calls)
    successor = Commands()
    successor.remember(JournalCommand("best-3", "save_best", best(3, 10.0).argument_json), node)
    successor.resume(node)
    assert settle(successor, "best-3").done
    assert node.calls == calls
    successor.close()


def test_a_fenced_learner_leaves_it_to_the_other(commands: Commands, node: Node):
    node.trouble["pin"] = FencedError("another learner has taken the run")
    commands.apply(best(3, 10.0), node)
    commands.close()
    assert commands.outcomes() == () and commands.state()["pending"] is not None
    assert not node.folder.best_model.exists()


def test_a_damaged_best_model_is_replaced(commands: Commands, node: Node):
    node.folder.best_model.mkdir(parents=True)
    (node.folder.best_model / "best.json").write_text('{"epoch": 1')
    commands.apply(best(3, 10.0), node)
    assert settle(commands, "best-3").done
