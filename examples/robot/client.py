"""The robot's loop: sense, act, drive, push. ``python -m examples.robot.client [SETTING=VALUE ...]``"""

import sys
from contextlib import closing, suppress

import numpy as np

from examples.robot.arm import TORQUES, Arm
from pipeline.client import DQNConnector, Transition
from pipeline.config import PipelineConfig, load_config
from pipeline.experience import Ending
from pipeline.logs import configure_logging

STEPS = 200
"""Ticks of one episode. The task has no end of its own: the last tick is truncated, not terminated."""


def run(config: PipelineConfig) -> int:
    """Act until the run ends, or ``client.max_episodes`` are done.

    Returns:
        The number of episodes.
    """
    limit, episodes = config.client.max_episodes, 0
    with closing(DQNConnector(config)) as connector:
        arm, random = Arm(connector.seed), np.random.default_rng(connector.seed)
        while not connector.run_ended and not (limit and episodes >= limit):
            arm.release()
            observation, total = arm.sense(), 0.0
            for step in range(1, STEPS + 1):
                with connector:  # here weights, epsilon and version belong together
                    action = connector.agent.act(observation[None], connector.epsilon, random)[0]
                torque = TORQUES[int(action)]
                reward = -arm.penalty(torque)
                arm.drive(torque)
                following = arm.sense()
                connector.push_sample(
                    Transition(observation, action, reward, following, terminated=False, truncated=step == STEPS)
                )
                observation, total = following, total + reward
                # A simulation can outrun the learner; a real arm would sleep until its next tick instead.
                connector.pace(timeout=1.0)
            connector.push_episode_info(
                {"episode": episodes, "steps": STEPS, "total_return": total, "ending": Ending.TRUNCATED}
            )
            episodes += 1
    return episodes


if __name__ == "__main__":  # the connector starts a process, which imports this module again
    configuration = load_config(sys.argv[1:])
    configure_logging(configuration.log_level)
    with suppress(KeyboardInterrupt):
        run(configuration)
