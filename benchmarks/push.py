"""What ``push_sample`` costs the environment loop, and how long a weight update holds it.

Side by side in one run: copying the same arrays into preallocated rows, which is the least that any recorder does.
"""

import multiprocessing
import time

import gymnasium
import numpy as np

from pipeline.client.builder import ChunkBuilder
from pipeline.client.mailbox import Mailbox
from pipeline.client.outbox import Item, Outbox, QueuePolicy
from pipeline.client.transition import Transition
from pipeline.experience import Layout, Version
from pipeline.wire import encode_chunk

PUSHES = 200_000
WIDTH = 75
UPDATES = 500


def main() -> None:
    """Print the figures."""
    observations = np.random.default_rng(0).standard_normal((1000, WIDTH)).astype(np.float32)
    _report("push_sample, 75 floats", _push(observations))
    _report("limit: copy into rows", _copy(observations))
    _report("weight update of 1 MB", _update(), unit="ms", scale=1e3)


def _push(observations: np.ndarray) -> np.ndarray:
    layout = Layout(gymnasium.spaces.Box(-np.inf, np.inf, (WIDTH,), np.float32), gymnasium.spaces.Discrete(4))
    builder = ChunkBuilder(layout, 256, 400_000)
    outbox = Outbox(1 << 26, QueuePolicy.DROP_OLDEST)
    version = Version(1, 1)
    times = np.empty(PUSHES)
    for t in range(PUSHES):
        now, following = observations[t % 999], observations[t % 999 + 1]
        begun = time.perf_counter()
        if builder.full:
            chunk = builder.cut()
            if chunk is not None:
                outbox.put(Item("samples", encode_chunk(chunk, layout), [], chunk.steps))
        builder.add(Transition(now, t % 4, 1.0, following, t % 200 == 199, False), version)
        times[t] = time.perf_counter() - begun
    return times


def _copy(observations: np.ndarray) -> np.ndarray:
    rows = np.empty((256, WIDTH), np.float32)
    times = np.empty(PUSHES)
    for t in range(PUSHES):
        now = observations[t % 999]
        begun = time.perf_counter()
        rows[t % 256] = now
        times[t] = time.perf_counter() - begun
    return times


def _update() -> np.ndarray:
    weights = {"w": np.zeros((512, 512), np.float32)}
    mailbox = Mailbox(multiprocessing.get_context("spawn"), weights)
    target = np.zeros((512, 512), np.float32)
    times = np.empty(UPDATES)
    for number in range(UPDATES):
        mailbox.write(weights, Version(1, number), number)
        begun = time.perf_counter()
        letter = mailbox.try_read()
        if letter is None:
            raise RuntimeError("nobody else holds the mailbox, yet it is taken")
        with letter:
            np.copyto(target, letter.tensors["w"])
        times[number] = time.perf_counter() - begun
    return times


def _report(what: str, times: np.ndarray, unit: str = "µs", scale: float = 1e6) -> None:
    median, p99, slowest = np.median(times) * scale, np.percentile(times, 99) * scale, times.max() * scale
    print(f"{what:<26} median {median:8.2f} {unit}   p99 {p99:8.2f} {unit}   max {slowest:8.2f} {unit}")
