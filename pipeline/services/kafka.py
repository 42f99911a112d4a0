"""A one-node Apache Kafka in KRaft mode: broker and controller in one JVM, on loopback."""

import hashlib
import shutil
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from pipeline.resources import local_services_folder
from pipeline.services.asking import HOST, broker_answers, free_port
from pipeline.services.cache import cached, fetched
from pipeline.services.process import Command, Service
from pipeline.services.tools import find_java, find_maven, missing_tools, run_tool

READY_SECONDS = 90.0
MAX_MESSAGE_BYTES = 2 * 1024 * 1024

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
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
    """

    def __init__(self, folder: Path, log: Path, port: int | None = None) -> None:
        super().__init__("Kafka", log, READY_SECONDS)
        self._folder = folder
        self.port = free_port(port)
        self._controller_port = free_port()

    @property
    def address(self) -> str:
        """The bootstrap address, ``host:port``."""
        return f"{HOST}:{self.port}"

    def answers(self) -> bool:
        """Whether the broker answers and counts itself among the live ones."""
        return broker_answers(self.address)

    def prepare(self) -> Command:
        """Write the settings, and format the storage on first use."""
        self._format()
        return Command(self._java("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "kafka.Kafka", str(self._properties)))

    def _format(self) -> None:
        data = self._folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        settings = _PROPERTIES.format(
            host=HOST,
            port=self.port,
            controller_port=self._controller_port,
            data=data.as_posix(),
            max_message_bytes=MAX_MESSAGE_BYTES,
        )
        self._properties.write_text(settings)
        self._logging.write_text(_LOGGING)
        if (data / "meta.properties").exists():
            return
        # An id that begins with "-" would be read as an option.
        cluster = "k" + urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties)]
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
