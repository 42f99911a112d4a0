"""Settings: typed, documented, and refused with the nearest name."""

import pytest

from pipeline.cli import main
from pipeline.config import documentation, from_dict, load_config, settings, to_dict
from pipeline.errors import ConfigError


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("algorithm.n_stp=3", "'algorithm.n_step'"),
        ("clinet.seed=1", "'client.seed'"),
        ("client.seed=abc", "abc"),
        ("client.queue_policy=drop", "drop_oldest"),
        ("services=nowhere", "embedded"),
        ("algorithm.batch_size=0", "at least 1"),
        ("algoritm=dqn", "'algorithm'"),
    ],
)
def test_what_is_wrong_is_refused_and_the_message_helps(override, says):
    """A misspelt key, a wrong type, a value out of range."""
    with pytest.raises(ConfigError) as caught:
        load_config([override])
    assert says in str(caught.value)


def test_every_setting_has_its_sentence():
    """And no sentence is left over."""
    texts = documentation()
    assert [name for name in settings() if not texts.get(name, "").endswith(".")] == []


def test_groups_and_open_mappings():
    """Groups choose files; raw librdkafka settings keep their dots."""
    config = load_config(["environment=acrobot", "services=local", "kafka.producer.linger.ms=20"])
    assert config.environment.id == "Acrobot-v1"
    assert config.services.kind == "local"
    assert config.kafka.producer == {"linger.ms": 20}
    assert from_dict(to_dict(config)) == config


def test_the_command_line_answers_in_one_sentence(capsys):
    """Errors go to stderr, with a status that is not 0."""
    assert main(["learner", "lerner.seed=1"]) == 1
    assert "learner.seed" in capsys.readouterr().err
    assert main(["lerner"]) == 2
    assert main(["--help"]) == 0
    assert main(["client", "--help"]) == 0
    assert "client.max_lead" in capsys.readouterr().out


def test_without_services_the_message_says_what_to_do(capsys, tmp_path):
    """No address anywhere."""
    assert main(["client", f"services.folder={tmp_path}"]) == 1
    assert "pipeline services up" in capsys.readouterr().err
