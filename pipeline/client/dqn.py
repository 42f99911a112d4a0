"""Asynchronous training: newer weights whenever there are any, and a client that stays near the learner."""

import time
from typing import ClassVar

from pipeline.algorithms import Agent
from pipeline.algorithms.spec import network_spec
from pipeline.client.builder import ChunkBuilder
from pipeline.client.connector import Connector
from pipeline.client.freshness import Freshness
from pipeline.client.sender import Sending
from pipeline.client.stream import StreamSender
from pipeline.errors import ServerTimeoutError


class DQNConnector(Connector[Agent, StreamSender]):
    """Connects an environment loop to a run of DQN or Rainbow.

    Example:
        >>> con = DQNConnector(load_config(["kafka.bootstrap_servers=broker:9092"]))
        >>> with con:
        ...     action = con.agent.act(observation, con.epsilon)
        >>> con.push_sample(Transition(observation, action, reward, following, terminated, truncated))

    Inside ``with con:`` the agent's weights, ``model_id`` and ``epsilon`` belong together and do not change; a newer
    version is taken over on entry. Entering never waits: while the uplink writes new weights, the old ones stay.

    With ``client.adapt_chunks`` chunks get smaller and younger, and :meth:`pace` keeps nearer to the learner, while the
    learner refuses some of this client's transitions as stale; see :mod:`pipeline.client.freshness`.

    Args, Raises: see :class:`Connector`.
    """

    ALGORITHMS: ClassVar[tuple[str, ...]] = ("dqn", "rainbow")

    @property
    def epsilon(self) -> float:
        """Share of random actions, as the learner announced it with the agent's version. Use it inside ``with con:``.

        It follows the run's schedule, and a schedule that is changed while the run goes on.
        """
        return self._exploration

    @property
    def lead(self) -> int:
        """Transitions that were pushed here and that the learner has not come to; dropped or lost ones do not count."""
        return self._sender.lead

    def pace(self, timeout: float = 60.0) -> bool:
        """Wait while this client is more than ``client.max_lead`` transitions ahead of the learner.

        So the ratio of updates to samples holds and the broker's memory stays bounded. It does not wait while the
        broker is away (the queue's policy rules then), after the run has ended, or with ``max_lead`` 0.

        Returns:
            False if the learner did not come near within ``timeout`` seconds.
        """
        if not self._settings.max_lead:
            return True
        limit = max(1, round(self._settings.max_lead * self._freshness.share))
        if self.lead <= limit:
            return True
        self._sender.cut()
        deadline = time.monotonic() + timeout
        while self.lead > limit and self.connected and not self.run_ended and not self._closed.is_set():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    # -- hooks --------------------------------------------------------------------------------------------------------

    def _make_agent(self, seed: int) -> Agent:
        return Agent(self.layout, network_spec(self.run_config.algorithm), seed=seed)

    def _make_sender(self, sending: Sending, builder: ChunkBuilder) -> StreamSender:
        settings = self._settings
        self._freshness = Freshness(builder.chunk_steps, settings.chunk_age_s, settings.adapt_chunks)
        return StreamSender(sending, builder, self._outbox, self._counters, self._freshness)

    def _begin(self, timeout: float) -> None:
        def weights_are_there() -> bool:
            with self:
                return self._version.number >= 0

        if not self._wait_for(weights_are_there, time.monotonic() + timeout):
            raise ServerTimeoutError(
                f"No weights of run {self.run!r} came within {timeout:g} s. Is its learner running, and does the "
                f"object store at {self._store.endpoint} answer?"
            )

    def _enter(self) -> None:
        self._take_over()

    def _tick(self) -> float:
        return self._sender.cut_if_old()
