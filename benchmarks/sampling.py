"""How many batches of 256 a second the replay buffers give from a million rows, on one core.

A batch is drawn rows, importance weights, and the gathered columns of its transitions: observation, next observation,
action, return and discount. The limit is what numpy needs to gather the same observations, and the peer is cpprb's
prioritised buffer (n-step returns stored beforehand in both), measured in the same run and in turns, by CPU time.
Batches are drawn while priorities rest, as a replay server does, and with new priorities after each, as training does.

The peer is optional: `pip install cpprb`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from pipeline.buffers import PrioritizedBuffer, UniformBuffer
from pipeline.buffers.sum_tree import SumTree
from pipeline.experience import Layout, Transitions

try:
    import cpprb
except ImportError:
    cpprb = None

ROWS = 1_000_000
BATCH = 256
PIECE = 10_000
GOAL = 9_000
"""Batches a second wanted of the prioritised buffer; or twice the peer's."""
CHECKED = "prioritised"
PEER = "cpprb, prioritised"


def main() -> None:
    """Print batches per second of one core."""
    for width in (4, 75):
        print(f"batches of {BATCH} from {ROWS} rows of {width} float32; best of short rounds in turns, CPU time")
        seconds = _best(_contenders(width))
        for name, best in seconds.items():
            print(f"  {name:<58} {1 / best:8.0f} batches/s   {best * 1e6:6.1f} us")
        wanted = f"goal: {GOAL}"
        if PEER in seconds:
            wanted += f", or twice the peer's; {seconds[PEER] / seconds[CHECKED]:.1f} times the peer's"
        else:
            wanted += "; cpprb is not installed and left out"
        print(f"  {CHECKED}: {1 / seconds[CHECKED]:.0f} batches/s ({wanted})")


def _contenders(width: int) -> dict[str, Callable[[], object]]:
    layout = Layout(gymnasium.spaces.Box(-np.inf, np.inf, (width,), np.float32), gymnasium.spaces.Discrete(6))
    uniform, prioritized = UniformBuffer(ROWS, layout, 0), PrioritizedBuffer(ROWS, layout, 0)
    rng = np.random.default_rng(0)
    for buffer in (uniform, prioritized):
        _fill(buffer, width)
    starts = np.flatnonzero(uniform.contents()["delta"])
    priorities = rng.random(len(starts))
    prioritized.update_priorities(starts, priorities)
    errors = rng.random(BATCH)

    def train() -> None:
        prioritized.update_priorities(prioritized.sample(BATCH).rows, errors)

    contenders: dict[str, Callable[[], object]] = {
        "observations gathered alone (limit)": _gather(uniform.contents()["observation:observation"], rng),
        "prioritised rows drawn alone (no weights, no gathering)": _drawing(priorities, rng),
        "uniform": lambda: uniform.sample(BATCH),
        CHECKED: lambda: prioritized.sample(BATCH),
        "prioritised, and new priorities for each batch": train,
    }
    if cpprb is not None:
        peer = _peer(width, priorities)

        def train_peer() -> None:
            peer.update_priorities(peer.sample(BATCH, beta=0.4)["indexes"], errors)

        contenders[PEER] = lambda: peer.sample(BATCH, beta=0.4)
        contenders["cpprb, prioritised, and new priorities for each batch"] = train_peer
    return contenders


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


def _peer(width: int, priorities: np.ndarray) -> Any:
    """cpprb's buffer with as many transitions and the same priorities."""
    columns = {
        "obs": {"shape": width, "dtype": np.float32},
        "act": {"dtype": np.int64},
        "rew": {"dtype": np.float32},
        "next_obs": {"shape": width, "dtype": np.float32},
        "discount": {"dtype": np.float32},
    }
    peer = cpprb.PrioritizedReplayBuffer(ROWS, columns, alpha=0.6, eps=1e-6)
    observations = np.random.default_rng(1).standard_normal((PIECE + 3, width), np.float32)
    number = np.arange(PIECE)
    for first in range(0, len(priorities), PIECE):
        count = min(PIECE, len(priorities) - first)
        peer.add(
            obs=observations[:count],
            act=number[:count] % 6,
            rew=number[:count],
            next_obs=observations[3 : count + 3],
            discount=np.ones(count),
            priorities=priorities[first : first + count],
        )
    return peer


def _gather(observations: np.ndarray, rng: np.random.Generator) -> Callable[[], object]:
    # As many places as batches of a round, so that they are not in the cache.
    places = [np.sort(rng.integers(0, len(observations) - 3, BATCH)) for _ in range(2000)]
    out = np.empty((BATCH, *observations.shape[1:]), observations.dtype)
    turn = iter(range(1 << 60))

    def gather() -> None:
        rows = places[next(turn) % len(places)]
        observations.take(rows, axis=0, out=out, mode="clip")
        observations.take(rows + 3, axis=0, out=out, mode="clip")

    return gather


def _drawing(priorities: np.ndarray, rng: np.random.Generator) -> Callable[[], object]:
    tree = SumTree(ROWS)
    tree.set_range(0, priorities.astype(np.float32))
    strata = np.arange(BATCH)

    def draw() -> None:
        masses = rng.random(BATCH)
        masses += strata
        masses *= tree.total / BATCH
        tree.find(masses)

    return draw


def _best(contenders: dict[str, Callable[[], object]], rounds: int = 60, repeats: int = 50) -> dict[str, float]:
    """CPU seconds of one call: the best of short rounds, so that other load on the machine shows least."""
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, call in contenders.items():
            begun = time.process_time()
            for _ in range(repeats):
                call()
            best[name] = min(best[name], (time.process_time() - begun) / repeats)
    return best


if __name__ == "__main__":
    main()
