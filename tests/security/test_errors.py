"""What goes wrong is said in one sentence, soon, with what to do; and without a secret."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import minio.time
import pytest

import pipeline.weights.store
from pipeline.broker import BrokerSettings, LogReader, Producer, Topics, check_schemas, ensure_topics, find_run
from pipeline.broker.access import BrokerAccess
from pipeline.broker.quotas import Quota, set_quota
from pipeline.errors import (
    BrokerAuthenticationError,
    ClientError,
    PipelineError,
    RunNotFoundError,
    StoreAccessError,
    StoreUnreachableError,
    UnknownTopicError,
    WeightsNotFoundError,
)
from pipeline.secret import Secret
from pipeline.secrets.certificates import issue, make_authority
from pipeline.weights import ObjectStore, StoreSettings
from pipeline.weights.access import StoreAccess
from pipeline.wire import RunManifest, fingerprint
from tests.security.conftest import NAMESPACE, RUN, Secured
from tests.security.servers import showing

SOON = 10.0
"""Seconds, on a machine that has nothing else to do."""
TIMEOUT = 300.0


@contextmanager
def says(kind: type[PipelineError], *parts: str) -> Iterator[None]:
    """The error, one line, with all of these parts, within `SOON`."""
    started = time.monotonic()
    with pytest.raises(kind) as caught:
        yield
    took, said = time.monotonic() - started, str(caught.value)
    assert "\n" not in said
    for part in parts:
        assert part in said
    busy = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 1.0
    assert took < SOON * max(1.0, busy), said


def ways_to_the_broker(settings: BrokerSettings) -> dict[str, Callable[[], Any]]:
    topic = Topics(NAMESPACE, RUN).versions
    return {
        "reader": lambda: LogReader(settings, topic).open(TIMEOUT),
        "producer": lambda: Producer(settings).connect(TIMEOUT),
        "administration": lambda: BrokerAccess(settings, TIMEOUT),
        "quotas": lambda: set_quota(settings, "nobody", Quota(1, 1, 1), TIMEOUT),
        "finding a run": lambda: find_run(settings, NAMESPACE, timeout=TIMEOUT),
    }


WAYS = ("reader", "producer", "administration", "quotas", "finding a run")


# -- who is there, and who is not --


@pytest.mark.parametrize("way", WAYS)
def test_wrong_password(secured: Secured, way: str):
    wrong = secured.broker("alice", password=Secret("canary-wrong"))
    with says(BrokerAuthenticationError, wrong.address, "password", "`pipeline secrets rotate`"):
        ways_to_the_broker(wrong)[way]()


def test_wrong_secret_key(secured: Secured):
    store = ObjectStore(replace(secured.connection("alice").store, secret_key="canary-wrong"))
    with says(StoreAccessError, store.settings.endpoint, "secret key", "SignatureDoesNotMatch"):
        store.get(f"{RUN}/weights/none", 1, "")
    root = replace(secured.connection("setup").store, secret_key="canary-wrong")
    with says(StoreAccessError, root.endpoint, "set-up's secret file"):
        StoreAccess(root).remove_user("nobody")


@pytest.mark.parametrize(
    "what, advice",
    [
        ("unknown authority", "set up anew since the file was made"),
        ("expired", "has expired; make a new one with `pipeline secrets init`"),
        ("other host", "secrets.broker_hosts or secrets.store_hosts"),
    ],
)
def test_certificates(what: str, advice: str, tmp_path: Path):
    """Whoever looks at them says the same."""
    authority = make_authority()
    signer = make_authority() if what == "unknown authority" else authority
    hosts = ["10.9.8.7"] if what == "other host" else ["127.0.0.1"]
    pair = issue(signer, "server", hosts, days=-1 if what == "expired" else 100)
    with showing(pair, tmp_path) as address:
        broker = BrokerSettings(address, username="alice", password="canary", ca=authority.certificate)
        for way, call in ways_to_the_broker(broker).items():
            with says(BrokerAuthenticationError, address, "no safe connection", advice):
                logging.getLogger(__name__).info(way)
                call()
        store = StoreSettings(address, "alice", "canary", "bucket", secure=True, ca=authority.certificate)
        for call in (ObjectStore(store).ensure_bucket, lambda: StoreAccess(store).remove_user("nobody")):
            with says(StoreUnreachableError, address, "no safe connection", advice):
                call()


def test_an_authority_that_is_none_is_a_refused_setting():
    with pytest.raises(PipelineError, match="certificate"):
        ObjectStore(StoreSettings("host:1", "a", "b", "bucket", secure=True, ca="none"))


# -- what is allowed, and what is there --


def test_missing_right_on_a_topic(secured: Secured):
    alice, topics = secured.broker("alice"), secured.topics
    with says(
        BrokerAuthenticationError, topics.commands, "Topic authorization failed", "`pipeline secrets client USER"
    ):
        LogReader(alice, topics.commands).open(TIMEOUT)
    # Who may write there may know that it is there: the refusal comes with the first fetch, if there is anything.
    with Producer(alice) as producer:
        producer.send_and_wait(topics.samples, b"rubbish", timeout=TIMEOUT)
    with LogReader(alice, topics.samples) as reader, says(BrokerAuthenticationError, topics.samples, "does not allow"):
        reader.read_to_end(TIMEOUT)
    with says(BrokerAuthenticationError, topics.versions, "does not allow", "`pipeline secrets apply run=NAME`"):
        Producer(alice).send_and_wait(topics.versions, b"canary", timeout=TIMEOUT)
    with says(BrokerAuthenticationError, "guarded.lab", "does not allow"):
        Producer(alice, transactional_id=f"{NAMESPACE}.{RUN}", guards="guarded.lab").init_transactions(TIMEOUT)


def test_missing_right_on_weights(secured: Secured):
    store = ObjectStore(secured.connection("alice").store)
    with says(StoreAccessError, "AccessDenied", "lacks the right", "`pipeline secrets client USER run=NAME`"):
        store.get("elsewhere/weights/x", 1, "")


def test_missing_topic(secured: Secured):
    """A learner, who may not make it, and the set-up, who does not."""
    nowhere = Topics(NAMESPACE, "nowhere")
    with says(BrokerAuthenticationError, f"topic {nowhere.samples}", "`pipeline secrets apply run=NAME`"):
        ensure_topics(secured.broker("learner"), nowhere.specs(), timeout=TIMEOUT)
    with says(UnknownTopicError, nowhere.samples, "pipeline topics"):
        LogReader(secured.broker("setup"), nowhere.samples).open(2.0)


def test_missing_bucket(secured: Secured):
    """To one who may not look for it, but may read in it."""
    gone = replace(secured.connection("setup").store, bucket="gone-away")
    StoreAccess(gone).allow("learner", "test.gone-away", RUN, ("get", "put"), False)
    store = ObjectStore(replace(secured.connection("learner").store, bucket="gone-away"))
    with says(WeightsNotFoundError, "bucket gone-away does not exist", "pipeline secrets apply", "store.bucket"):
        store.ensure_bucket(probe=f"{RUN}/weights/none")
    with says(WeightsNotFoundError, "bucket gone-away does not exist"):
        store.put_once(f"{RUN}/weights/none", b"data")
    there = ObjectStore(secured.connection("learner").store)
    there.ensure_bucket(probe=f"{RUN}/weights/none")


@pytest.mark.parametrize("minutes", [-60, 60])
def test_clock_too_far_off(secured: Secured, minutes: int, monkeypatch: pytest.MonkeyPatch):
    now, utcnow = time.time, minio.time.utcnow
    monkeypatch.setattr(minio.time, "utcnow", lambda: utcnow() + timedelta(minutes=minutes))
    monkeypatch.setattr(pipeline.weights.store.time, "time", lambda: now() + minutes * 60)
    store = ObjectStore(secured.connection("learner").store)
    direction = "60 minutes behind" if minutes < 0 else "60 minutes ahead"
    for call in (lambda: store.get(f"{RUN}/weights/x", 1, ""), lambda: store.stat(f"{RUN}/weights/x")):
        with says(StoreAccessError, "clock is too far off", direction, "set one of the two"):
            call()


# -- other releases --


def manifest(*schemas: str) -> RunManifest:
    return RunManifest("old", "ns", 1, 1, "{}", "{}", schemas, "store:1", "bucket", True, "dqn", "env")


def test_a_run_of_a_newer_release(secured: Secured):
    """Its manifest is of a schema that this release does not have."""
    topics = Topics("guarded-newer", "future")
    setup = secured.broker("setup")
    ensure_topics(setup, topics.specs(), timeout=60.0, replication=1)
    newer = b"\xc3\x01" + b"\x5a" * 8 + b"what is to come"
    with Producer(setup) as producer:
        producer.send_and_wait(topics.runs, newer, key="future", timeout=60.0)
    for run in ("future", None):
        with says(RunNotFoundError, "run future", "newer release", "install the release that its learner has"):
            find_run(setup, "guarded-newer", run, timeout=TIMEOUT)


def test_a_learner_of_an_older_release():
    check_schemas(manifest(fingerprint("chunk"), fingerprint("episode")))
    check_schemas(manifest("5a" * 8))  # a newer one reads what older ones wrote
    with pytest.raises(ClientError, match="older release, which cannot read what this one sends"):
        check_schemas(manifest(fingerprint("episode")))
