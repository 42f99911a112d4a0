"""How many batches of 256 a second the replay buffers give from a million rows, on one core.

The limit is what numpy needs to gather the same rows, measured in the same run.
"""

import time
from collections.abc import Callable

import gymnasium
import numpy as np

from pipeline.buffers import PrioritizedBuffer, UniformBuffer
from pipeline.experience import Layout, Transitions

ROWS = 1_000_000
BATCH = 256
PIECE = 10_000


def main() -> None:
    """Print batches per second."""
    for width in (4, 75):
        layout = Layout(gymnasium.spaces.Box(-np.inf, np.inf, (width,), np.float32), gymnasium.spaces.Discrete(6))
        uniform, prioritized = UniformBuffer(ROWS, layout, 0), PrioritizedBuffer(ROWS, layout, 0)
        rng = np.random.default_rng(0)
        for buffer in (uniform, prioritized):
            _fill(buffer, width)
        starts = np.flatnonzero(uniform.contents()["delta"])
        prioritized.update_priorities(starts, rng.random(len(starts)))
        errors = rng.random(BATCH)

        def train(buffer: PrioritizedBuffer = prioritized, errors: np.ndarray = errors) -> None:
            buffer.update_priorities(buffer.sample(BATCH).rows, errors)

        print(f"observations of {width} float32, {len(prioritized)} transitions")
        _report("gather alone (limit)", _gather(uniform.contents()["observation:observation"], rng))
        _report("uniform", lambda uniform=uniform: uniform.sample(BATCH))
        _report("prioritised", lambda prioritized=prioritized: prioritized.sample(BATCH))
        _report("prioritised, and new priorities for each batch", train)


def _fill(buffer: UniformBuffer | PrioritizedBuffer, width: int) -> None:
    start = np.arange(PIECE)
    observations = np.random.default_rng(1).standard_normal((PIECE + 1, width), np.float32)
    transitions = Transitions(
        observations={"observation": observations},
        start=start,
        end=np.minimum(start + 3, PIECE),
        columns={"action": start % 6},
        reward=start.astype(np.float32),
        discount=np.ones(PIECE, np.float32),
        version_epoch=start,
        version_number=start,
    )
    while buffer.written < ROWS:
        buffer.insert(transitions)


def _gather(observations: np.ndarray, rng: np.random.Generator) -> Callable[[], object]:
    places = [rng.integers(0, len(observations) - 3, BATCH) for _ in range(100)]
    out = np.empty((BATCH, *observations.shape[1:]), observations.dtype)
    turn = iter(range(1 << 60))

    def gather() -> None:
        rows = places[next(turn) % len(places)]
        observations.take(rows, axis=0, out=out, mode="clip")
        observations.take(rows + 3, axis=0, out=out, mode="clip")

    return gather


def _report(what: str, call: Callable[[], object], rounds: int = 100, repeats: int = 40) -> None:
    """The best of short rounds, so that other load on the machine shows least."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.perf_counter()
        for _ in range(repeats):
            call()
        best = min(best, (time.perf_counter() - begun) / repeats)
    print(f"{what:<48} {1 / best:8.0f} batches/s   {best * 1e6:6.1f} us")


if __name__ == "__main__":
    main()
