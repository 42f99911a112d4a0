"""Settings of what is learned, and how."""

from dataclasses import dataclass, field


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
class PPOConfig:
    """Proximal policy optimisation (Schulman et al., 2017)."""

    rollout_steps: int = 128
    """Steps of each sub-environment in one iteration; connectors tell it to their loops."""
    max_rollout: int = 65_536
    """A client's rollout counts as complete at this many transitions; what it sends beyond them is refused."""
    epochs: int = 4
    """Passes over the transitions of an iteration."""
    minibatch_size: int = 256
    """Transitions in one gradient step."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation (Schulman et al., 2016)."""
    clip: float = 0.2
    """How far the probability ratio may move before its gradient is cut."""
    clip_decay_transitions: int = 0
    """Over how many accepted transitions the clip falls linearly to 0; 0: it stays."""
    value_clip: float = 0.0
    """How far a value may move from that of the acting version before its gradient is cut; 0: no clipping."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    normalise_advantages: bool = True
    """Whether each minibatch's advantages are brought to mean 0 and deviation 1."""
    target_kl: float = 0.0
    """An iteration's training ends at the first minibatch that finds the policy moved further than 1.5 times this; 0:
    never."""


@dataclass
class SyncConfig:
    """Synchronous training: which clients an iteration waits for."""

    clients: int = 1
    """Clients that take part; once so many do, further ones are refused."""
    min_clients: int = 1
    """With fewer, the learner waits `discovery_s` for others and then ends the run."""
    discovery_s: float = 60.0
    """How long the learner waits for `clients` clients to register before it begins with those it has, in seconds."""
    client_timeout_s: float = 15.0
    """A client is lost after this many seconds without a heartbeat, or, while its rollout is waited for, without
    another transition."""
    collect_fraction: float = 1.0
    """Once this fraction of the clients' rollouts is complete, what has arrived is trained on after
    `collect_grace_s`; 1: all are waited for."""
    collect_grace_s: float = 1.0
    """How long the rest is waited for after that, in seconds."""
    on_lost_client: str = "continue"
    """continue with the others, or stop the run."""


@dataclass
class AlgorithmConfig:
    """What is learned, and how."""

    name: str = "dqn"
    """dqn, rainbow (dqn with the settings of conf/algorithm/rainbow.yaml), or ppo."""
    hidden: list[int] = field(default_factory=lambda: [128, 128])
    """Widths of the hidden layers."""
    activation: str = "relu"
    """What follows each hidden layer: relu or tanh."""
    network: str = "mlp"
    """How image columns (three axes, uint8 or bool) are read: mlp (as numbers), or by convolutions: nature, impala, or,
    for images of ten pixels or so, minatar."""
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
    lr_decay_transitions: int = 0
    """Over how many accepted transitions the learning rate falls linearly to 0; 0: it stays."""
    adam_eps: float = 1e-8
    """Adam's epsilon."""
    batch_size: int = 128
    """Transitions in one update."""
    normalise_observations: bool = False
    """Whether Box observations of floats are brought to mean 0 and deviation 1 by what the learner has applied; the
    statistics are part of the weights."""
    reward_scale: float = 1.0
    """Rewards are multiplied by this before they are learned from; the log holds them as they were."""
    reward_clip: float = 0.0
    """Scaled rewards are then brought within plus and minus this; 0: they are not."""
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
    ppo: PPOConfig = field(default_factory=PPOConfig)
    """PPO."""
    sync: SyncConfig = field(default_factory=SyncConfig)
    """Which clients an iteration of PPO waits for."""
