"""stable-baselines3, as it is published: ``python -m benchmarks.results.peer ROW SEED STARTED FILE``.

Runs as a process of its own, so that its imports count as ours do: STARTED is the unix time at which it was started.
Each evaluation becomes a line of FILE: steps, seconds, mean return, episodes.
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import IO, Any

import stable_baselines3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize, sync_envs_normalization

from benchmarks.results.progress import ALL, EVALUATION_SEED, FIRST, Clock, Progress
from benchmarks.results.rows import BY_NAME, Linear, Peer, Row


def train(row: Row, peer: Peer, seed: int, clock: Clock, out: IO[str]) -> None:
    """Train until the row's threshold is reached or its budget is spent."""
    environment = make_vec_env(row.environment, n_envs=peer.environments, seed=seed)
    settings = {name: _setting(name, value, row, peer) for name, value in peer.settings.items()}
    if peer.normalise:
        environment = VecNormalize(environment, gamma=settings["gamma"])
    algorithm: Any = getattr(stable_baselines3, peer.algorithm)
    model = algorithm("MlpPolicy", environment, seed=seed, device="cpu", **settings)
    model.learn(row.budget, callback=_Watch(row, peer, seed, clock, out))


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
    """Evaluates, writes it down, and ends the training."""

    def __init__(self, row: Row, peer: Peer, seed: int, clock: Clock, out: IO[str]) -> None:
        super().__init__()
        self._progress = Progress(row.threshold, row.budget, row.every)
        self._clock = clock
        self._out = out
        first = EVALUATION_SEED + 1000 * seed
        self._first = _environments(row, peer, FIRST, first)
        self._others = _environments(row, peer, ALL - FIRST, first + FIRST)

    def _on_step(self) -> bool:
        if self._progress.due(self.num_timesteps):
            seconds = self._clock.seconds
            with self._clock.held():
                self._evaluate(seconds)
        return not self._progress.ended

    def _evaluate(self, seconds: float) -> None:
        steps = self.num_timesteps
        first, others = (partial(self._mean, environments) for environments in (self._first, self._others))
        episodes = self._progress.evaluate(steps, seconds, first, others)
        point = self._progress.curve[-1]
        self._out.write(json.dumps([steps, seconds, point.mean, episodes]) + "\n")
        self._out.flush()

    def _mean(self, environments: Any) -> float:
        if isinstance(environments, VecNormalize):
            sync_envs_normalization(self.training_env, environments)
        # One episode in each; Monitor, below any normalisation, says what they returned.
        return float(evaluate_policy(self.model, environments, n_eval_episodes=environments.num_envs)[0])


def _environments(row: Row, peer: Peer, count: int, seed: int) -> Any:
    environments = make_vec_env(row.environment, n_envs=count, seed=seed)
    return VecNormalize(environments, training=False, norm_reward=False) if peer.normalise else environments


def main() -> None:
    """Run one row with one seed."""
    name, seed, started, path = sys.argv[1:]
    row = BY_NAME[name]
    if row.peer is None:
        sys.exit(f"row {name} has no peer")
    with Path(path).open("w") as out:
        train(row, row.peer, int(seed), Clock(float(started)), out)


if __name__ == "__main__":
    main()
