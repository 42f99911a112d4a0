"""The acting loop of ``pipeline client``: a vectorised environment, driven by the weights of whatever run it is."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.broker import find_run
from pipeline.client.dqn import DQNConnector
from pipeline.client.ppo import PPOConnector
from pipeline.client.processes import uplink_processes
from pipeline.client.stepping import Chooser, Stepping
from pipeline.config import PipelineConfig
from pipeline.connect import connect
from pipeline.environment import check_module, make_vector
from pipeline.errors import ConnectorClosedError, RunEndedError
from pipeline.experience import ACTED_MASK, LOG_PROB

log = logging.getLogger(__name__)


def act(config: PipelineConfig, stop: Callable[[], bool] = lambda: False) -> int:
    """Take part in a run until it ends, ``stop()`` says so, or ``client.max_episodes`` are done.

    Returns:
        The number of finished episodes.

    Raises:
        RunNotFoundError, BrokerUnreachableError, ServerTimeoutError, ClientError: see the connector of the run's
            algorithm.
        ConfigError: the environment gives no action masks, or unfit ones, where the run needs them; or it is in a
            module that ``environment.id`` does not name here.
    """
    torch.set_num_threads(config.client.torch_threads)
    try:
        connector = open_connector(config, stop)
    except (ConnectorClosedError, RunEndedError) as error:
        log.info("No part was taken in a run: %s", error)
        return 0
    try:
        return _act(connector, config, stop)
    finally:
        connector.close()


def open_connector(config: PipelineConfig, stop: Callable[[], bool]) -> DQNConnector | PPOConnector:
    """The connector of the run's algorithm.

    Args:
        config: which run; an empty name takes the newest.
        stop: see `Connector`.
    """
    # Begins to load what the uplink needs, while the run is waited for.
    uplink_processes()
    manifest = find_run(connect(config).broker, config.namespace, config.run or None, timeout=config.kafka.timeout_s)
    kind = PPOConnector if manifest.algorithm in PPOConnector.ALGORITHMS else DQNConnector
    return kind(replace(config, run=manifest.run), stop=stop, manifest=manifest)


def _act(connector: DQNConnector | PPOConnector, config: PipelineConfig, stop: Callable[[], bool]) -> int:
    check_module(connector.run_config.environment, config.environment)
    environment = make_vector(connector.run_config.environment)
    try:
        log.info("Actor %s takes part in run %s.", connector.actor, connector.run)
        choose = choose_by_policy(connector) if isinstance(connector, PPOConnector) else choose_by_value(connector)
        stepping = Stepping(connector, environment, connector.seed, choose)
        limit = config.client.max_episodes

        def over() -> bool:
            return stop() or connector.run_ended or bool(limit and stepping.episodes >= limit)

        if isinstance(connector, PPOConnector):
            _in_rollouts(connector, stepping, over, stop)
        else:
            _in_a_stream(connector, stepping, over)
    finally:
        environment.close()
    log.info("Actor %s ends after %d episodes.", connector.actor, stepping.episodes)
    return stepping.episodes


def _in_a_stream(connector: DQNConnector, stepping: Stepping, over: Callable[[], bool]) -> None:
    while not over():
        stepping.step()
        connector.pace(timeout=1.0)


def _in_rollouts(
    connector: PPOConnector, stepping: Stepping, over: Callable[[], bool], stop: Callable[[], bool]
) -> None:
    """Rollouts with a sync after each; the one in hand is cut short where the loop is over, or its version outdated."""
    while not over():
        steps = pushed = 0
        while (steps < connector.rollout_steps and not (pushed and connector.overtaken)) or not pushed:
            pushed += stepping.step()
            steps += 1
            if over():
                break
        if stop() or not pushed:
            return
        try:
            connector.sync()
        except RunEndedError as ended:
            log.info("%s", ended)
            return
        except ConnectorClosedError:
            if not stop():
                raise
            return


def choose_by_value(connector: DQNConnector) -> Chooser:
    """ε-greedy actions, under the newest weights."""
    random = np.random.default_rng(connector.seed)

    def choose(observation: Any, masks: NDArray[np.bool_] | None) -> tuple[NDArray[Any], dict[str, Any]]:
        with connector:
            return connector.agent.act(observation, connector.epsilon, random, mask=masks), {}

    return choose


def choose_by_policy(connector: PPOConnector) -> Chooser:
    """Actions drawn from the policy, with what training needs to know of the draw."""

    def choose(observation: Any, masks: NDArray[np.bool_] | None) -> tuple[NDArray[Any], dict[str, Any]]:
        with connector:
            action, log_prob = connector.agent.act(observation, mask=masks)
        allowed = {} if masks is None else {ACTED_MASK: masks}
        return action, {LOG_PROB: log_prob, **allowed}

    return choose
