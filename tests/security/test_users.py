"""Users come and go, and get other passwords, while all the rest goes on."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import confluent_kafka
import pytest

from pipeline.broker import Producer, Topics
from pipeline.broker.quotas import Quota, set_quota
from pipeline.broker.settings import producer_options
from pipeline.broker.topics import AdminLink
from pipeline.errors import BrokerAuthenticationError, BrokerError, ConfigError, StoreAccessError, WeightsNotFoundError
from pipeline.secrets.folder import SETUP
from pipeline.secrets.secret_file import SecretFile
from pipeline.weights import ObjectStore
from tests.security.conftest import NAMESPACE, RUN, Secured
from tests.waiting import wait_until

TIMEOUT = 120.0


def sends(producer: Producer, topic: str) -> Callable[[], None]:
    def send() -> None:
        producer.send_and_wait(topic, b"rubbish", timeout=TIMEOUT)

    return send


def test_a_client_gets_a_second_run_and_keeps_its_password(secured: Secured):
    first = secured.users().client("carol")
    assert first.file == secured.folder.client("carol")
    before = SecretFile.read(first.file)
    second = Topics(NAMESPACE, "second")
    secured.users("second").client("carol")
    assert SecretFile.read(first.file) == before
    with Producer(secured.broker("carol")) as producer:
        sends(producer, secured.topics.samples)()
        sends(producer, second.samples)()
    store = ObjectStore(secured.connection("carol").store)
    for run in (RUN, "second"):
        with pytest.raises(WeightsNotFoundError):
            store.stat(f"{run}/weights/none")
    with Producer(secured.broker("alice")) as producer, pytest.raises(BrokerAuthenticationError):
        sends(producer, second.samples)()


def test_what_was_applied_can_be_applied_again(secured: Secured):
    before = secured.users()._access.grants("learner")
    secured.users().apply()
    assert secured.users()._access.grants("learner") == before


def test_rotate_lets_the_new_password_in_and_the_old_one_not(secured: Secured):
    secured.users().client("dave")
    old, topic = secured.connection("dave"), secured.topics.samples
    with ExitStack() as stack:
        others = sends(stack.enter_context(Producer(secured.broker("alice"))), topic)
        others()
        secured.users().rotate("dave")
        others()
        new = secured.connection("dave")
        assert new.broker.password != old.broker.password and new.store.secret_key != old.store.secret_key
        sends(stack.enter_context(Producer(new.broker)), topic)()
        with pytest.raises(WeightsNotFoundError):
            ObjectStore(new.store).stat(f"{RUN}/weights/none")
        with pytest.raises(BrokerAuthenticationError):
            sends(stack.enter_context(Producer(old.broker)), topic)()
        with pytest.raises(StoreAccessError):
            ObjectStore(old.store).get(f"{RUN}/weights/none", 1, "")
        others()


def test_revoke_counts_for_open_connections_and_for_nobody_else(secured: Secured):
    secured.users().client("mallory")
    connection, topic = secured.connection("mallory"), secured.topics.samples
    with ExitStack() as stack:
        others = sends(stack.enter_context(Producer(secured.broker("alice"))), topic)
        mallory = sends(stack.enter_context(Producer(connection.broker)), topic)
        others()
        mallory()
        secured.users().revoke("mallory")
        assert not secured.folder.client("mallory").exists()

        def refused() -> bool:
            try:
                mallory()
            except BrokerError as error:
                assert isinstance(error, BrokerAuthenticationError)
                return True
            return False

        wait_until(refused, "an open connection is refused", TIMEOUT)
        with pytest.raises(BrokerAuthenticationError):
            Producer(connection.broker).connect(TIMEOUT)
        with pytest.raises(StoreAccessError):
            ObjectStore(connection.store).get(f"{RUN}/weights/none", 1, "")
        others()
    secured.users().revoke("mallory")  # as good as done
    secured.users().client("mallory")  # and let in again
    with Producer(secured.broker("mallory")) as producer:
        sends(producer, topic)()


def test_the_set_up_itself_gets_another_password(secured: Secured):
    before = secured.broker(SETUP)
    root = secured.folder.root_password.read_text()
    said = secured.users().rotate(SETUP)
    assert "when that is started again" in said.sentences[0]
    assert secured.broker(SETUP).password != before.password
    AdminLink(secured.broker(SETUP)).metadata(TIMEOUT)
    with pytest.raises(BrokerAuthenticationError):
        AdminLink(before).metadata(TIMEOUT)
    # The store still runs with the old one: put it back for the tests to come.
    secret = SecretFile.read(secured.file(SETUP))
    assert secret.store.secret_key == secured.folder.root_password.read_text().strip() != root.strip()
    restored = replace(secret, store=replace(secret.store, secret_key=type(secret.store.secret_key)(root)))
    restored.write(secured.file(SETUP), "Secrets of the role setup")
    secured.folder.root_password.write_text(root)


def test_roles_are_no_clients(secured: Secured):
    for change in (secured.users().client, secured.users().revoke):
        with pytest.raises(ConfigError, match="role's name"):
            change("learner")
    with pytest.raises(ConfigError, match="no secret file"):
        secured.users().rotate("nobody")


def test_a_client_above_its_quota_is_made_to_wait(secured: Secured):
    """Its answers come later, and the next ones of others do not."""
    secured.users().client("flooder")
    set_quota(secured.broker(SETUP), "flooder", Quota(20_000, 20_000, 50), TIMEOUT)
    throttled: list[float] = []
    options = {
        **producer_options(secured.broker("flooder")),
        "linger.ms": 0,
        "throttle_cb": lambda event: throttled.append(event.throttle_time),
    }
    flooder = confluent_kafka.Producer(options)
    deadline = time.monotonic() + TIMEOUT
    while not throttled and time.monotonic() < deadline:
        flooder.produce(secured.topics.samples, b"x" * 50_000)
        flooder.poll(0.1)
    assert throttled and max(throttled) > 0
    with Producer(secured.broker("alice")) as producer:
        started = time.monotonic()
        sends(producer, secured.topics.samples)()
        assert time.monotonic() - started < TIMEOUT / 2
    flooder.purge()
    flooder.flush(1.0)
