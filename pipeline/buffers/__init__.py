"""Replay buffers: where the learner's fold puts transitions, and where batches are drawn from."""

from pipeline.buffers.base import Batch, BufferState, ReplayBuffer
from pipeline.buffers.prioritized import PrioritizedBuffer
from pipeline.buffers.uniform import UniformBuffer

__all__ = ["Batch", "BufferState", "PrioritizedBuffer", "ReplayBuffer", "UniformBuffer"]
