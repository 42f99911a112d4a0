"""Greedy evaluation of published weights."""

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from pipeline.algorithms import Agent, PolicyAgent
from pipeline.algorithms.spec import network_spec, policy_spec
from pipeline.broker import Topics
from pipeline.config import PipelineConfig
from pipeline.connect import connect
from pipeline.environment import action_masks, make_vector, read_layout
from pipeline.errors import PipelineError
from pipeline.experience import Version
from pipeline.weights import Follower, ObjectStore, unpack
from pipeline.wire import ModelVersionRecord


@dataclass(frozen=True)
class Score:
    """What a version reached.

    Attributes:
        record: the version's announcement.
        mean_return: average undiscounted return of the greedy episodes; where an evaluation was given up because the
            threshold was out of reach, an upper bound of it.
        complete: whether all episodes were played to their end.
    """

    record: ModelVersionRecord
    mean_return: float
    complete: bool

    @property
    def version(self) -> Version:
        """Epoch and number."""
        return self.record.version


class Evaluator:
    """Plays greedy episodes with one version's weights, all at once.

    Args:
        config: environment and network.
        episodes: how many; the average is over all of them.
        seed: of the environments; the same for every version.
    """

    def __init__(self, config: PipelineConfig, episodes: int, seed: int) -> None:
        self._environment = make_vector(config.environment, episodes)
        self._same_step = self._environment.metadata.get("autoreset_mode") is not AutoresetMode.NEXT_STEP
        self._agent: Agent | PolicyAgent
        if config.algorithm.name == "ppo":
            layout = read_layout(config.environment, on_policy=True)
            self._agent = PolicyAgent(layout, policy_spec(config.algorithm), seed)
        else:
            self._agent = Agent(read_layout(config.environment), network_spec(config.algorithm), seed)
        self._masked = config.environment.action_masks
        self._episodes = episodes
        self._seed = seed

    def evaluate(self, record: ModelVersionRecord, data: bytes, at_least: float | None = None) -> Score:
        """Play the first episode of each sub-environment with these weights.

        Args:
            record: the version.
            data: its safetensors bytes.
            at_least: give up once this average is out of reach, for environments whose reward is 1 a step and whose
                episodes end after ``max_episode_steps``; None plays all to their end.
        """
        self._agent.load(unpack(data))
        observation, info = self._environment.reset(seed=self._seed)
        total = np.zeros(self._episodes)
        running = np.ones(self._episodes, bool)
        limit = self._environment.spec.max_episode_steps if self._environment.spec is not None else None
        while running.any():
            mask = action_masks(info, self._environment) if self._masked else None
            action = self._greedy(observation, mask)
            observation, reward, terminated, truncated, info = self._environment.step(action)
            total += np.where(running, reward, 0.0)
            running &= ~(terminated | truncated)
            if at_least is not None and limit is not None:
                bound = float(np.where(running, limit, total).mean())
                if bound < at_least:
                    return Score(record, bound, complete=False)
        return Score(record, float(total.mean()), complete=True)

    def _greedy(self, observation: Any, mask: NDArray[np.bool_] | None) -> Any:
        if isinstance(self._agent, PolicyAgent):
            return self._agent.act(observation, greedy=True, mask=mask)[0]
        return self._agent.act(observation, explore=False, mask=mask)


class EvaluationThread(threading.Thread):
    """Follows a run's versions and evaluates the newest, again and again, until one reaches the threshold.

    Args:
        config: where the services are, and the environment.
        run: the run.
    """

    def __init__(self, config: PipelineConfig, run: str) -> None:
        super().__init__(name="evaluate", daemon=True)
        self._config = config
        self._run_name = run
        self._stopping = threading.Event()
        self.newest: ModelVersionRecord | None = None
        self.best: Score | None = None
        self.last: Score | None = None
        self.solved: tuple[Score, bytes] | None = None
        self.evaluated = 0
        self.error: PipelineError | None = None

    def run(self) -> None:
        """The thread's body."""
        try:
            self._follow()
        except PipelineError as error:
            self.error = error

    def stop(self) -> None:
        """End the thread after the evaluation in hand."""
        self._stopping.set()

    def _follow(self) -> None:
        config = self._config
        connection = connect(config)
        follower = Follower(
            connection.broker,
            ObjectStore(connection.store),
            Topics(config.namespace, self._run_name),
        )
        threshold = config.environment.solved_return
        evaluator = Evaluator(config, config.demo.evaluation_episodes, config.demo.seed + 1_000_003)
        try:
            while not self._stopping.is_set() and self.solved is None:
                followed = follower.poll(0.1)
                if followed is None:
                    continue
                self.newest = followed.record
                bound = threshold if config.environment.id.startswith("CartPole") else None
                score = evaluator.evaluate(followed.record, followed.data, at_least=bound)
                self.evaluated += 1
                self.last = score
                if self.best is None or score.mean_return > self.best.mean_return:
                    self.best = score
                if score.complete and score.mean_return >= threshold:
                    self.solved = score, followed.data
                # The learner and the actors need the processor more than a look at every version does.
                self._stopping.wait(0.2)
        finally:
            follower.close()
