"""DQN's training node: a replay buffer, and updates in a fixed ratio to accepted transitions."""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.algorithms import DQN
from pipeline.algorithms.spec import dqn_settings
from pipeline.buffers import BufferState, UniformBuffer
from pipeline.config import PipelineConfig
from pipeline.experience import Chunk, NStepReader
from pipeline.learner.node import TrainingNode
from pipeline.wire import RecordHeaders

log = logging.getLogger(__name__)


class DQNTrainingNode(TrainingNode):
    """(Double) DQN with n-step returns from a uniform replay buffer (reference 001).

    Samples of the last ``learner.version_window`` versions are accepted. After ``learning_starts`` accepted
    transitions there is one update for every ``transitions_per_update`` more, and a version every
    ``updates_per_version`` updates.
    """

    def __init__(self, config: PipelineConfig) -> None:
        super().__init__(config)
        algorithm = config.algorithm
        seed = config.learner.seed
        self.algorithm = DQN(self.layout, dqn_settings(algorithm), seed)
        self.reader = NStepReader(algorithm.n_step, algorithm.gamma)
        self.buffer = UniformBuffer(algorithm.buffer_rows, self.layout, seed)

    def insert(self, headers: RecordHeaders, chunk: Chunk) -> None:
        self.buffer.insert(self.reader.read(headers.identity, chunk, self.layout))
        self.metrics.buffer.set(len(self.buffer))

    def train_due(self) -> bool:
        algorithm = self.config.algorithm
        ready = self.accounting.accepted_transitions - algorithm.learning_starts
        due = ready >= 0 and self.updates < ready // algorithm.transitions_per_update
        return due and len(self.buffer) >= algorithm.batch_size

    def train_step(self) -> bool:
        self.algorithm.update(self.buffer.sample(self.config.algorithm.batch_size))
        return self.algorithm.updates % self.config.algorithm.updates_per_version == 0

    def weights(self) -> dict[str, NDArray[Any]]:
        return self.algorithm.weights()

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        tensors = {f"algorithm/{name}": value for name, value in self.algorithm.state().items()}
        tensors |= {f"reader/{name}": value for name, value in self.reader.state().items()}
        buffer = self.buffer.state()
        return tensors, {"buffer": {"written": buffer.written, "generator": buffer.generator}}

    def load_state(self, tensors: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> None:
        self.algorithm.load_state(_below("algorithm/", tensors))
        self.reader.load_state(_below("reader/", tensors))
        buffer = values["buffer"]
        self.buffer.load_state(BufferState(int(buffer["written"]), buffer["generator"]))


def _below(prefix: str, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name[len(prefix) :]: np.asarray(value) for name, value in tensors.items() if name.startswith(prefix)}
