"""A one-node Apache Kafka in KRaft mode: broker and controller in one JVM, on loopback.

Without a folder of secrets it lets everybody in. With one, clients show a password (SCRAM-SHA-512 over TLS) and may do
what rules allow; broker and controller know each other by the broker's certificate.
"""

import hashlib
import os
import shutil
import ssl
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from pipeline.resources import local_services_folder
from pipeline.secrets.folder import BROKER_NAME, SETUP, SecretsFolder
from pipeline.services.asking import HOST, broker_answers, free_port
from pipeline.services.cache import cached, fetched
from pipeline.services.process import Command, Service
from pipeline.services.tools import find_java, find_maven, missing_tools, run_tool
from pipeline.tls import client_context

READY_SECONDS = 90.0
MAX_MESSAGE_BYTES = 2 * 1024 * 1024
JVM_OPTIONS = {"KAFKA_HEAP_OPTS": "-Xms256m -Xmx512m", "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+UseSerialGC"}
"""The JVM's options, by the environment variables that replace them: those of Kafka's own scripts."""

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
num.partitions=4
message.max.bytes={max_message_bytes}
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=16777216
"""

_OPEN = """\
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
"""

REAUTHENTICATE_MS = 300_000
"""After this long at most an open connection has to show its password again, so a changed one reaches it."""

_SECURE = """\
listeners=CLIENTS://{host}:{port},INTERNAL://{host}:{internal_port},CONTROLLER://{host}:{controller_port}
advertised.listeners=CLIENTS://{host}:{port},INTERNAL://{host}:{internal_port}
listener.security.protocol.map=CLIENTS:SASL_SSL,INTERNAL:SSL,CONTROLLER:SSL
inter.broker.listener.name=INTERNAL
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.clients.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
connections.max.reauth.ms={reauthenticate_ms}
ssl.keystore.type=PEM
ssl.keystore.location={pem}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
listener.name.internal.ssl.client.auth=required
listener.name.controller.ssl.client.auth=required
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=false
super.users=User:CN={broker_name};User:{setup}
"""

_LOGGING = """\
shutdownHook=disable
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{ISO8601} %p %c: %m%n
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
logger.config.name=org.apache.kafka.common.config.AbstractConfig
logger.config.level=WARN
logger.kafkaconfig.name=kafka.server.KafkaConfig
logger.kafkaconfig.level=WARN
"""


def fetch_jars() -> Path:
    """The folder with Kafka's jars, resolved by Maven from ``deploy/local/pom.xml`` on first use.

    Raises:
        MissingToolError: the jars are not in the cache, and Maven or Java is not installed.
        ServiceError: Maven failed.
    """
    return fetched(_cache_name(), _resolve)


def missing_for_kafka() -> list[str]:
    """The tools that Kafka's start on this machine lacks: one sentence each."""
    return missing_tools(find_java, *([] if cached(_cache_name()) else [find_maven]))


class LocalKafka(Service):
    """Apache Kafka in one child process.

    Args:
        folder: ``folder/data`` holds the log, ``folder/*.properties`` the settings.
        log: the server's own log file.
        port: of the broker, where it is free; None takes any.
        secrets: certificates and the set-up's first password; None: whoever comes is let in.
    """

    def __init__(self, folder: Path, log: Path, port: int | None = None, secrets: SecretsFolder | None = None) -> None:
        super().__init__("Kafka", log, READY_SECONDS)
        self._folder = folder
        self.port = free_port(port)
        self._internal_port = free_port()
        self._controller_port = free_port()
        self._secrets = secrets
        self._context: ssl.SSLContext | None = None

    @property
    def address(self) -> str:
        """The bootstrap address, ``host:port``."""
        return f"{HOST}:{self.port}"

    def answers(self) -> bool:
        """Whether the broker answers and counts itself among the live ones."""
        if self._secrets is None:
            return broker_answers(self.address)
        if self._context is None:
            self._context = client_context(self._secrets.authority())
            self._context.load_cert_chain(self._secrets.broker_pem)
        # With the broker's own certificate, for which it needs no password.
        return broker_answers(f"{HOST}:{self._internal_port}", self._context)

    def prepare(self) -> Command:
        """Write the settings, and format the storage on first use."""
        self._format()
        options = [option for name, usual in JVM_OPTIONS.items() for option in (os.environ.get(name) or usual).split()]
        return Command(self._java(*options, "kafka.Kafka", str(self._properties)))

    def _format(self) -> None:
        data = self._folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        names: dict[str, object] = {
            "host": HOST,
            "port": self.port,
            "internal_port": self._internal_port,
            "controller_port": self._controller_port,
            "data": data.as_posix(),
            "max_message_bytes": MAX_MESSAGE_BYTES,
            "reauthenticate_ms": REAUTHENTICATE_MS,
            "broker_name": BROKER_NAME,
            "setup": SETUP,
        }
        template = _PROPERTIES + (_OPEN if self._secrets is None else _SECURE)
        if self._secrets is not None:
            names |= {
                "pem": self._secrets.broker_pem.resolve().as_posix(),
                "ca": self._secrets.broker_ca.resolve().as_posix(),
            }
        self._properties.write_text(template.format(**names))
        self._logging.write_text(_LOGGING)
        if (data / "meta.properties").exists():
            return
        # An id that begins with "-" would be read as an option.
        cluster = "k" + urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties)]
        if self._secrets is not None:
            tool.append(f"@{self._secrets.format_args.resolve()}")  # a password in a process list is none
        run_tool(
            self._java("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *tool),
            "Formatting Kafka's storage",
        )

    def _java(self, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self._logging}"
        return [find_java(), logging, "-cp", str(fetch_jars() / "*"), *arguments]

    @property
    def _properties(self) -> Path:
        return self._folder / "server.properties"

    @property
    def _logging(self) -> Path:
        return self._folder / "log4j2.properties"


def _cache_name() -> str:
    # The entry's name follows the pom: another version is another entry.
    digest = hashlib.sha256(_pom().read_bytes()).hexdigest()
    return f"kafka-{digest[:16]}"


def _pom() -> Path:
    return local_services_folder() / "pom.xml"


def _resolve(folder: Path) -> None:
    find_java()
    # Maven writes a `target` folder beside the pom it is given, and an installed copy's folder may
    # be read-only.
    pom = folder / "pom.xml"
    shutil.copyfile(_pom(), pom)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    run_tool([find_maven(), "-B", "-q", "-f", str(pom), *goal], "Fetching Kafka's jars")
