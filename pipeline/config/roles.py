"""Settings of the roles: learner, client, telemetry, clean-up, commands, replay, demo."""

from dataclasses import dataclass, field


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
    dead_letters_per_s: float = 20.0
    """Dead letters written a second in the long run, 256 at once; beyond that, refused records are counted only."""
    heartbeat_s: float = 0.1
    """How often the learner announces how far it has come, in seconds."""
    metrics_port: int = 0
    """Port of the Prometheus metrics; 0: none."""
    trackers: list[str] = field(default_factory=lambda: ["tensorboard"])
    """Where the figures of training are written at each version: tensorboard (in the run's folder), wandb."""
    stale_warning: float = 0.2
    """A warning is logged when an actor loses more than this share of its transitions to staleness; 1: never."""
    actors: str = ""
    """Mark of the key that actors' names are checked by, which a learner fills in from its secret file; empty: they are
    not checked."""
    torch_threads: int = 1
    """Threads that torch may use."""
    device: str = "cpu"
    """Where updates are computed: cpu, cuda, or cuda:N."""


@dataclass
class ClientConfig:
    """The connector and the acting loop."""

    actor: str = ""
    """The actor's name, behind that of the client in the secret file; empty: host name and process id."""
    seed: int = 0
    """Seed of the environments and of exploration, together with the actor's name."""
    chunk_steps: int = 256
    """A chunk is cut after this many transitions."""
    chunk_bytes: int = 400_000
    """A chunk is cut before it grows beyond this size, in bytes."""
    chunk_age_s: float = 1.0
    """A chunk is cut when its oldest transition has waited this long, in seconds; PPO cuts by size only."""
    adapt_chunks: bool = False
    """Whether chunks get smaller and younger, and pace() keeps nearer to the learner, while it refuses some of this
    client's transitions as stale. PPO has no use for it."""
    queue_bytes: int = 67_108_864
    """Bound on what waits to be acknowledged by the broker, in bytes."""
    queue_policy: str = "drop_oldest"
    """What happens when the queue is full: block, drop_oldest or drop_newest. PPO always blocks."""
    max_lead: int = 4_000
    """Transitions that this client may be ahead of the learner before pace() waits; 0: free-running."""
    first_weights_timeout_s: float = 30.0
    """How long the learner's first answer and the first weights are waited for, in seconds."""
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
    """Port of the Prometheus metrics; 0: none."""
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
    every_s: float = 0.0
    """How often `pipeline cleanup` does it again, in seconds; 0: it does it once."""


@dataclass
class CommandConfig:
    """Commands to the learner: `pipeline quicksave`, `pipeline set`."""

    timeout_s: float = 30.0
    """How long the learner's confirmation is waited for, in seconds."""


@dataclass
class ReplayConfig:
    """`pipeline replay`: which part of a recorded run, and what to make of it."""

    topic: str = "samples"
    """samples, episodes, versions, commands, heartbeats, progress, telemetry or dead-letters."""
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
