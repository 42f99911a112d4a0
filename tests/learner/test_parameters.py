"""Which settings can change while a run goes on, and what a change does to the fold."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.broker import Record
from pipeline.buffers import PrioritizedBuffer
from pipeline.config import AlgorithmConfig, load_config, settings
from pipeline.errors import CommandError, ConfigError
from pipeline.learner import DQNTrainingNode
from pipeline.learner.parameters import (
    LIVE,
    PREFIX,
    TABLE,
    changed,
    difference,
    learning_rate,
    live_values,
    rule,
    with_values,
)
from pipeline.learner.ratio import TrainingRatio
from pipeline.wire import Command, Outcome
from tests.learner.made import feed, node_in, published, record_of


def command(node: DQNTrainingNode, offset: int, id: str = "", **changes: Any) -> Outcome:
    """A ``set`` as the live loop applies it; dots in names are written as ``__``."""
    named = {PREFIX + name.replace("__", "."): value for name, value in changes.items()}
    given = Command(id or f"set-{offset}", "set", json.dumps(named))
    node._command(Record(node.topics.commands, 0, offset, 0, None, given.encode(), None))
    return {each.id: each for each in node.commands.outcomes()}[given.id]


def test_every_setting_of_the_algorithm_is_decided_upon():
    """A new one has to be put into the table."""
    assert {PREFIX + name for name in TABLE} == {name for name in settings() if name.startswith(PREFIX)}
    assert all(why for row in TABLE.values() for why in row)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "names no setting"),
        ({"algorithm.lrr": 1.0}, "did you mean 'algorithm.lr'"),
        ({"learner.seed": 1}, "no setting 'learner.seed'"),
        ({"lr": 1.0}, "no setting 'lr'"),
        ({"algorithm.lr": "1e-4"}, "a finite number"),
        ({"algorithm.lr": True}, "a finite number"),
        ({"algorithm.lr": float("nan")}, "a finite number"),
        ({"algorithm.lr": 10**400}, "a finite number"),
        ({"algorithm.lr": "${oc.env:HOME}"}, "a finite number"),
        ({"algorithm.batch_size": 8.5}, "an integer"),
        ({"algorithm.batch_size": 2**63}, "an integer"),
        ({"algorithm.batch_size": 0}, "at least 1"),
        ({"algorithm.double": 1}, "true or false"),
        ({"algorithm.exploration": {"start": 1}}, "no setting"),
        ({"algorithm.exploration.start": 1.5}, "from 0 to 1"),
        ({"algorithm.lr_decay_transitions": -1}, "0 or more"),
        ({"algorithm.hidden": [64]}, "cannot be"),
        ({"algorithm.dueling": True}, "shapes the network"),
        ({"algorithm.n_step": 1}, "were made with it"),
        ({"algorithm.gamma": 0.9}, "were made with it"),
        ({"algorithm.buffer_rows": 10}, "buffer was made with it"),
        ({"algorithm.transitions_per_update": 0}, "free-running"),
        ({"algorithm.prioritised.alpha": 0.1}, "does not read it"),
        ({"algorithm.ppo.clip": 0.1}, "does not read it"),
        ({"algorithm.lr": 1e-4, "algorithm.n_step": 1}, "were made with it"),
    ],
)
def test_what_cannot_be_changed_is_refused_with_a_sentence(changes: dict[str, Any], says: str):
    before = AlgorithmConfig()
    with pytest.raises(CommandError, match=says):
        changed(before, changes)
    assert before == AlgorithmConfig()


def test_ppo_may_change_other_settings_than_dqn():
    ppo = AlgorithmConfig(name="ppo")
    new = changed(ppo, {"algorithm.gamma": 0.9, "algorithm.ppo.epochs": 2, "algorithm.sync.on_lost_client": "stop"})
    assert (new.gamma, new.ppo.epochs, new.sync.on_lost_client) == (0.9, 2, "stop")
    for refused in ({"algorithm.batch_size": 4}, {"algorithm.sync.on_lost_client": "shrug"}):
        with pytest.raises(CommandError):
            changed(ppo, refused)


def test_live_values_bring_the_settings_back():
    for name in ("dqn", "rainbow", "ppo"):
        launched = load_config([f"algorithm={name}"]).algorithm
        new = changed(launched, {"algorithm.lr": 0.5, "algorithm.lr_decay_transitions": 9})
        values = json.loads(json.dumps(live_values(new)))
        assert with_values(launched, values) == new
        assert difference(launched, new) == (
            f"algorithm.lr from {launched.lr} to 0.5, algorithm.lr_decay_transitions from 0 to 9"
        )
        assert set(values) == {name for name in TABLE if rule(launched, name) == LIVE}


def test_the_learning_rate_falls_to_nothing_where_it_is_to():
    assert learning_rate(AlgorithmConfig(lr=0.5), 10**9) == 0.5
    falling = AlgorithmConfig(lr=0.5, lr_decay_transitions=100)
    assert [learning_rate(falling, at) for at in (0, 50, 100, 200)] == [0.5, 0.25, 0.0, 0.0]


def test_another_ratio_counts_from_where_it_is_set():
    ratio = TrainingRatio(4, 100)
    assert [ratio.due(at) for at in (0, 100, 103, 104, 200)] == [0, 0, 0, 1, 25]
    ratio.change(10, 203)
    # Three transitions were left over.
    assert [ratio.due(at) for at in (203, 209, 210, 300)] == [25, 25, 26, 35]
    ratio.change(1, 300)
    assert ratio.due(300) == 35 and ratio.due(301) == 36
    again = TrainingRatio(1, 0)
    again.load_state(json.loads(json.dumps(ratio.state())))
    assert again.due(310) == ratio.due(310)


def test_a_change_holds_from_the_next_step_on(tmp_path: Path):
    """Rate, batch, ratio and interval of versions; the learner says what was changed."""
    node = node_in(tmp_path)
    node.publish()
    records = [record_of(node, sequence, sequence) for sequence in range(12)]
    feed(node, records[:4])
    assert (node.updates, node.version.number) == (4, 1)
    said = command(node, 0, lr=1e-4, transitions_per_update=10, batch_size=4, updates_per_version=2)
    assert said.done
    assert "algorithm.lr from 0.002 to 0.0001" in said.detail and "algorithm.batch_size from 8 to 4" in said.detail
    sizes: list[int] = []
    rates: list[float | None] = []
    sample, update = node.buffer.sample, node.algorithm.update
    node.buffer.sample = lambda size: (sizes.append(size), sample(size))[1]  # type: ignore[method-assign]
    node.algorithm.update = lambda batch, metrics, learning_rate: (  # type: ignore[method-assign, assignment]
        rates.append(learning_rate),
        update(batch, metrics, learning_rate),
    )[1]
    feed(node, records[4:8])
    assert sizes == [4] * 4 and rates == [1e-4] * 4
    assert (node.updates, node.version.number) == (8, 3)
    assert node.config.algorithm.lr == 2e-3
    # A decay that is over leaves the weights as they are.
    assert command(node, 1, lr_decay_transitions=50).done
    before = node.weights()
    feed(node, records[8:])
    assert node.updates == 12 and rates[-1] == 0.0
    assert all(node.weights()[name].tobytes() == before[name].tobytes() for name in before)


def test_what_is_out_of_range_changes_nothing(tmp_path: Path):
    node = node_in(tmp_path, "algorithm=rainbow")
    for changes, says in (
        ({"lr": 0.0}, "above 0"),
        ({"target_rate": 2.0}, "up to 1"),
        ({"batch_size": 100}, "half of algorithm.buffer_rows"),
        ({"prioritised__alpha": 11.0}, "alpha"),
        ({"huber_delta": 1.0, "grad_clip": -1.0}, "0 or more"),
    ):
        said = command(node, len(node.commands.state()["ids"]), **changes)
        assert not said.done and says in said.detail
    assert node.settings == node.config.algorithm


def test_an_id_is_applied_once(tmp_path: Path):
    node = node_in(tmp_path)
    command(node, 0, "one", lr=0.5)
    command(node, 1, "two", lr=0.25)
    again = command(node, 2, "one", lr=0.5)
    assert again.done and "to 0.5" in again.detail
    assert node.settings.lr == 0.25


def test_exploration_goes_out_with_each_version(tmp_path: Path):
    """By accepted transitions, under the settings in force."""
    node = node_in(tmp_path, "algorithm.exploration.transitions=100", "algorithm.exploration.end=0.2")
    node.publish()
    records = [record_of(node, sequence, sequence) for sequence in range(12)]
    feed(node, records[:6])
    assert [(v.transitions, v.exploration) for v in published(node)] == [
        (0, 1.0),
        (40, pytest.approx(0.68)),
        (60, pytest.approx(0.52)),
    ]
    command(node, 0, exploration__start=0.5, exploration__end=0.0)
    feed(node, records[6:])
    assert [v.exploration for v in published(node)[3:]] == [pytest.approx(0.1), 0.0, 0.0]


def test_priorities_count_by_the_new_alpha(tmp_path: Path):
    node = node_in(tmp_path, "algorithm=rainbow")
    node.publish()
    feed(node, [record_of(node, sequence, sequence) for sequence in range(8)])
    assert isinstance(node.buffer, PrioritizedBuffer)
    before = node.buffer.state().arrays["priorities"]
    assert command(node, 0, prioritised__alpha=1.0, prioritised__beta=1.0).done
    after = node.buffer.state().arrays["priorities"]
    np.testing.assert_allclose(after, before.astype(float) ** 2, rtol=1e-6)
    feed(node, [record_of(node, 8, 8)])
    assert node.buffer.beta == 1.0


def test_a_batch_that_the_buffer_may_never_hold_is_refused_at_launch(tmp_path: Path):
    with pytest.raises(ConfigError, match="half of"):
        node_in(tmp_path, "algorithm.batch_size=76")
