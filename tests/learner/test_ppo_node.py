"""The training node of PPO: settings that it refuses, what a train step does, and its live loop without services."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.errors import CheckpointError, ConfigError
from pipeline.learner import DQNTrainingNode, PPOTrainingNode, new_node
from pipeline.learner.intake.arrival import Arrival
from tests.learner import made
from tests.learner.made import published
from tests.learner.made_ppo import Recorder, Room, chunk_of, feed, node_in, record_of, session_of

DECAYS = ["algorithm.lr_decay_transitions=960", "algorithm.ppo.clip_decay_transitions=480"]


def iterate(recorder: Recorder, count: int = 1) -> None:
    """So many iterations of clients a, b and c, 96 transitions each."""
    for _ in range(count):
        for actor in "abcabc":
            recorder.chunk(actor)


def test_the_algorithm_s_name_chooses_the_node(tmp_path: Path):
    assert isinstance(new_node(node_in(tmp_path).config), PPOTrainingNode)
    assert type(new_node(made.node_in(tmp_path).config)) is DQNTrainingNode


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("learner.version_window=3", "version_window=1"),
        ("algorithm.sync.min_clients=4", "at most sync.clients=3"),
        ("algorithm.sync.client_timeout_s=0", "client_timeout_s"),
        ("algorithm.sync.collect_fraction=0", "collect_fraction"),
        ("algorithm.sync.discovery_s=-1", "discovery_s"),
        ("algorithm.reward_clip=-1", "reward_clip"),
        ("algorithm.ppo.gae_lambda=2", "gae_lambda"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, override: str, says: str):
    with pytest.raises(ConfigError, match=says):
        node_in(tmp_path, override)


def test_learning_rate_and_clip_fall_with_accepted_transitions(tmp_path: Path):
    node = node_in(tmp_path, *DECAYS)
    recorder = Recorder(node)
    recorder.begin(*"abc")
    iterate(recorder)
    assert node.figures["train/learning_rate"] == pytest.approx(0.01 * 0.9)
    assert node.figures["train/clip"] == pytest.approx(0.2 * 0.8)
    assert (node.figures["train/transitions"], node.figures["train/clients"]) == (96, 3)
    iterate(recorder, 4)
    assert node.figures["train/clip"] == 0.0
    assert node.figures["train/learning_rate"] == pytest.approx(0.01 * 0.5)


def test_statistics_of_an_iteration_are_part_of_the_version_after_it(tmp_path: Path):
    node = node_in(tmp_path, "algorithm.normalise_observations=true")
    recorder = Recorder(node)
    recorder.begin(*"abc")
    [mean] = [name for name in node.weights() if name.endswith("mean")]
    assert not node.weights()[mean].any()
    iterate(recorder)
    records = [item for item in recorder.tape.items if not hasattr(item, "kind")]
    chunks = [node.examiner().examine(record).chunk for record in records]  # type: ignore[arg-type]
    rows = np.concatenate([chunk.columns["observation"] for chunk in chunks if chunk is not None])
    np.testing.assert_allclose(node.weights()[mean], rows.mean(0), atol=1e-6)


def test_rewards_are_transformed_before_they_are_learned_from(tmp_path: Path):
    """A scale that is set takes effect with the next iteration; the sums stay those of the log."""
    plain, scaled = (Recorder(node_in(tmp_path / name)) for name in ("plain", "scaled"))
    for recorder in (plain, scaled):
        recorder.begin(*"abc")
        iterate(recorder)
    scaled.node.set_parameters({"algorithm.reward_scale": 0.25})
    for recorder in (plain, scaled):
        iterate(recorder)
    shas = [[version.sha256 for version in published(recorder.node)] for recorder in (plain, scaled)]
    assert shas[0][:3] == shas[1][:3] and shas[0][3] != shas[1][3]
    assert plain.node.accounting == scaled.node.accounting


def test_a_long_iteration_lets_the_learner_breathe(tmp_path: Path):
    node = node_in(tmp_path)
    breaths: list[int] = []
    node.breathe = lambda: breaths.append(node.updates)
    recorder = Recorder(node)
    recorder.begin(*"abc")
    iterate(recorder)
    # Two epochs of six minibatches.
    assert len(breaths) >= 12 and set(breaths) == {0}


def test_another_algorithm_s_checkpoint_is_refused(tmp_path: Path):
    dqn = made.node_in(tmp_path / "dqn")
    dqn.publish()
    dqn.checkpoint(tmp_path / "checkpoint")
    with pytest.raises(CheckpointError):
        node_in(tmp_path / "ppo").load_checkpoint(tmp_path / "checkpoint")


class Live:
    """The live loop, with a log in memory; time does not pass unless the test lets it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> None:
        self.node = node = node_in(folder, *overrides)
        self.waiting: list[Arrival] = []
        self.states: list[str] = []
        node.positions = {0: 0}
        node.journal.begin(node.positions)
        node.publish()
        node.is_announced = lambda number: True  # type: ignore[method-assign]
        node._presence.announce = self.states.append  # type: ignore[union-attr, method-assign]
        self.room = Room(node.attendance, node._session)
        monkeypatch.setattr("pipeline.learner.ppo.time", SimpleNamespace(monotonic=lambda: self.room.now))
        self._offset = 0
        self.turn()
        self.room.own()

    def take(self, timeout: float) -> Arrival | None:
        return self.waiting.pop(0) if self.waiting else None

    def turn(self, turns: int = 12) -> None:
        for _ in range(turns):
            if self.node._ended():
                return
            self.node._turn(self)  # type: ignore[arg-type]

    def pass_time(self, seconds: float, *actors: str) -> None:
        for _ in range(round(seconds * 5)):
            self.room.pass_time(0.2, *actors, step=0.2)
            self.turn(4)

    def rollout(self, actor: str) -> None:
        """The actor's whole rollout arrives."""
        node = self.node
        chunk = chunk_of(actor, node.version.number, final=True)
        record = record_of(node, actor, node.version.number, chunk, self._offset)
        self._offset += 1
        self.waiting.append(node.examiner().examine(record))


def test_the_loop_registers_trains_and_ends_with_the_iteration_that_reaches_the_limit(tmp_path: Path, monkeypatch):
    live = Live(tmp_path, monkeypatch, "algorithm.sync.clients=2", "learner.max_transitions=40")
    live.pass_time(1, "a", "b")
    assert live.node.version.number == 1
    for _ in range(5):
        live.rollout("a")
        live.rollout("b")
        live.turn()
    # 16 transitions an iteration: the third one reaches 40.
    assert (live.node.updates, live.node.accounting.accepted_transitions) == (3, 48)
    assert live.states == ["stopped"]
    assert live.node._stopping and not live.node._failure


def test_too_few_clients_end_the_run_with_an_error_that_everybody_is_told(tmp_path: Path, monkeypatch, caplog):
    live = Live(
        tmp_path,
        monkeypatch,
        "algorithm.sync.clients=2",
        "algorithm.sync.min_clients=2",
        "algorithm.sync.discovery_s=5",
        "algorithm.sync.client_timeout_s=3",
    )
    with caplog.at_level(logging.INFO, "pipeline.learner"):
        live.pass_time(1, "a", "b")
        live.rollout("a")
        live.pass_time(9, "a")
    assert live.states == ["stopped"]
    assert live.node._failure.startswith("Too few clients: 1 of at least 2")
    assert "Client b is lost: no transition for 3 s while its rollout was waited for. 1 are left." in caplog.text
    assert "Registration is over; 2 clients take part: a, b." in caplog.text
    told = {member.actor: member for member in live.node._members()}
    assert told["a"].state == told["b"].state == "lost"
    assert "the run has ended: Too few clients" in told["a"].detail
    # What was decided stands in the journal of the version that the next learner would make.
    kinds = [event.kind for event in live.node.next_journal().events]
    assert kinds == ["lost"]
    assert json.loads(live.node.next_journal().events[0].detail_json)["session"] == session_of("b")


def test_nothing_of_another_version_counts(tmp_path: Path):
    node = node_in(tmp_path)
    recorder = Recorder(node)
    recorder.begin(*"abc")
    iterate(recorder)
    for index, number in enumerate((0, 1, 3)):
        feed(node, record_of(node, "a", 50 + index, chunk_of("a", number), 50 + index))
    assert dict(node.accounting.rejected) == {"stale": 2, "unknown-version": 1}
    feed(node, record_of(node, "d", 0, chunk_of("d", 2), 60))
    assert node.accounting.rejected["not-a-member"] == 1
    assert node._dead_letters.reasons == []  # type: ignore[union-attr]
    assert node.accounting.holds()
