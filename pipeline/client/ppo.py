"""Synchronous training: rollouts that all members make under one version, and the wait for the next one."""

import logging
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from pipeline.algorithms import PolicyAgent
from pipeline.algorithms.spec import policy_spec
from pipeline.client.builder import ChunkBuilder
from pipeline.client.connector import Connector
from pipeline.client.counters import LEARNER_BEATS
from pipeline.client.membership import Membership
from pipeline.client.outbox import QueuePolicy
from pipeline.client.rollout import RolloutSender
from pipeline.client.sender import Sending
from pipeline.client.transition import Transition
from pipeline.errors import ClientError, RunEndedError, ServerTimeoutError
from pipeline.experience import Version
from pipeline.wire import Member

log = logging.getLogger(__name__)

_LAST_WORD_S = 1.0


class PPOConnector(Connector[PolicyAgent, RolloutSender]):
    """Connects an environment loop to a run of PPO, and registers it there.

    Example:
        >>> con = PPOConnector(load_config(["kafka.bootstrap_servers=broker:9092"]))
        >>> while not con.run_ended:
        ...     for _ in range(con.rollout_steps):
        ...         with con:
        ...             action, log_prob = con.agent.act(observation)
        ...         following, reward, terminated, truncated, _ = environment.step(action)
        ...         con.push_sample(Transition(observation, action, reward, following, terminated, truncated,
        ...                                    extras={"log_prob": log_prob}))
        ...         observation = environment.reset()[0] if terminated or truncated else following
        ...     con.sync()

    The constructor asks the learner to take this client in, and returns when it counts as a member, with the weights to
    begin with. A client that comes while training goes on is taken in with the next version.

    Weights change in :meth:`sync` only, so every sample between two calls is of one version. Nothing of a rollout is
    dropped: whatever ``client.queue_policy`` says, a push waits while the queue is full. Chunks are cut by size only.

    Args:
        config: see :class:`pipeline.config.PipelineConfig`. ``run`` empty takes the newest run.
        stop: asked while the constructor or :meth:`sync` waits; True ends the waiting with ConnectorClosedError.
        manifest: the run's, where it is known already; otherwise it is looked up, and waited for.

    Raises:
        RunNotFoundError: there is no such run on the broker.
        BrokerUnreachableError: nobody answers at the address.
        ServerTimeoutError: nobody answered the registration within ``client.first_weights_timeout_s``, or the learner
            fell silent for so long afterwards, or the weights to begin with cannot be fetched.
        ClientError: the learner refuses this client, for the reason that it gives; or the run is of another algorithm.
        RunEndedError: the run is over.
        ConnectorClosedError: ``stop()`` said so.
    """

    ALGORITHMS: ClassVar[tuple[str, ...]] = ("ppo",)
    JOINS: ClassVar[bool] = True

    @property
    def rollout_steps(self) -> int:
        """Steps of each sub-environment that the run wants between two calls of :meth:`sync`."""
        return self.run_config.algorithm.ppo.rollout_steps

    @property
    def members(self) -> tuple[Member, ...]:
        """Who takes part, waits, was lost or refused, as the learner's last heartbeat says."""
        return self._membership.members

    @property
    def overtaken(self) -> bool:
        """Whether a newer version is there already: what is acted under the present one counts no more.

        That is so after this client was paused, or where the learner did not wait for it
        (``algorithm.sync.collect_fraction``). The rest of the rollout may be left out, and :meth:`sync` called at once.
        """
        return self._newest.number > self._version.number

    def push_sample(self, sample: Transition | Mapping[str, Any] | bytes) -> None:
        """Send experience: one transition, one of each sub-environment, or a chunk that is already encoded.

        Transitions need ``extras={"log_prob": …}`` as the agent gave it, and ``acted_mask``, what was allowed where the
        agent acted, with ``environment.action_masks``. Waits while the queue is full.

        Args:
            sample: a :class:`Transition` or a mapping with its fields, or the bytes of a chunk in the wire format, of
                the agent's version.

        Raises:
            InvalidSampleError: it does not fit the run's spaces, or a column is missing; nothing of it is sent.
            InvalidRecordError: the bytes are no valid chunk of this run.
            ClientError: the bytes are of another version than the agent's, or :meth:`sync` was begun and has not
                returned: the rollout is over.
            ConnectorClosedError: after :meth:`close`.
        """
        if self._awaiting is not None:
            self._check_open()
            raise ClientError(
                f"The rollout under version {self._awaiting} is over, and sync() has not returned yet: call it again."
            )
        super().push_sample(sample)

    def sync(self, timeout: float = 100.0) -> None:
        """End the rollout, wait for the version that follows it, and load its weights into the agent.

        Returns when the agent holds a version with a higher number than that of the samples pushed since the last call,
        under which this client is a member.

        A second queued update cannot make it return early: updates are not events that are counted but versions that
        are compared. The mailbox holds one version, the newest, and only a number above that of the samples ends the
        wait; an update that arrived before, or twice, has no such number.

        It cannot stall: the last chunk of the rollout is marked as such, and it is sent again until the broker has it,
        whatever happens to the uplink. The learner makes the next version as soon as the rollouts of all members are
        complete, and waits for none of them longer than ``algorithm.sync.client_timeout_s``: who is silent for so long
        is lost, and the others go on. If this client is the one, because it was paused, or because something of its
        rollout was refused, it asks by itself to be taken in again, and the wait ends with the version from which it is
        a member again. A notice that was missed is made up for by the next, since only the newest version counts. A
        learner that was started again knows its members from the log. What remains is a learner that is gone for longer
        than ``timeout``: that is the error.

        After a ServerTimeoutError it may be called again, to go on waiting.

        Args:
            timeout: seconds to wait at most.

        Raises:
            ServerTimeoutError: there was no such version within ``timeout`` seconds; says what is known of the reason.
            RunEndedError: the run is over; with the learner's reason, where it gave one.
            ClientError: nothing was pushed since the last call, the learner refuses this client, or this is called
                inside ``with con:``.
            ConnectorClosedError: the connector is closed, or was meanwhile, or ``stop()`` said so.
        """
        self._check_open()
        with self._acting:
            if self._acting_depth:
                raise ClientError("sync() changes the weights, so call it outside of `with con:`.")
        acted = self._sender.finish()
        if acted is not None:
            self._awaiting = acted
        elif self._awaiting is None:
            raise ClientError(
                "sync() ends a rollout, but nothing was pushed since the last one; call push_sample first."
            )
        beats = self._counters[LEARNER_BEATS]
        if not self._wait_for(self._renewed, time.monotonic() + timeout):
            raise ServerTimeoutError(
                f"Run {self.run!r} has no version after {self._awaiting} for this client within {timeout:g} s. "
                f"{self._why(beats)}"
            )
        self._awaiting = None

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until the broker has every rollout that was ended; False after ``timeout`` seconds.

        The newest chunk of a rollout that goes on stays here until :meth:`sync`, which marks the last one.
        """
        return self._outbox.wait_empty(timeout)

    # -- hooks --------------------------------------------------------------------------------------------------------

    def _make_agent(self, seed: int) -> PolicyAgent:
        return PolicyAgent(self.layout, policy_spec(self.run_config.algorithm), seed=seed)

    def _make_sender(self, sending: Sending, builder: ChunkBuilder) -> RolloutSender:
        self._membership = Membership(sending.session)
        self._awaiting: Version | None = None
        self._over_since: float | None = None
        return RolloutSender(sending, builder, self._outbox, self._counters)

    def _queue_policy(self) -> QueuePolicy:
        return QueuePolicy.BLOCK

    def _begin(self, timeout: float) -> None:
        """Register: wait for the learner's answer, then until it counts this client as a member."""
        beats = self._counters[LEARNER_BEATS]
        if not self._wait_for(self._answered, time.monotonic() + timeout):
            raise ServerTimeoutError(
                f"Nobody answered the registration of {self.actor} in run {self.run!r} within {timeout:g} s. "
                f"{self._why(beats)}"
            )
        member = False
        while not self._renewed():
            if not member:
                log.info("Registered in run %s. %s", self.run, self._membership.describe())
            beats, was_member = self._counters[LEARNER_BEATS], member
            if self._wait_for(self._renewed, time.monotonic() + timeout):
                return
            own = self._membership.own
            member = own is not None and own.state == "member"
            if self._counters[LEARNER_BEATS] == beats:
                raise ServerTimeoutError(
                    f"The learner of run {self.run!r} answered, and then fell silent for {timeout:g} s. "
                    f"{self._why(beats)}"
                )
            if was_member:
                raise ServerTimeoutError(
                    f"{self._membership.describe()} Its weights did not come within {timeout:g} s: does the object "
                    f"store at {self._store.endpoint} answer?"
                )

    def _hear(self, kind: str, news: Any) -> None:
        if kind == "members":
            for sentence in self._membership.note(news):
                log.warning("%s", sentence)
        super()._hear(kind, news)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _answered(self) -> bool:
        self._raise_if_over()
        return self._membership.own is not None

    def _renewed(self) -> bool:
        """Take the next version over, if it is there and this client a member under it."""
        with self._acting:
            if self._take_over(self._awaited):
                return True
        self._raise_if_over()
        return False

    def _awaited(self, version: Version) -> bool:
        return version.number > self._version.number and self._membership.takes_part(version.number)

    def _raise_if_over(self) -> None:
        own = self._membership.own
        if own is not None and own.state == "refused":
            raise ClientError(
                f"The learner of run {self.run!r} refused this client: {own.detail or 'no reason given'}."
            )
        if not self.run_ended:
            self._over_since = None
            return
        # The learner's last heartbeat, with its reason, may come a moment after the manifest that ends the run.
        now = time.monotonic()
        self._over_since = now if self._over_since is None else self._over_since
        told = own is not None and own.state == "lost"
        if own is None or told or now - self._over_since >= _LAST_WORD_S:
            raise RunEndedError(f"Run {self.run!r} is over.{' ' + self._membership.describe() if told else ''}")

    def _why(self, beats: int) -> str:
        """What is known of why nothing came, since the learner was at that many heartbeats."""
        there = f"Version {self._newest} is there. " if self.overtaken else ""
        if not self.connected:
            learner = "The broker does not answer."
        elif self._counters[LEARNER_BEATS] == beats:
            learner = (
                f"Its learner was not heard in that time: is it running (`pipeline learner run={self.run}`), and do "
                "broker and users let it write heartbeats?"
            )
        else:
            learner = (
                "Its learner lives; it may be waiting for other clients, or be without the object store at "
                f"{self._store.endpoint}."
            )
        return f"{there}{learner} {self._membership.describe()}"
