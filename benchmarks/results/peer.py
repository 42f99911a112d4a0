"""stable-baselines3, as it is published: ``python -m benchmarks.results.peer ROW SEED FILE``.

Runs as a process of its own, so that its imports count as ours do. Each finished episode becomes a line of FILE: steps,
unix time, return.
"""

import json
import sys
import time
from pathlib import Path
from typing import IO, Any

import stable_baselines3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from benchmarks.results.progress import Progress
from benchmarks.results.rows import BY_NAME, Linear, Peer, Row


def train(row: Row, peer: Peer, seed: int, out: IO[str]) -> None:
    """Train until the row's threshold is reached or its budget is spent."""
    environment = make_vec_env(row.environment, n_envs=peer.environments, seed=seed)
    settings = {name: _setting(name, value, row, peer) for name, value in peer.settings.items()}
    if peer.normalise:
        environment = VecNormalize(environment, gamma=settings["gamma"])
    algorithm: Any = getattr(stable_baselines3, peer.algorithm)
    model = algorithm("MlpPolicy", environment, seed=seed, device="cpu", **settings)
    model.learn(row.budget, callback=_Watch(Progress(row.threshold, row.budget), out))


def _setting(name: str, value: Any, row: Row, peer: Peer) -> Any:
    """A published setting, such that schedules end where they end in the published number of steps."""
    share = peer.steps / row.budget
    if name == "exploration_fraction":
        return value * share
    if isinstance(value, Linear):
        # stable-baselines3 gives what is left of the steps, from 1 to 0.
        return lambda left: value.start * max(0.0, 1.0 - (1.0 - left) / share)
    return value


class _Watch(BaseCallback):
    """Writes episodes down, and ends the training."""

    def __init__(self, progress: Progress, out: IO[str]) -> None:
        super().__init__()
        self._progress = progress
        self._out = out

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            # Written by Monitor, below any normalisation.
            episode = info.get("episode")
            if episode is not None:
                now, total_return = time.time(), float(episode["r"])
                self._progress.add(self.num_timesteps, now, total_return)
                self._out.write(json.dumps([self.num_timesteps, now, total_return]) + "\n")
        return not self._progress.ended


def main() -> None:
    """Run one row with one seed."""
    name, seed, path = sys.argv[1:]
    row = BY_NAME[name]
    if row.peer is None:
        sys.exit(f"row {name} has no peer")
    with Path(path).open("w") as out:
        train(row, row.peer, int(seed), out)


if __name__ == "__main__":
    main()
