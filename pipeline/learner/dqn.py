"""The training node of DQN and Rainbow: a replay buffer, and updates in a fixed ratio to accepted transitions."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from numpy.typing import NDArray

from pipeline.algorithms import DQN, LinearSchedule, ObservationStatistics
from pipeline.algorithms.settings import DQNSettings
from pipeline.algorithms.spec import dqn_settings
from pipeline.broker import OrderedReader, Record
from pipeline.buffers import BufferState, PrioritizedBuffer, UniformBuffer
from pipeline.config import AlgorithmConfig, PipelineConfig
from pipeline.errors import ConfigError
from pipeline.experience import Chunk, Identity, NStepReader, RewardTransform
from pipeline.learner.durable.window import LogWindow, Refill, refill
from pipeline.learner.intake.arrival import Examiner
from pipeline.learner.node import TrainingNode
from pipeline.learner.parameters import learning_rate
from pipeline.learner.ratio import TrainingRatio
from pipeline.weights import below
from pipeline.wire import RecordHeaders


class DQNTrainingNode(TrainingNode):
    """DQN with n-step returns from a replay buffer, and what extends it, up to Rainbow (reference 001).

    Samples of the last ``learner.version_window`` versions are accepted. After ``learning_starts`` accepted
    transitions there is one update for every ``transitions_per_update`` more, and a version every
    ``updates_per_version`` updates.

    Where ``algorithm.normalise_observations`` says so, networks normalise by statistics over the observations of every
    accepted chunk. They take effect with the first update and with every version, as part of its weights.

    Where ``algorithm.prioritised`` says so, transitions are drawn by priority, and each update gives those of its batch
    new ones.

    A checkpoint holds which records of the log the buffer was made of, not the buffer, unless
    ``learner.checkpoint_buffer`` says so.
    """

    def __init__(self, config: PipelineConfig) -> None:
        super().__init__(config)
        learner = config.learner
        self.algorithm = DQN(self.layout, _checked(config.algorithm), learner.seed, learner.device)
        self._empty()

    def insert(self, headers: RecordHeaders, chunk: Chunk, record: Record) -> None:
        row = self.buffer.written
        if self.window.due(row):
            self.window.anchor(row, self.reader.state())
        self.window.note(record.partition, record.offset, row)
        if self.statistics is not None:
            self.statistics.update(chunk.columns)
        self.buffer.insert(self.reader.read(headers.identity, chunk, self.layout))
        self.metrics.buffer.set(len(self.buffer))

    def train_due(self) -> bool:
        accepted = self.accounting.accepted_transitions
        if accepted < self.config.algorithm.learning_starts or len(self.buffer) < self.settings.batch_size:
            return False
        return self.free_running or self.updates < self._ratio.due(accepted)

    def train_step(self) -> bool:
        settings = self.settings
        buffer = self.buffer
        rate = learning_rate(settings, self.accounting.accepted_transitions)
        cut = (self.updates + 1) % settings.updates_per_version == 0
        figures = {"train/learning_rate": rate}
        if self.statistics is not None and self.updates == 0:
            self.algorithm.set_normalisation(self.statistics)
        if isinstance(buffer, PrioritizedBuffer):
            prioritised = settings.prioritised
            buffer.beta = LinearSchedule(prioritised.beta, 1.0, prioritised.beta_updates)(self.updates)
            figures["train/beta"] = buffer.beta
        batch = buffer.sample(settings.batch_size)
        found = self.algorithm.update(batch, metrics=cut, learning_rate=rate)
        priorities = self.algorithm.priorities
        if isinstance(buffer, PrioritizedBuffer) and priorities is not None:
            buffer.update_priorities(batch.rows, priorities)
        if cut:
            self.figures = figures | {f"train/{name}": value for name, value in found.items()}
        if self.statistics is not None and cut:
            self.algorithm.set_normalisation(self.statistics)
        return cut

    def configure(self, settings: AlgorithmConfig) -> None:
        learning, prioritised = _checked(settings), settings.prioritised
        if isinstance(self.buffer, PrioritizedBuffer):
            self.buffer.configure(prioritised.alpha, prioritised.epsilon)
        self.algorithm.configure(learning)
        self._ratio.change(settings.transitions_per_update, self.accounting.accepted_transitions)

    def exploration(self) -> float:
        exploration = self.settings.exploration
        schedule = LinearSchedule(exploration.start, exploration.end, exploration.transitions)
        return min(1.0, max(0.0, schedule(self.accounting.accepted_transitions)))

    def weights(self) -> dict[str, NDArray[Any]]:
        return self.algorithm.weights()

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        buffer = self.buffer.state()
        window, runs = self.window.state()
        tensors: dict[str, NDArray[Any]] = {}
        for part, arrays in (
            ("dqn", self.algorithm.state()),
            ("reader", self.reader.state()),
            ("buffer", buffer.arrays),
            ("window", window),
            ("statistics", self.statistics.state() if self.statistics is not None else {}),
            ("contents", self.buffer.contents() if self.config.learner.checkpoint_buffer else {}),
        ):
            tensors |= {f"{part}/{name}": array for name, array in arrays.items()}
        values = {"written": buffer.written, "generator": buffer.generator, "window": runs}
        return tensors, values | {"ratio": self._ratio.state()}

    def load_state(self, tensors: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> None:
        self._empty()
        self.load_origin(tensors, values)
        self.window.load_state(below("window", tensors), values["window"])
        self._ratio.load_state(values["ratio"])
        self._kept = BufferState(int(values["written"]), values["generator"], below("buffer", tensors))
        self._kept_reader = below("reader", tensors)
        self._kept_contents = below("contents", tensors)

    def refill(self, source: OrderedReader) -> Refill | None:
        kept, self._kept = self._kept, None
        if kept is None:
            return None
        contents, self._kept_contents = self._kept_contents, {}
        if contents:
            self.buffer.load_contents(contents)
            self.buffer.load_state(kept)
            self.reader.load_state(self._kept_reader)
            return None
        decode = partial(_decoded, self.examiner())
        report = refill(self.window, kept.written, source, decode, self.reader, self.buffer, self.layout)
        self.window = report.window
        self.buffer.load_state(kept, exact=report.exact)
        self.reader.load_state(self._kept_reader)
        return report

    def load_origin(self, tensors: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> None:
        self.algorithm.load_state(below("dqn", tensors))
        if self.statistics is not None:
            self.statistics.load_state(below("statistics", tensors))

    def load_weights(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        self.algorithm.load_weights(tensors)
        # What was due is not known to the update: go on from here.
        self._ratio.anchor(self.accounting.accepted_transitions, self.updates)

    def _empty(self) -> None:
        algorithm = self.config.algorithm
        rewards = RewardTransform(algorithm.reward_scale, algorithm.reward_clip)
        self.reader = NStepReader(algorithm.n_step, algorithm.gamma, rewards=rewards)
        self.buffer = self._new_buffer()
        self.window = LogWindow(algorithm.buffer_rows)
        self._ratio = TrainingRatio(self.settings.transitions_per_update, algorithm.learning_starts)
        self.statistics = ObservationStatistics(self.layout) if algorithm.normalise_observations else None
        self._kept: BufferState | None = None
        self._kept_reader: Mapping[str, NDArray[Any]] = {}
        self._kept_contents: Mapping[str, NDArray[Any]] = {}

    def _new_buffer(self) -> UniformBuffer | PrioritizedBuffer:
        rows, seed = self.config.algorithm.buffer_rows, self.config.learner.seed
        prioritised = self.settings.prioritised
        if not prioritised.enabled:
            return UniformBuffer(rows, self.layout, seed)
        return PrioritizedBuffer(
            rows, self.layout, seed, alpha=prioritised.alpha, beta=prioritised.beta, epsilon=prioritised.epsilon
        )


def _checked(settings: AlgorithmConfig) -> DQNSettings:
    if 2 * settings.batch_size > settings.buffer_rows:
        # A transition takes two rows at most: a buffer with fewer might never hold a batch.
        raise ConfigError(
            f"algorithm.batch_size is {settings.batch_size}, but has to be at most half of algorithm.buffer_rows, "
            f"{settings.buffer_rows}"
        )
    return dqn_settings(settings)


def _decoded(examiner: Examiner, record: Record) -> tuple[Identity, Chunk] | None:
    arrival = examiner.examine(record)
    if arrival.headers is None or arrival.chunk is None:
        return None
    return arrival.headers.identity, arrival.chunk
