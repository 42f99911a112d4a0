"""Which settings make another fold of the same records."""

import json

from pipeline.config import load_config, to_dict
from pipeline.learner.decisive import changed_settings


def test_what_decides_nothing_may_change():
    before = json.dumps(to_dict(load_config(["client.seed=1", "kafka.timeout_s=5", "learner.checkpoint_every=7"])))
    assert changed_settings(before, load_config([])) == ""
    assert changed_settings("", load_config(["algorithm.lr=1"])) == ""


def test_what_decides_is_named_with_both_values():
    before = json.dumps(to_dict(load_config([])))
    changed = changed_settings(before, load_config(["algorithm.lr=0.5", "learner.version_window=7"]))
    assert changed == "settings were changed: algorithm.lr from 0.002 to 0.5, learner.version_window from 3 to 7"


def test_a_setting_that_an_older_release_did_not_have_counts_as_its_default():
    tree = to_dict(load_config(["environment.kwargs.x=1"]))
    for name in ("dueling", "categorical", "prioritised"):
        del tree["algorithm"][name]
    del tree["environment"]["action_masks"]
    before = json.dumps(tree)
    assert changed_settings(before, load_config(["environment.kwargs.x=1"])) == ""
    changed = changed_settings(before, load_config(["environment.kwargs.x=1", "algorithm.dueling=true"]))
    assert changed == "settings were changed: algorithm.dueling from False to True"
