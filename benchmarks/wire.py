"""What a chunk costs to encode, to decode with all checks, and to turn into n-step transitions.

The limit it is held against is one copy of the same bytes by numpy, measured in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import gymnasium as gym
import numpy as np

from pipeline.experience import (
    Chunk,
    Column,
    Identity,
    Layout,
    NStepReader,
    Segments,
    Version,
)
from pipeline.wire import decode_chunk, encode_chunk

STEPS = 256
FLOATS = 75
SEGMENTS = 8
LIMIT_US = 1.0


def example() -> tuple[Layout, Chunk]:
    """A chunk of 256 transitions of 75 floats with action, reward and log-probability."""
    rng = np.random.default_rng(0)
    layout = Layout(
        gym.spaces.Box(-np.inf, np.inf, (FLOATS,), np.float32),
        gym.spaces.Discrete(6),
        (Column("log_probability", np.dtype(np.float32), ()),),
    )
    segments = Segments(
        environment=np.arange(SEGMENTS, dtype=np.int32),
        episode=np.arange(SEGMENTS, dtype=np.int64),
        first_step=np.zeros(SEGMENTS, np.int32),
        length=np.full(SEGMENTS, STEPS // SEGMENTS, np.int32),
        ending=np.ones(SEGMENTS, np.uint8),
    )
    columns = {
        "observation": rng.standard_normal((STEPS + SEGMENTS, FLOATS), np.float32),
        "action": rng.integers(0, 6, STEPS),
        "reward": rng.standard_normal(STEPS, np.float32),
        "log_probability": rng.standard_normal(STEPS, np.float32),
    }
    return layout, Chunk(Version(1, 1), segments, columns)


def microseconds(function: Callable[[], object], repeats: int = 2000, rounds: int = 100) -> float:
    """Least mean time of one call over short rounds, so that other load on the machine shows least."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(repeats // rounds):
            function()
        best = min(best, (time.perf_counter() - begin) / (repeats // rounds))
    return best * 1e6


def main() -> None:
    """Measure and print, in microseconds per transition."""
    layout, chunk = example()
    data = encode_chunk(chunk, layout)
    source = np.frombuffer(data, np.uint8)
    target = np.empty_like(source)
    identity = Identity("bench", "0" * 32, 0)
    copy = microseconds(lambda: np.copyto(target, source)) / STEPS
    encode = microseconds(lambda: encode_chunk(chunk, layout)) / STEPS
    decode = microseconds(lambda: decode_chunk(data, layout)) / STEPS
    nstep = microseconds(lambda: NStepReader(3, 0.99).read(identity, chunk, layout)) / STEPS
    print(f"chunk: {STEPS} transitions of {FLOATS} float32, {SEGMENTS} segments, {len(data)} bytes")
    print(f"copy of the same bytes (limit)  {copy:8.4f} us per transition")
    print(f"encode                          {encode:8.4f}   {encode / copy:6.1f} x the copy")
    print(f"decode, all checks, views       {decode:8.4f}   {decode / copy:6.1f} x the copy")
    print(f"encode and decode               {encode + decode:8.4f}   goal: below {LIMIT_US}")
    print(f"3-step transitions              {nstep:8.4f}")


if __name__ == "__main__":
    main()
