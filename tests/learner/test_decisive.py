"""Which settings make another fold of the same records."""

import json

from pipeline.config import load_config, to_dict
from pipeline.learner.durable.decisive import changed_settings


def test_what_decides_nothing_may_change():
    before = json.dumps(to_dict(load_config(["client.seed=1", "kafka.timeout_s=5", "learner.checkpoint_every=7"])))
    assert changed_settings(before, load_config([])) == ({}, "")
    assert changed_settings("", load_config(["algorithm.lr=1"])) == ({}, "")
    # PPO's clip is nothing to DQN, nor are priorities where they are off.
    assert changed_settings(before, load_config(["algorithm.ppo.clip=0.1", "algorithm.prioritised.beta=1"])) == ({}, "")


def test_what_decides_is_named_with_both_values():
    before = json.dumps(to_dict(load_config([])))
    _, changed = changed_settings(before, load_config(["algorithm.n_step=1", "learner.version_window=7"]))
    assert changed == "settings were changed: algorithm.n_step from 3 to 1, learner.version_window from 3 to 7"


def test_what_can_change_live_is_told_from_what_cannot():
    before = json.dumps(to_dict(load_config([])))
    after = load_config(["algorithm.lr=0.5", "algorithm.exploration.end=0.1", "algorithm.gamma=0.9"])
    live, changed = changed_settings(before, after)
    assert live == {"algorithm.lr": 0.5, "algorithm.exploration.end": 0.1}
    assert changed == "settings were changed: algorithm.gamma from 0.99 to 0.9"
    # From counts to free-running, though another count would do.
    assert changed_settings(before, load_config(["algorithm.transitions_per_update=8"]))[1] == ""
    assert "transitions_per_update" in changed_settings(before, load_config(["algorithm.transitions_per_update=0"]))[1]


def test_a_setting_that_an_older_release_did_not_have_counts_as_its_default():
    tree = to_dict(load_config(["environment.kwargs.x=1"]))
    for name in ("dueling", "categorical", "prioritised"):
        del tree["algorithm"][name]
    del tree["environment"]["action_masks"]
    before = json.dumps(tree)
    assert changed_settings(before, load_config(["environment.kwargs.x=1"])) == ({}, "")
    _, changed = changed_settings(before, load_config(["environment.kwargs.x=1", "algorithm.dueling=true"]))
    assert changed == "settings were changed: algorithm.dueling from False to True"
