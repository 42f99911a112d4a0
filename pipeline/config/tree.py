"""The whole configuration: one tree for every role."""

from dataclasses import dataclass, field

from pipeline.config.algorithm import AlgorithmConfig
from pipeline.config.environment import EnvironmentConfig
from pipeline.config.roles import (
    CleanUpConfig,
    ClientConfig,
    CommandConfig,
    DemoConfig,
    LearnerConfig,
    ReplayConfig,
    TelemetryConfig,
)
from pipeline.config.services import KafkaConfig, SecretsConfig, ServicesConfig, StoreConfig


@dataclass
class PipelineConfig:
    """The whole configuration: one tree for every role."""

    run: str = ""
    """The run's name; empty: a learner makes a new one, every other role takes the newest."""
    namespace: str = "rl"
    """First part of every topic's name."""
    secret: str = ""
    """A file with users and passwords of broker and store; empty: the services in services.folder."""
    saves: str = "saves"
    """The folder that run folders are made in."""
    log_level: str = "info"
    """debug, info, warning or error."""
    metrics_host: str = "127.0.0.1"
    """The address that Prometheus metrics are served on, where a role's metrics_port asks for them."""
    services: ServicesConfig = field(default_factory=ServicesConfig)
    """Broker and store."""
    secrets: SecretsConfig = field(default_factory=SecretsConfig)
    """`pipeline secrets`."""
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    """The broker."""
    store: StoreConfig = field(default_factory=StoreConfig)
    """The object store."""
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    """What the actors act in."""
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    """What is learned, and how."""
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    """The training node."""
    client: ClientConfig = field(default_factory=ClientConfig)
    """The connector and the acting loop."""
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    """The stream processor."""
    cleanup: CleanUpConfig = field(default_factory=CleanUpConfig)
    """Which weights stay in the store."""
    command: CommandConfig = field(default_factory=CommandConfig)
    """Commands to the learner."""
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    """`pipeline replay`."""
    demo: DemoConfig = field(default_factory=DemoConfig)
    """The demo."""
