"""A loop over a vectorised environment, for PPO. ``python -m examples.vectorised [SETTING=VALUE ...]``

Whatever Gymnasium environment the run is about, with the run's frame stack and actions.
"""

import sys
from contextlib import closing, suppress

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from pipeline.client import PPOConnector, Transition
from pipeline.config import PipelineConfig, load_config
from pipeline.environment import check_module, last_observations, wrap
from pipeline.errors import RunEndedError
from pipeline.experience import Ending
from pipeline.logs import configure_logging


def run(config: PipelineConfig) -> int:
    """Make rollouts until the run ends, or ``client.max_episodes`` are done.

    Returns:
        The number of episodes.
    """
    limit, episodes = config.client.max_episodes, 0
    # A run that ends while others' rollouts are waited for says so.
    with closing(PPOConnector(config)) as connector, suppress(RunEndedError):
        settings = connector.run_config.environment
        check_module(settings, config.environment)
        # Sub-environments reset themselves in the step that ends an episode. What that step led to is in its info then.
        vector = gymnasium.make_vec(
            settings.id,
            settings.envs,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
            **settings.kwargs,
        )
        environment = wrap(vector, settings)
        observation, _ = environment.reset(seed=connector.seed)
        returns, steps = np.zeros(settings.envs), np.zeros(settings.envs, int)
        while not connector.run_ended and not (limit and episodes >= limit):
            for _ in range(connector.rollout_steps):
                with connector:
                    action, log_prob = connector.agent.act(observation)
                following, reward, terminated, truncated, info = environment.step(action)
                ended = np.logical_or(terminated, truncated)
                last = last_observations(following, ended, info)
                connector.push_sample(
                    Transition(observation, action, reward, last, terminated, truncated, extras={"log_prob": log_prob})
                )
                observation = following
                returns += reward
                steps += 1
                for at in np.flatnonzero(ended):
                    connector.push_episode_info(
                        {
                            "episode": episodes,
                            "environment": int(at),
                            "steps": int(steps[at]),
                            "total_return": float(returns[at]),
                            "ending": Ending.TERMINATED if terminated[at] else Ending.TRUNCATED,
                        }
                    )
                    episodes += 1
                returns[ended], steps[ended] = 0.0, 0
            connector.sync()  # ends the rollout, and returns with the weights of the next one
        environment.close()
    return episodes


if __name__ == "__main__":  # the connector starts a process, which imports this module again
    configuration = load_config(sys.argv[1:])
    configure_logging(configuration.log_level)
    with suppress(KeyboardInterrupt):
        run(configuration)
