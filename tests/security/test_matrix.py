"""Each user tries everything; what comes of it is the table in docs/security.md."""

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from minio import Minio, MinioAdmin
from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException, S3Error

from pipeline.broker import Topics, ensure_topics
from pipeline.broker.logs import RateLimitedLog
from pipeline.broker.settings import admin_options, producer_options
from pipeline.broker.wire_client import WireClient, array, text
from pipeline.weights.store import http_pool
from tests.security.conftest import NAMESPACE, RUN, Secured

_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_WORDS = ("runs", "samples", "episodes", "versions", "commands", "heartbeats", "progress", "telemetry", "dead-letters")
_FETCH, _FIND_COORDINATOR, _INIT_PRODUCER_ID = 1, 10, 22
_SECONDS = 180.0
OTHER = Topics(NAMESPACE, "other")


def the_table() -> dict[tuple[str, str], bool]:
    """Operation and user, as the document says."""
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    lines = page.partition("<!-- matrix -->")[2].partition("<!-- /matrix -->")[0].strip().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    users = rows[0][1:]
    found: dict[tuple[str, str], bool] = {}
    for operation, *cells in rows[2:]:
        assert len(cells) == len(users) and set(cells) <= {"yes", "no"}, operation
        found |= {(operation, user): cell == "yes" for user, cell in zip(users, cells, strict=True)}
    return found


def allowed(code: int, what: str) -> bool:
    """Whether it was, by Kafka's error code; any other error than a refusal is a failure of the test."""
    assert code == 0 or code in _REFUSED, f"{what}: {KafkaError(code).str()}"
    return code == 0


class Tries:
    """What one user tries."""

    def __init__(self, secured: Secured, user: str) -> None:
        self.secured = secured
        self.user = user
        connection = secured.connection(user)
        self.broker = connection.broker
        # The embedded defaults of a client's file: bucket and region stand in the configuration.
        self.store = connection.store
        self.topics = Topics(NAMESPACE, RUN)
        self.wire = WireClient(self.broker, _SECONDS)
        self.admin: Any = AdminClient(admin_options(self.broker), logger=RateLimitedLog())
        self.may_everything = user == "setup"

    # -- topics -------------------------------------------------------------------------------------------------------

    def name(self, word: str, topics: Topics | None = None) -> str:
        return str(getattr(topics or self.topics, word.replace("-", "_")))

    def read(self, topic: str) -> bool:
        partition = struct.pack(">iqi", 0, 0, 1 << 16)
        asked = struct.pack(">iiiib", -1, 0, 0, 1 << 20, 0) + array([text(topic) + array([partition])])
        answer = self.wire.ask(_FETCH, 4, asked)
        answer.take("i")
        assert answer.take("i") == 1 and answer.text() == topic and answer.take("i") == 1
        assert answer.take("i") == 0
        return allowed(answer.take("h"), f"{self.user} reads {topic}")

    def write(self, topics: list[str]) -> dict[str, bool]:
        """One record to each; rubbish, which nobody reads in these runs."""
        # Not idempotent: who may write nowhere would get no producer's id, and that for all topics at once.
        options = {**producer_options(self.broker), "message.timeout.ms": int(_SECONDS * 1000)}
        producer = Producer({**options, "enable.idempotence": False}, logger=RateLimitedLog())
        found: dict[str, int] = {}

        def delivered(error: KafkaError | None, message: Any) -> None:
            found[message.topic()] = 0 if error is None else error.code()

        for topic in topics:
            producer.produce(topic, b"rubbish", key=b"rubbish", on_delivery=delivered)
        assert producer.flush(_SECONDS) == 0
        return {topic: allowed(found[topic], f"{self.user} writes {topic}") for topic in topics}

    def lead(self) -> bool:
        asked = text(f"{NAMESPACE}.{RUN}") + struct.pack(">i", 60_000)
        while True:
            # To be asked for is what makes a fresh broker's coordinator.
            self.wire.ask(_FIND_COORDINATOR, 1, text(f"{NAMESPACE}.{RUN}") + struct.pack(">b", 1))
            answer = self.wire.ask(_INIT_PRODUCER_ID, 0, asked)
            answer.take("i")
            code = answer.take("h")
            # A fresh broker makes its transaction log first; an earlier user's transaction ends first.
            if code not in (
                KafkaError.COORDINATOR_NOT_AVAILABLE,
                KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
                KafkaError.NOT_COORDINATOR,
                KafkaError.CONCURRENT_TRANSACTIONS,
            ):
                return allowed(code, f"{self.user} leads")

    def group(self) -> bool:
        answer = self.wire.ask(_FIND_COORDINATOR, 1, text("somebody-else") + struct.pack(">b", 0))
        answer.take("i")
        code = answer.take("h")
        return code not in _REFUSED

    # -- administration -----------------------------------------------------------------------------------------------

    def administer(self, ask: Callable[[], dict[Any, Any]]) -> bool:
        (future,) = ask().values()
        try:
            future.result(_SECONDS)
        except KafkaException as error:
            return allowed(error.args[0].code(), f"{self.user} administers")
        return True

    def target(self) -> str:
        """A topic that the test can do without, if the user may touch it; else one that it has rights in."""
        return "scratch" if self.may_everything else self.topics.dead_letters

    def create_topic(self) -> bool:
        topic = "scratch" if self.may_everything else f"{NAMESPACE}.{RUN}.more"
        return self.administer(lambda: self.admin.create_topics([NewTopic(topic, 1, 1)]))

    def alter_topic(self) -> bool:
        entry = ConfigEntry("retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.target(), incremental_configs=[entry])
        return self.administer(lambda: self.admin.incremental_alter_configs([resource]))

    def delete_topic(self) -> bool:
        return self.administer(lambda: self.admin.delete_topics([self.target()]))

    def make_user(self) -> bool:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion(f"made-by-{self.user}", info, b"password")
        return self.administer(lambda: self.admin.alter_user_scram_credentials([user]))

    def give_right(self) -> bool:
        rule = AclBinding(
            ResourceType.TOPIC,
            "*",
            ResourcePatternType.LITERAL,
            f"User:{self.user}",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        if self.may_everything:
            rule = replace_principal(rule, "User:nobody-at-all")
        return self.administer(lambda: self.admin.create_acls([rule]))

    # -- the store ----------------------------------------------------------------------------------------------------

    def objects(self) -> dict[str, bool]:
        store = self.store
        client = Minio(
            store.endpoint,
            store.access_key,
            str.__str__(store.secret_key),
            secure=True,
            region=store.region,
            http_client=http_pool(store),
        )
        bucket, own, other = store.bucket, f"{RUN}/weights/", f"{OTHER.run}/weights/"

        def may(call: Callable[[], Any]) -> bool:
            try:
                call()
            except S3Error as error:
                assert error.code == "AccessDenied", f"{self.user}: {error}"
                return False
            return True

        def make_user() -> None:
            admin = MinioAdmin(
                endpoint=store.endpoint,
                credentials=StaticProvider(store.access_key, str.__str__(store.secret_key)),
                http_client=http_pool(store),
            )
            try:
                admin.user_add(f"made-by-{self.user}", "password-of-somebody")
            except MinioAdminException as error:
                raise S3Error(
                    None, "AccessDenied" if "AccessDenied" in str(error) else str(error), "", "", "", ""
                ) from error

        put: Any = client._put_object  # of bytes, in one request
        return {
            "get weights": may(lambda: client.get_object(bucket, f"{own}kept").close()),
            "get another run's weights": may(lambda: client.get_object(bucket, f"{other}kept").close()),
            "put weights": may(lambda: put(bucket, f"{own}of-{self.user}", b"x", headers={})),
            "list weights": may(lambda: list(client.list_objects(bucket, prefix=own))),
            "list the bucket": may(lambda: list(client.list_objects(bucket))),
            "delete weights": may(lambda: client.remove_object(bucket, f"{own}of-nobody")),
            "make a bucket": may(lambda: client.make_bucket(f"made-by-{self.user}")),
            "make the store's users": may(make_user),
        }

    def everything(self) -> dict[str, bool]:
        names = {word: self.name(word) for word in _WORDS}
        others = OTHER.samples
        written = self.write([*names.values(), others])
        found = {f"read {word}": self.read(name) for word, name in names.items()}
        found |= {f"write {word}": written[name] for word, name in names.items()}
        found |= {
            "lead the run": self.lead(),
            "read another run's versions": self.read(OTHER.versions),
            "write another run's samples": written[others],
            "use another's group": self.group(),
            "create a topic": self.create_topic(),
            "change a topic's settings": self.alter_topic(),
            "delete a topic": self.delete_topic(),
            "make users": self.make_user(),
            "give rights": self.give_right(),
        }
        self.wire.close()
        return found | self.objects()


def replace_principal(rule: AclBinding, principal: str) -> AclBinding:
    """A rule like that one, for another user."""
    return AclBinding(
        rule.restype, rule.name, rule.resource_pattern_type, principal, rule.host, rule.operation, rule.permission_type
    )


@pytest.fixture(scope="module")
def prepared(secured: Secured) -> Secured:
    """Another run, in which nobody was given rights, and weights of both."""
    ensure_topics(secured.broker("setup"), OTHER.specs(), timeout=_SECONDS, replication=1)
    store = secured.connection("setup").store
    client = Minio(
        store.endpoint,
        store.access_key,
        str.__str__(store.secret_key),
        region=store.region,
        http_client=http_pool(store),
    )
    for run in (RUN, OTHER.run):
        put: Any = client._put_object
        put(store.bucket, f"{run}/weights/kept", b"weights", headers={})
    return secured


@pytest.mark.parametrize("user", ["client", "learner", "telemetry", "offline", "cleanup", "operator", "setup"])
def test_the_table_is_what_happens(prepared: Secured, user: str):
    said = {operation: may for (operation, column), may in the_table().items() if column == user}
    name = "alice" if user == "client" else user
    found = Tries(prepared, name).everything()
    wrong = {what: may for what, may in found.items() if said.get(what) is not may}
    assert not wrong, f"{user} against the table: {wrong}"
    assert said.keys() == found.keys()


def test_nobody_gets_in_without_a_password(prepared: Secured):
    """Not without a user, and not in the clear."""
    for settings in (
        replace(prepared.broker("alice"), username=None, password=None, security_protocol="ssl"),
        replace(prepared.broker("alice"), username=None, password=None, ca=""),
    ):
        admin = AdminClient({**admin_options(settings), "socket.timeout.ms": 2000}, logger=RateLimitedLog())
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=3)
