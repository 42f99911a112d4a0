"""The training node of DQN and Rainbow: a replay buffer, and updates in a fixed ratio to accepted transitions."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from numpy.typing import NDArray

from pipeline.algorithms import DQN, LinearSchedule
from pipeline.algorithms.spec import dqn_settings
from pipeline.broker import OrderedReader, Record
from pipeline.buffers import BufferState, PrioritizedBuffer, UniformBuffer
from pipeline.config import PipelineConfig
from pipeline.experience import Chunk, Identity, NStepReader
from pipeline.learner.arrival import Examiner
from pipeline.learner.node import TrainingNode
from pipeline.learner.window import LogWindow, Refill, refill
from pipeline.weights import below
from pipeline.wire import RecordHeaders


class DQNTrainingNode(TrainingNode):
    """DQN with n-step returns from a replay buffer, and what extends it, up to Rainbow (reference 001).

    Samples of the last ``learner.version_window`` versions are accepted. After ``learning_starts`` accepted
    transitions there is one update for every ``transitions_per_update`` more, and a version every
    ``updates_per_version`` updates.

    Where ``algorithm.prioritised`` says so, transitions are drawn by priority, and each update gives those of its batch
    new ones.

    A checkpoint holds which records of the log the buffer was made of, not the buffer, unless
    ``learner.checkpoint_buffer`` says so.
    """

    def __init__(self, config: PipelineConfig) -> None:
        super().__init__(config)
        learner = config.learner
        self.algorithm = DQN(self.layout, dqn_settings(config.algorithm), learner.seed, learner.device)
        prioritised = config.algorithm.prioritised
        self._beta = LinearSchedule(prioritised.beta, 1.0, prioritised.beta_updates)
        self._empty()

    def insert(self, headers: RecordHeaders, chunk: Chunk, record: Record) -> None:
        row = self.buffer.written
        if self.window.due(row):
            self.window.anchor(row, self.reader.state())
        self.window.note(record.partition, record.offset, row)
        self.buffer.insert(self.reader.read(headers.identity, chunk, self.layout))
        self.metrics.buffer.set(len(self.buffer))

    def train_due(self) -> bool:
        algorithm = self.config.algorithm
        ready = self.accounting.accepted_transitions - algorithm.learning_starts
        if ready < 0 or len(self.buffer) < algorithm.batch_size:
            return False
        return self.free_running or self.updates < ready // algorithm.transitions_per_update

    def train_step(self) -> bool:
        algorithm = self.config.algorithm
        buffer = self.buffer
        if isinstance(buffer, PrioritizedBuffer):
            buffer.beta = self._beta(self.updates)
        batch = buffer.sample(algorithm.batch_size)
        self.algorithm.update(batch)
        priorities = self.algorithm.priorities
        if isinstance(buffer, PrioritizedBuffer) and priorities is not None:
            buffer.update_priorities(batch.rows, priorities)
        return (self.updates + 1) % algorithm.updates_per_version == 0

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
            ("contents", self.buffer.contents() if self.config.learner.checkpoint_buffer else {}),
        ):
            tensors |= {f"{part}/{name}": array for name, array in arrays.items()}
        return tensors, {"written": buffer.written, "generator": buffer.generator, "window": runs}

    def load_state(self, tensors: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> None:
        self._empty()
        self.algorithm.load_state(below("dqn", tensors))
        self.window.load_state(below("window", tensors), values["window"])
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

    def load_weights(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        self.algorithm.load_weights(tensors)

    def _empty(self) -> None:
        algorithm = self.config.algorithm
        self.reader = NStepReader(algorithm.n_step, algorithm.gamma)
        self.buffer = self._new_buffer()
        self.window = LogWindow(algorithm.buffer_rows)
        self._kept: BufferState | None = None
        self._kept_reader: Mapping[str, NDArray[Any]] = {}
        self._kept_contents: Mapping[str, NDArray[Any]] = {}

    def _new_buffer(self) -> UniformBuffer | PrioritizedBuffer:
        rows, seed = self.config.algorithm.buffer_rows, self.config.learner.seed
        prioritised = self.config.algorithm.prioritised
        if not prioritised.enabled:
            return UniformBuffer(rows, self.layout, seed)
        return PrioritizedBuffer(
            rows, self.layout, seed, alpha=prioritised.alpha, beta=prioritised.beta, epsilon=prioritised.epsilon
        )


def _decoded(examiner: Examiner, record: Record) -> tuple[Identity, Chunk] | None:
    arrival = examiner.examine(record)
    if arrival.headers is None or arrival.chunk is None:
        return None
    return arrival.headers.identity, arrival.chunk
