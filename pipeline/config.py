"""Every setting of the pipeline, with a sentence each, and how a configuration is loaded.

The dataclasses are Hydra structured configs: the files under ``conf/`` give the values, these give the types. A
misspelt key or a wrong type is refused at launch, with the nearest valid name.
"""

import ast
import difflib
import inspect
import itertools
import sys
from dataclasses import dataclass, field
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.errors import ConfigError
from pipeline.resources import conf_folder


@dataclass
class ServicesConfig:
    """Which broker and object store are used."""

    kind: str = "embedded"
    """embedded (in-process Kafka protocol and S3), local (Apache Kafka and MinIO), or external (yours)."""
    folder: str = ".services"
    """Data, logs and addresses of the embedded or local services."""
    detach: bool = False
    """`services up` returns once the services answer, instead of staying in the foreground."""


@dataclass
class KafkaConfig:
    """The broker."""

    bootstrap_servers: str = ""
    """host:port list; empty: the services that run in services.folder."""
    partitions: int = 4
    """Partitions of the samples and episodes topics, when the run's topics are created."""
    replication: int = 1
    """Replication factor of the topics, when they are created."""
    retention_ms: int = 604_800_000
    """How long samples and episodes are kept, in milliseconds."""
    timeout_s: float = 10.0
    """How long a first answer of the broker is waited for, in seconds."""
    producer: dict[str, Any] = field(default_factory=dict[str, Any])
    """Raw librdkafka settings for producers, passed through as they are."""
    consumer: dict[str, Any] = field(default_factory=dict[str, Any])
    """Raw librdkafka settings for consumers, passed through as they are."""


@dataclass
class StoreConfig:
    """The S3 object store that holds the weights."""

    endpoint: str = ""
    """host:port; empty: the services that run in services.folder, or what the run's manifest names."""
    bucket: str = "rl-weights"
    """The bucket that weights are put into."""
    secure: bool = False
    """Whether the store is spoken to over TLS."""
    region: str = "us-east-1"
    """The store's region."""


@dataclass
class EnvironmentConfig:
    """What the actors act in."""

    id: str = "CartPole-v1"
    """The Gymnasium id."""
    envs: int = 8
    """Sub-environments in one client process."""
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    """Passed to gymnasium.make_vec as they are."""
    action_masks: bool = False
    """Whether the environment's info tells with `action_mask` which actions are allowed, as Taxi's does."""
    solved_return: float = 475.0
    """The average greedy return from which on the environment counts as solved."""


@dataclass
class ExplorationConfig:
    """The ε-greedy schedule, over transitions that the learner has accepted; clients get it with the run."""

    start: float = 1.0
    """ε before the first transition."""
    end: float = 0.05
    """ε after `transitions` transitions."""
    transitions: int = 10_000
    """Over how many accepted transitions ε falls linearly from start to end."""


@dataclass
class CategoricalConfig:
    """Distributions of returns instead of their means (Bellemare et al., 2017)."""

    enabled: bool = False
    """Whether the network learns distributions."""
    atoms: int = 51
    """Points of each action's distribution, at least 2."""
    v_min: float = -10.0
    """The least return of a distribution, discounted as the algorithm does; lesser ones count as this."""
    v_max: float = 10.0
    """The largest return of a distribution; larger ones count as this."""


@dataclass
class PrioritisedConfig:
    """Transitions drawn by how wrong their values were (Schaul et al., 2016)."""

    enabled: bool = False
    """Whether transitions are drawn by priority; otherwise all alike."""
    alpha: float = 0.5
    """How much priorities count; 0: not at all."""
    beta: float = 0.4
    """How far importance weights make up for the priorities at the first update; 1: in full."""
    beta_updates: int = 100_000
    """Over how many updates beta rises linearly to 1."""
    epsilon: float = 1e-6
    """Added to each priority, so that none is 0."""


@dataclass
class AlgorithmConfig:
    """What is learned, and how."""

    name: str = "dqn"
    """What the algorithm is called in run names and lists, dqn or rainbow; the settings below say what it does."""
    hidden: list[int] = field(default_factory=lambda: [128, 128])
    """Widths of the hidden layers."""
    network: str = "mlp"
    """How image columns (three axes, uint8 or bool) are read: mlp (as numbers), or by convolutions: nature, impala."""
    dueling: bool = False
    """Value and advantages in two streams (Wang et al., 2016)."""
    noisy: bool = False
    """Linear layers with learned noise, which explores beside ε (Fortunato et al., 2018)."""
    noisy_std: float = 0.5
    """The noise at the beginning, before it is divided by the root of a layer's inputs."""
    categorical: CategoricalConfig = field(default_factory=CategoricalConfig)
    """Distributions of returns."""
    prioritised: PrioritisedConfig = field(default_factory=PrioritisedConfig)
    """Prioritised replay."""
    huber_delta: float = 1.0
    """TD error beyond which the loss grows linearly; 0: squared throughout. Distributions have no use for it."""
    double: bool = True
    """Double Q-learning (van Hasselt et al., 2016)."""
    n_step: int = 3
    """Steps of the n-step return."""
    gamma: float = 0.99
    """Discount per step; an n-step target is discounted by gamma to the n."""
    lr: float = 2e-3
    """Adam's learning rate."""
    adam_eps: float = 1e-8
    """Adam's epsilon."""
    batch_size: int = 128
    """Transitions in one update."""
    grad_clip: float = 10.0
    """Largest gradient norm; 0: no clipping."""
    target_interval: int = 1
    """Updates between two moves of the target network towards the online network."""
    target_rate: float = 0.01
    """Share of the way that each move takes; 1 copies the online network (Mnih et al., 2015)."""
    buffer_rows: int = 100_000
    """Rows of the replay buffer; one observation each."""
    learning_starts: int = 1_000
    """Accepted transitions before the first update."""
    transitions_per_update: int = 4
    """Accepted transitions for one update: training is triggered by counts, never by the clock. 0: free-running, an
    update whenever no sample waits; the journal then holds how updates and samples alternated."""
    updates_per_version: int = 100
    """Updates between two published versions."""
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    """The ε schedule."""


@dataclass
class LearnerConfig:
    """The training node."""

    seed: int = 0
    """Seed of networks and sampling."""
    version_window: int = 3
    """Samples of this many newest versions are accepted, the current one included; older ones are rejected."""
    max_transitions: int = 0
    """The run ends after this many accepted transitions; 0: it goes on until stopped."""
    checkpoint_every: int = 20
    """Versions between two checkpoints; 0: none."""
    keep_checkpoints: int = 3
    """How many of the newest checkpoints stay on disk; at least 2, so that a damaged one has one before it."""
    checkpoint_buffer: bool = False
    """Whether checkpoints hold the replay buffer itself, for topics that forget sooner than the buffer does."""
    require_exact: bool = False
    """Whether a restart that cannot reach the newest version's very weights is an error; otherwise it is said."""
    load: str = ""
    """A checkpoint's folder that a new run starts from; a run that has versions already goes on with its own."""
    ledger: str = ""
    """A file that gets one line per judged record, for audits: identity and verdict; empty: none."""
    max_chunk_bytes: int = 900_000
    """Records above this size are refused undecoded, in bytes."""
    prefetch_chunks: int = 64
    """Decoded chunks that may wait between ingest and training."""
    heartbeat_s: float = 0.1
    """How often the learner announces how far it has come, in seconds."""
    metrics_port: int = 0
    """Port of the Prometheus metrics on loopback; 0: none."""
    torch_threads: int = 1
    """Threads that torch may use."""


@dataclass
class ClientConfig:
    """The connector and the acting loop."""

    actor: str = ""
    """The actor's name; empty: host name and process id."""
    seed: int = 0
    """Seed of the environments and of exploration."""
    chunk_steps: int = 256
    """A chunk is cut after this many transitions."""
    chunk_bytes: int = 400_000
    """A chunk is cut before it grows beyond this size, in bytes."""
    chunk_age_s: float = 1.0
    """A chunk is cut when its oldest transition has waited this long, in seconds."""
    queue_bytes: int = 67_108_864
    """Bound on what waits to be acknowledged by the broker, in bytes."""
    queue_policy: str = "drop_oldest"
    """What happens when the queue is full: block, drop_oldest or drop_newest."""
    max_lead: int = 4_000
    """Transitions that this client may be ahead of the learner before pace() waits; 0: free-running."""
    first_weights_timeout_s: float = 30.0
    """How long the first weights are waited for, in seconds."""
    heartbeat_s: float = 1.0
    """How often the client says that it lives, in seconds."""
    ledger: str = ""
    """A file that gets a line for every chunk produced and every one acknowledged, for audits; empty: none."""
    max_episodes: int = 0
    """The acting loop ends after this many episodes; 0: when the run does."""
    torch_threads: int = 1
    """Threads that torch may use."""


@dataclass
class TelemetryConfig:
    """The stream processor."""

    window_episodes: int = 50
    """Episodes in one window of the moving averages."""
    update_s: float = 2.0
    """How often a window is written and the figure saved, in seconds."""
    figure: str = ""
    """Where the figure is saved; empty: saves/<run>/telemetry.png."""
    metrics_port: int = 0
    """Port of the Prometheus metrics on loopback; 0: none."""
    save_best: bool = True
    """Whether the learner is told to keep the version that the best window of episodes was played with."""


@dataclass
class CleanUpConfig:
    """Which weights stay in the store: pinned ones and those of checkpoints always do."""

    by_learner: bool = True
    """Whether the learner removes old weights itself, after each checkpoint; otherwise `pipeline cleanup` does."""
    keep_last: int = 50
    """This many newest versions stay."""
    keep_every: int = 100
    """Versions whose number is a multiple of this stay; 0: none for that reason."""


@dataclass
class CommandConfig:
    """Commands to the learner: `pipeline quicksave`."""

    timeout_s: float = 30.0
    """How long the learner's confirmation is waited for, in seconds."""


@dataclass
class ReplayConfig:
    """`pipeline replay`: which part of a recorded run, and what to make of it."""

    topic: str = "samples"
    """samples, episodes, versions, commands, heartbeats, telemetry or dead-letters."""
    partition: int = -1
    """One partition of the topic; -1: all."""
    offsets: str = ""
    """A range of offsets, such as 100..200 (the last one included), 100.. or ..200; empty: all."""
    time: str = ""
    """A range of log times, ISO 8601 or unix milliseconds, such as 2026-01-01T12:00..2026-01-01T13:00; empty: all."""
    versions: str = ""
    """A range of version numbers, such as 412..480; empty: all."""
    limit: int = 0
    """At most this many records; 0: all."""
    json: bool = False
    """Whether records are shown as JSON, one a line."""
    everything: bool = False
    """Whether an export also holds the chunks that the learner did not accept, with their verdicts."""
    out: str = ""
    """The file that an export is written to; empty: saves/<run>/export.parquet."""
    samples_topic: str = ""
    """Reads samples from this topic, a copy with the same partitions and offsets; empty: the run's own."""


@dataclass
class DemoConfig:
    """`pipeline demo`."""

    clients: int = 2
    """Client processes."""
    evaluation_episodes: int = 100
    """Greedy episodes that a version's average is taken over."""
    max_seconds: float = 240.0
    """Training time after which the demo gives up, in seconds."""
    seed: int = 0
    """Seed of the learner, the clients and the evaluation."""


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
    services: ServicesConfig = field(default_factory=ServicesConfig)
    """Broker and store."""
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


CHOICES = {
    "services.kind": ("embedded", "local", "external"),
    "client.queue_policy": ("block", "drop_oldest", "drop_newest"),
    "log_level": ("debug", "info", "warning", "error"),
    "algorithm.name": ("dqn", "rainbow"),
    "algorithm.network": ("mlp", "nature", "impala"),
    "replay.topic": ("samples", "episodes", "versions", "commands", "heartbeats", "telemetry", "dead-letters"),
}

POSITIVE = (
    "kafka.partitions",
    "kafka.replication",
    "environment.envs",
    "algorithm.n_step",
    "algorithm.batch_size",
    "algorithm.buffer_rows",
    "algorithm.updates_per_version",
    "algorithm.target_interval",
    "algorithm.categorical.atoms",
    "algorithm.prioritised.beta_updates",
    "learner.version_window",
    "learner.prefetch_chunks",
    "client.chunk_steps",
    "client.chunk_bytes",
    "client.queue_bytes",
    "telemetry.window_episodes",
    "learner.keep_checkpoints",
    "cleanup.keep_last",
    "demo.clients",
    "demo.evaluation_episodes",
)


def load_config(overrides: list[str] | None = None) -> PipelineConfig:
    """Compose the configuration from ``conf/`` and Hydra overrides.

    Args:
        overrides: such as ``["algorithm=dqn", "client.seed=3", "+kafka.producer.linger.ms=20"]``.

    Raises:
        ConfigError: an override names an unknown setting (the nearest valid one is named), has the wrong type, or a
            value is out of range.
    """
    ConfigStore.instance().store(name="schema", node=PipelineConfig)
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(conf_folder().resolve()), version_base=None):
            tree = compose("config", overrides=_open_mappings(overrides or []))
        config = cast(PipelineConfig, OmegaConf.to_object(tree))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explain(error, overrides or [])) from error
    _check_ranges(tree)
    return config


def settings() -> dict[str, str]:
    """Every setting's dotted name and its default, as text."""
    tree = OmegaConf.structured(PipelineConfig)
    return {name: str(OmegaConf.select(tree, name)) for name in _leaves(tree)}


def to_dict(config: PipelineConfig) -> dict[str, Any]:
    """The configuration as plain containers, for the manifest and the run folder."""
    return cast(dict[str, Any], OmegaConf.to_container(OmegaConf.structured(config)))


def from_dict(tree: dict[str, Any]) -> PipelineConfig:
    """The reverse of :func:`to_dict`.

    Raises:
        ConfigError: the tree holds an unknown setting or a wrong type.
    """
    try:
        merged = OmegaConf.merge(OmegaConf.structured(PipelineConfig), tree)
        return cast(PipelineConfig, OmegaConf.to_object(merged))
    except OmegaConfBaseException as error:
        message = str(error).splitlines()[0]
        raise ConfigError(f"The stored configuration does not fit this version: {message}") from error


OPEN_MAPPINGS = ("kafka.producer", "kafka.consumer", "environment.kwargs")


def _open_mappings(overrides: list[str]) -> list[str]:
    """Let ``kafka.producer.linger.ms=20`` set the one librdkafka key ``linger.ms``."""
    return [_as_mapping(override) for override in overrides]


def _as_mapping(override: str) -> str:
    name, equals, value = override.lstrip("+").partition("=")
    for prefix in OPEN_MAPPINGS:
        if equals and name.startswith(prefix + "."):
            return f"+{prefix}={{{name[len(prefix) + 1 :]}: {value}}}"
    return override


def _leaves(node: Any, prefix: str = "") -> list[str]:
    names: list[str] = []
    for key in node:
        name = f"{prefix}{key}"
        child = OmegaConf.select(node, str(key))
        names += _leaves(child, f"{name}.") if isinstance(child, DictConfig) and len(child) else [name]
    return names


def _explain(error: Exception, overrides: list[str]) -> str:
    valid = [*settings(), *OPEN_MAPPINGS]
    groups = sorted(path.name for path in conf_folder().iterdir() if path.is_dir())
    for override in overrides:
        name = override.lstrip("+~").partition("=")[0]
        known = name in groups or any(v == name or v.startswith(name + ".") for v in valid)
        if known or name.startswith(tuple(f"{prefix}." for prefix in OPEN_MAPPINGS)):
            continue
        near = difflib.get_close_matches(name, [*valid, *groups], n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else " `pipeline settings` lists what there is."
        return f"There is no setting {name!r}.{hint}"
    reasons = [str(error)] + ([str(error.__cause__).splitlines()[0]] if error.__cause__ else [])
    return "The configuration is refused: " + " ".join(" ".join(reasons).split())


def _check_ranges(tree: DictConfig) -> None:
    for name, choices in CHOICES.items():
        value = OmegaConf.select(tree, name)
        if value not in choices:
            raise ConfigError(f"{name}={value!r} is not one of {', '.join(choices)}.")
    for name in POSITIVE:
        value = OmegaConf.select(tree, name)
        if value < 1:
            raise ConfigError(f"{name}={value} must be at least 1.")


def documentation() -> dict[str, str]:
    """The sentence under each setting, by dotted name; read from this module's source."""
    module = ast.parse(inspect.getsource(sys.modules[__name__]))
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    return _documentation_of(classes, "PipelineConfig", "")


def _documentation_of(classes: dict[str, ast.ClassDef], name: str, prefix: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    body = classes[name].body
    for statement, following in itertools.pairwise(body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        dotted = f"{prefix}{statement.target.id}"
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            texts[dotted] = str(following.value.value)
        if isinstance(statement.annotation, ast.Name) and statement.annotation.id in classes:
            texts |= _documentation_of(classes, statement.annotation.id, f"{dotted}.")
    return texts
