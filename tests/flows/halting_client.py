"""A client of PPO that stands still in the middle of a rollout, for the test that kills it there.

`python -m tests.flows.halting_client ROLLOUTS OVERRIDES…` sends so many rollouts, and half of one more.
"""

import signal
import sys

HALTED = "halted in mid-rollout"


def main() -> None:
    # Here, as the uplink's process imports this module too, and has no need of them.
    import numpy as np

    from pipeline.client import PPOConnector, Transition
    from pipeline.config import load_config

    connector = PPOConnector(load_config(sys.argv[2:]))
    observation = np.zeros(4, np.float32)
    steps = connector.rollout_steps
    for step in range(int(sys.argv[1]) * steps + steps // 2):
        if step and step % steps == 0:
            connector.sync()
        with connector:
            action, log_prob = connector.agent.act(observation)
        following = observation + np.float32(1e-3)
        connector.push_sample(
            Transition(observation, action, 1.0, following, False, False, extras={"log_prob": log_prob})
        )
        observation = following
    print(HALTED, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
