"""The training node of PPO: one iteration of all clients' rollouts, one train step, one version."""

import json
import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from numpy.typing import NDArray

from pipeline.algorithms import PPO, LinearSchedule, ObservationStatistics
from pipeline.algorithms.spec import ppo_settings
from pipeline.broker import LogReader, Record
from pipeline.config import AlgorithmConfig, PipelineConfig, SyncConfig
from pipeline.connect import voucher_of
from pipeline.errors import ConfigError
from pipeline.experience import Chunk, RewardTransform, Version
from pipeline.learner.intake.arrival import Arrival
from pipeline.learner.intake.judge import ACCEPTED
from pipeline.learner.links import Links
from pipeline.learner.members.attendance import Attendance, End, HeartbeatListener
from pipeline.learner.members.rollouts import Rollouts
from pipeline.learner.members.roster import TAKE, Roster
from pipeline.learner.node import TrainingNode
from pipeline.learner.parameters import learning_rate
from pipeline.weights import below
from pipeline.wire import JournalEvent, Member, RecordHeaders

log = logging.getLogger(__name__)

_DECIDE_S = 0.05


class PPOTrainingNode(TrainingNode):
    """PPO with exact synchronisation (Schulman et al., 2017; reference 001).

    Every member acts a rollout under the version in force and then waits for the next one. Once all rollouts are there,
    in whatever order they came, one train step makes the whole iteration, and a version is cut. Chunks of any other
    version, or of sessions that are no members, do not count, so no iteration mixes versions.

    Where clients are lost, come back, or are not waited for any longer, an event of the journal says so: see
    :mod:`~pipeline.learner.members.roster`. The time of registration ends with a version of its own, from which on the
    first members take part.

    Where ``algorithm.normalise_observations`` says so, networks normalise by statistics over the observations of all
    iterations; they take effect with the next version, as part of its weights.

    Raises:
        ConfigError: ``learner.version_window`` is not 1, or a setting is out of range.
    """

    def __init__(self, config: PipelineConfig) -> None:
        if config.learner.version_window != 1:
            raise ConfigError(
                f"learner.version_window={config.learner.version_window}, but PPO learns from samples of one version "
                "alone: set learner.version_window=1."
            )
        _check(config.algorithm)
        super().__init__(config)
        self.algorithm = PPO(self.layout, ppo_settings(config.algorithm), config.learner.seed, config.learner.device)
        normalise = config.algorithm.normalise_observations
        self.statistics = ObservationStatistics(self.layout) if normalise else None
        self.rollouts = Rollouts(self.layout)
        self.attendance = Attendance(self.run_name, self._session, config.learner.heartbeat_s)
        self._listener: HeartbeatListener | None = None
        self._decide_due = 0.0

    @property
    def free_running(self) -> bool:
        return False

    @property
    def roster(self) -> Roster:
        """Who takes part."""
        if self.judge.roster is None:
            raise AssertionError("the judge of a synchronous run has a roster")
        return self.judge.roster

    # -- the fold -----------------------------------------------------------------------------------------------------

    def insert(self, headers: RecordHeaders, chunk: Chunk, record: Record) -> None:
        self.rollouts.add(headers.identity, chunk)
        self.metrics.buffer.set(self.roster.arrived)

    def train_due(self) -> bool:
        return self.roster.train_due

    def cut_due(self) -> bool:
        return self.roster.cut_due

    def train_step(self) -> bool:
        settings, accepted = self.settings, self.accounting.accepted_transitions
        rollout = self.rollouts.rollout(RewardTransform(settings.reward_scale, settings.reward_clip))
        rate, clip = learning_rate(settings, accepted), settings.ppo.clip
        if settings.ppo.clip_decay_transitions:
            clip = LinearSchedule(clip, 0.0, settings.ppo.clip_decay_transitions)(accepted)
        found = self.algorithm.update(rollout, learning_rate=rate, clip=clip, breathe=self.breathe)
        if self.statistics is not None:
            self.statistics.update(rollout.observations)
            self.algorithm.set_normalisation(self.statistics)
        sizes = {"learning_rate": rate, "clip": clip, "transitions": rollout.steps, "clients": len(self.roster.members)}
        self.figures = {f"train/{name}": float(value) for name, value in (found | sizes).items()}
        self.roster.train()
        return True

    def cut(self, version: Version, tensors: Mapping[str, NDArray[Any]]) -> None:
        super().cut(version, tensors)
        self.rollouts.clear()
        self.metrics.buffer.set(0)

    def weights(self) -> dict[str, NDArray[Any]]:
        return self.algorithm.weights()

    def configure(self, settings: AlgorithmConfig) -> None:
        _check(settings)
        self.algorithm.configure(ppo_settings(settings))
        self.roster.min_clients = settings.sync.min_clients

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        chunks, identities = self.rollouts.state()
        tensors: dict[str, NDArray[Any]] = {}
        for part, arrays in (
            ("ppo", self.algorithm.state()),
            ("statistics", self.statistics.state() if self.statistics is not None else {}),
            ("rollouts", chunks),
        ):
            tensors |= {f"{part}/{name}": array for name, array in arrays.items()}
        return tensors, {"rollouts": identities}

    def load_state(self, tensors: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> None:
        self.load_origin(tensors, values)
        self.rollouts.load_state(below("rollouts", tensors), values["rollouts"])

    def load_origin(self, tensors: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> None:
        self.algorithm.load_state(below("ppo", tensors))
        if self.statistics is not None:
            self.statistics.load_state(below("statistics", tensors))

    def load_weights(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        self.algorithm.load_weights(tensors)

    # -- the live loop ------------------------------------------------------------------------------------------------

    def _attend(self, stack: ExitStack, links: Links) -> None:
        topics = links.topics
        reader = LogReader(links.connection.broker, [topics.heartbeats, topics.progress], start="latest")
        listener = HeartbeatListener(reader, topics.heartbeats, self.attendance, voucher_of(self.config))
        self._listener = stack.enter_context(listener)

    def _members(self) -> tuple[Member, ...]:
        return self.attendance.members(self.roster)

    def _note_trouble(self, arrival: Arrival, verdict: str) -> None:
        super()._note_trouble(arrival, verdict)
        if verdict == ACCEPTED and arrival.headers is not None:
            self.attendance.arrived(arrival.headers.session, time.monotonic())

    def _decide(self) -> bool:
        if self._limit_reached():
            return True  # before the next record of the version that was just cut
        now = time.monotonic()
        if now < self._decide_due:
            return False
        if self._listener is not None:
            self._listener.check()
        decision = self.attendance.decide(self.roster, self.settings.sync, self._asked(), now)
        if isinstance(decision, End):
            self._fail(decision.why)
        elif decision is not None:
            self._say(decision)
            self.note_event(decision)
        else:
            self._decide_due = now + _DECIDE_S
        return decision is not None

    def _asked(self) -> int:
        """The version whose rollouts are waited for; -1 while clients cannot know it."""
        return self.version.number if self.is_announced(self.version.number) else -1

    def _say(self, event: JournalEvent) -> None:
        detail, there = json.loads(event.detail_json), self.roster.participants
        match event.kind:
            case "join":
                log.info("Client %s joins: %d of %d.", detail["actor"], len(there) + 1, self.settings.sync.clients)
            case "lost":
                actor = there[detail["session"]].actor
                log.warning("Client %s is lost: %s. %d are left.", actor, detail["why"], len(there) - 1)
                if len(there) - 1 < self.settings.sync.min_clients:
                    log.warning(
                        "Training waits: at least %d clients are needed; for others the learner waits %g s.",
                        self.settings.sync.min_clients,
                        self.settings.sync.discovery_s,
                    )
            case "begin":
                actors = ", ".join(sorted(each.actor for each in there.values()))
                log.info("Registration is over; %d clients take part: %s.", len(there), actors)
            case _:
                log.info("Version %s is trained on with what has arrived: %d steps.", self.version, self.roster.arrived)

    def _relieve_journal(self) -> None:
        roster = self.roster
        if roster.arrived and roster.enough and not roster.taken:
            self.note_event(TAKE)  # what has arrived is not lost with the version that ends early
        else:
            self.publish()

    def _puts_off(self) -> bool:
        return False  # nobody acts, and nothing arrives, before it is out

    def _limit_reached(self) -> bool:
        return super()._limit_reached() and not self.roster.arrived and not self.cut_due()

    def _worth_a_version(self) -> bool:
        return False  # what was applied since the version is nothing that is learned from


def _check(settings: AlgorithmConfig) -> None:
    """Refuse what synchronous training cannot be done with, beside the ranges of single settings.

    Raises:
        ConfigError: rewards are scaled by 0, or more clients are needed than take part.
    """
    RewardTransform(settings.reward_scale, settings.reward_clip)
    sync: SyncConfig = settings.sync
    if sync.min_clients > sync.clients:
        raise ConfigError(
            f"algorithm.sync.min_clients is {sync.min_clients}, but has to be at most sync.clients={sync.clients}"
        )
