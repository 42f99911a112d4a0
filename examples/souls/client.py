"""One fight after the other, as a game would be played. ``python -m examples.souls.client [SETTING=VALUE ...]``

It asks the run's settings for the frame stack and the actions, so that a learner may change its mind about them without
a line changed here.
"""

import sys
from contextlib import closing, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.souls.environment import MAX_TICKS, SoulsEnv
from pipeline.client import DQNConnector, Transition
from pipeline.config import PipelineConfig, load_config
from pipeline.environment import wrap
from pipeline.experience import ACTION_MASK, Ending
from pipeline.logs import configure_logging


def run(config: PipelineConfig) -> int:
    """Act until the run ends, or ``client.max_episodes`` are done.

    Returns:
        The number of episodes.
    """
    limit, episodes = config.client.max_episodes, 0
    with closing(DQNConnector(config)) as connector:
        settings = connector.run_config.environment
        environment, random = wrap(SoulsEnv(), settings), np.random.default_rng(connector.seed)
        while not connector.run_ended and not (limit and episodes >= limit):
            observation, info = environment.reset(seed=None if episodes else connector.seed)
            total, steps, over = 0.0, 0, False
            while not over and steps < MAX_TICKS:
                mask = info[ACTION_MASK] if settings.action_masks else None
                with connector:  # here weights, epsilon and version belong together
                    action = connector.agent.act(
                        _batched(observation), connector.epsilon, random, mask=None if mask is None else mask[None]
                    )[0]
                following, reward, over, _, info = environment.step(action)
                steps += 1
                connector.push_sample(
                    Transition(
                        observation,
                        action,
                        reward,
                        following,
                        terminated=over,
                        truncated=not over and steps == MAX_TICKS,
                        # Which actions are allowed where the step led to.
                        extras={ACTION_MASK: info[ACTION_MASK].astype(bool)} if settings.action_masks else None,
                    )
                )
                observation, total = following, total + float(reward)
                connector.pace(timeout=1.0)
            connector.push_episode_info(
                {
                    "episode": episodes,
                    "steps": steps,
                    "total_return": total,
                    "ending": Ending.TERMINATED if over else Ending.TRUNCATED,
                    # Telemetry averages whatever is told here.
                    "info": {"boss_hp": info["boss_hp"], "won": float(info["boss_hp"] == 0.0)},
                }
            )
            episodes += 1
    return episodes


def _batched(observation: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """One observation as a batch of one."""
    return {name: np.asarray(value)[None] for name, value in observation.items()}


if __name__ == "__main__":  # the connector starts a process, which imports this module again
    configuration = load_config(sys.argv[1:])
    configure_logging(configuration.log_level)
    with suppress(KeyboardInterrupt):
        run(configuration)
