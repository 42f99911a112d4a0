import logging
import pickle

import pytest

from pipeline.broker import BrokerSettings, Producer
from pipeline.broker.logs import RateLimitedLog
from pipeline.broker.settings import admin_options, consumer_options, producer_options
from pipeline.errors import ConfigError


def test_defaults_make_an_idempotent_producer_and_a_reader_that_commits_nothing():
    settings = BrokerSettings("b:1")
    producer, consumer = producer_options(settings), consumer_options(settings)
    assert producer["acks"] == "all"
    assert producer["enable.idempotence"] is True
    assert consumer["enable.auto.commit"] is False
    assert consumer["enable.auto.offset.store"] is False
    assert consumer["isolation.level"] == "read_committed"
    assert consumer["auto.offset.reset"] == "error"
    assert producer["bootstrap.servers"] == consumer["bootstrap.servers"] == "b:1"


def test_raw_settings_win_over_defaults_and_overrides_over_both():
    settings = BrokerSettings("b:1", producer={"linger.ms": 50, "acks": "1"})
    options = producer_options(settings, linger_ms=7)
    assert (options["linger.ms"], options["acks"]) == (7, "1")


def test_a_user_means_sasl_over_tls():
    settings = BrokerSettings("b:1", username="actor", password="hunter2\n", ca="PEM")
    for options in (producer_options(settings), admin_options(settings)):
        assert options["security.protocol"] == "sasl_ssl"
        assert options["sasl.mechanism"] == "SCRAM-SHA-512"
        assert options["sasl.password"] == "hunter2"
        assert type(options["sasl.password"]) is str
        assert options["ssl.ca.pem"] == "PEM"


def test_secrets_show_nowhere():
    settings = BrokerSettings("b:1", username="actor", password="hunter2", producer={"sasl.password": "hunter3"})
    assert "hunter" not in repr(settings)
    again = pickle.loads(pickle.dumps(settings))
    assert again == settings
    assert "hunter" not in repr(again)


def test_an_empty_address_is_refused():
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        BrokerSettings(" ")


def test_an_unknown_librdkafka_setting_is_named():
    with pytest.raises(ConfigError, match=r"lingerr\.ms"):
        Producer(BrokerSettings("b:1", producer={"lingerr.ms": 5}))


def test_like_log_lines_come_out_once(caplog: pytest.LogCaptureFixture):
    log = RateLimitedLog(interval=60.0)
    with caplog.at_level(logging.DEBUG, "pipeline.broker.librdkafka"):
        for attempt in range(100):
            log.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#producer-1", f"after {attempt}ms")
        log.log(logging.WARNING, "%s [%s] %s", "OTHER", "rdkafka#producer-1", "text")
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.WARNING]


def test_dropped_log_lines_are_counted(caplog: pytest.LogCaptureFixture):
    log = RateLimitedLog(interval=0.0)
    with caplog.at_level(logging.DEBUG, "pipeline.broker.librdkafka"):
        log.log(logging.WARNING, "same %d", 1)
        log._interval = 60.0
        log.log(logging.WARNING, "same %d", 2)
        log._interval = 0.0
        log.log(logging.WARNING, "same %d", 3)
    assert "1 more like it" in caplog.messages[-1]
