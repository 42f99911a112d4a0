"""The fold: what the learner's state is, and how one record, one command, one train step change it.

Nothing here talks to a broker, a store or a clock, so the same code runs when a restarted learner follows its journal
and when a version is computed again from a recording.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.broker import OrderedReader, Record
from pipeline.config import AlgorithmConfig, PipelineConfig
from pipeline.connect import voucher_of
from pipeline.environment import read_layout
from pipeline.errors import CheckpointError, CommandError, ConfigError, InvalidRecordError
from pipeline.experience import Chunk, Version
from pipeline.learner.commands import Commands
from pipeline.learner.durable.checkpoint import FORMAT, Snapshot
from pipeline.learner.durable.journal import JournalWriter
from pipeline.learner.durable.window import Refill
from pipeline.learner.intake.accounting import Accounting
from pipeline.learner.intake.arrival import Arrival, Examiner
from pipeline.learner.intake.identities import Identities
from pipeline.learner.intake.judge import ACCEPTED, DUPLICATE, new_judge
from pipeline.learner.intake.ledger import LearnerLedger
from pipeline.learner.parameters import changed, difference, live_values, with_values
from pipeline.learner.reports.metrics import LearnerMetrics
from pipeline.weights import below
from pipeline.wire import Journal, JournalCommand, JournalEvent, Limits, RecordHeaders

log = logging.getLogger(__name__)

_RNG = "rng/torch"


class Fold(ABC):
    """The learner's state, and the steps that change it.

    Derived classes fill the hooks. Guarantees: the same seed and the same steps give the same state to the last bit,
    on the same device and library versions; :meth:`snapshot` and :meth:`restore` do not break that.

    Attributes:
        version: the version in force, under the epoch of whoever folds; its number is -1 before the first.
        parent: the version in force, as it was announced; None before the first.
        in_force: its tensors, where they were computed here.
        updates: train steps since the run began.
        positions: the next offset by samples partition, and of the commands topic under ``COMMANDS``.
        journal: what was done since the version in force.
        commands: which commands were applied.
        settings: the algorithm's settings in force: those of the launch, and what was set since. Never changed in
            place. ``config.algorithm`` is as it was launched.
        figures: what the last train step before the newest version found, by name, for people.
        observe: told of every record and its verdict, after it was applied.
        breathe: called now and then within a long train step, for what must not wait for its end.

    Args:
        config: the whole configuration.

    Raises:
        SpaceError: the environment's spaces cannot be carried.
    """

    def __init__(self, config: PipelineConfig, run: str) -> None:
        torch.set_num_threads(config.learner.torch_threads)
        self.config = config
        self.run_name = run
        self.layout = read_layout(config.environment, on_policy=config.algorithm.name == "ppo")
        self.judge = new_judge(config)
        self.journal = JournalWriter(config.learner.seed, free_running=self.free_running)
        self.commands = Commands()
        self.settings = config.algorithm
        self.figures: Mapping[str, float] = {}
        self.metrics = LearnerMetrics(config.learner.metrics_port, config.metrics_host)
        self.version = Version(0, -1)
        self.parent: Version | None = None
        self.in_force: Mapping[str, NDArray[Any]] | None = None
        self._sha256 = ""
        self.updates = 0
        self.observe: Callable[[Arrival, str], None] | None = None
        self.breathe: Callable[[], None] = _do_nothing
        self.positions: dict[int, int] = {}
        self._ledger = LearnerLedger(Path(config.learner.ledger)) if config.learner.ledger else None

    # -- hooks --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def insert(self, headers: RecordHeaders, chunk: Chunk, record: Record) -> None:
        """Put an accepted chunk where :meth:`train_step` finds it."""

    @abstractmethod
    def train_due(self) -> bool:
        """Whether the counts ask for a train step now; when free-running, whether there is enough to train on.
        Decided by what was applied, never by the clock."""

    @abstractmethod
    def train_step(self) -> bool:
        """One train step; True when a new version is to be published after it."""

    def cut_due(self) -> bool:
        """Whether a version is to be cut although no train step has just asked for it."""
        return False

    @abstractmethod
    def weights(self) -> dict[str, NDArray[Any]]:
        """Copies of the tensors that actors need, by name."""

    @abstractmethod
    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """What a checkpoint keeps of the algorithm: copies of tensors, and JSON-able values. Not what the log holds."""

    @abstractmethod
    def load_state(self, tensors: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave; :meth:`refill` follows.

        Raises:
            CheckpointError: it is of another network or algorithm.
        """

    @abstractmethod
    def load_origin(self, tensors: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> None:
        """Start from another run's :meth:`state`: networks and optimizer, no counters, no experience.

        Raises:
            CheckpointError: it is of another network or algorithm.
        """

    @abstractmethod
    def load_weights(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Take over published weights: where no checkpoint is left and the log does not reach back to the beginning.

        Raises:
            CheckpointError: they are of another network.
        """

    @abstractmethod
    def configure(self, settings: AlgorithmConfig) -> None:
        """Go on with other settings, of which those differ that :mod:`pipeline.learner.parameters` says can change.

        Raises:
            ConfigError: one is out of range. Nothing was changed then.
        """

    def exploration(self) -> float:
        """The share of random actions that actors take under the version that is made now."""
        return 0.0

    def refill(self, source: OrderedReader) -> Refill | None:
        """After :meth:`load_state`: bring back from the log what the checkpoint left to it.

        Args:
            source: the samples topic, partition by partition.

        Returns:
            What was read; None where there is nothing to bring back.
        """
        return None

    # -- figures ------------------------------------------------------------------------------------------------------

    @property
    def free_running(self) -> bool:
        """Whether training is not triggered by counts."""
        return self.config.algorithm.transitions_per_update == 0

    @property
    def accounting(self) -> Accounting:
        """What became of every record."""
        return self.judge.accounting

    @property
    def identities(self) -> Identities:
        """Which chunks were seen."""
        return self.judge.identities

    def examiner(self) -> Examiner:
        """Decodes and validates this run's records.

        Raises:
            ConfigError: names are to be checked, and the secret file does not hold the key.
        """
        limits = Limits(max_bytes=self.config.learner.max_chunk_bytes)
        return Examiner(self.layout, self.run_name, limits, voucher_of(self.config))

    # -- steps --------------------------------------------------------------------------------------------------------

    def apply(self, arrival: Arrival) -> str:
        """Account for one record, in order: refuse, de-duplicate, filter by version, insert; the verdict."""
        record, headers = arrival.record, arrival.headers
        verdict = self.judge.judge(arrival, self.version)
        if verdict == ACCEPTED and headers is not None and arrival.chunk is not None:
            self.insert(headers, arrival.chunk, record)
        self.positions[record.partition] = record.offset + 1
        self.journal.sample(record)
        self._note(arrival, verdict)
        return verdict

    def note_command(self, command: JournalCommand) -> None:
        """Apply a command of the journal: what it does outside of the fold was done already."""
        self.commands.remember(command, self)

    def set_parameters(self, changes: Mapping[str, Any]) -> str:
        """Change settings of the algorithm, from the next step on.

        Args:
            changes: new values by full name, such as ``algorithm.lr``.

        Returns:
            Each with its old and new value.

        Raises:
            CommandError: one is unknown, cannot change, or is out of range. Nothing was changed then.
        """
        settings = changed(self.settings, changes)
        said = difference(self.settings, settings)
        try:
            self._use(settings)
        except ConfigError as error:
            raise CommandError(str(error)) from error
        return said or "all of it was so before"

    def launched_with(self, settings: AlgorithmConfig) -> None:
        """The run began with these settings, as far as they can have changed since.

        Raises:
            ConfigError: one is out of range.
        """
        self._use(with_values(self.settings, live_values(settings)))

    def note_event(self, event: JournalEvent) -> None:
        """Apply a decision that depends on time, and write it down.

        Raises:
            InvalidRecordError: it is none that this run knows, or malformed. Nothing was changed then.
        """
        self.judge.note_event(event)
        self.journal.event(event)

    def train(self) -> bool:
        """One train step; True when a new version is to be cut."""
        with self.metrics.timing(self.metrics.update_seconds):
            cut = self.train_step()
        self.updates += 1
        self.journal.updated()
        self.metrics.updates.inc()
        return cut

    def next_journal(self) -> Journal:
        """What was done since the version in force."""
        return self.journal.journal(self.parent, self.accounting.counters())

    def enter(self, epoch: int) -> None:
        """From now on this epoch's learner folds: chunks of later epochs are none of its own."""
        self.version = Version(epoch, self.version.number)
        self.metrics.version.set(max(0, self.version.number))

    def cut(self, version: Version, tensors: Mapping[str, NDArray[Any]]) -> None:
        """The present state is this version.

        Args:
            version: as it is announced.
            tensors: its weights; not to be changed any more.
        """
        self.version = self.parent = version
        self.in_force = tensors
        self.journal.cut()
        self.judge.cut(version.number)
        self.metrics.version.set(version.number)

    # -- checkpoint ---------------------------------------------------------------------------------------------------

    def snapshot(self, note: str = "") -> Snapshot:
        """A copy of the whole state but for what the log holds.

        Args:
            note: a text to keep with it.
        """
        tensors, values = self.state()
        tensors = {f"algorithm/{name}": array for name, array in tensors.items()}
        tensors[_RNG] = torch.get_rng_state().numpy().copy()
        version = self.parent or Version(0, 0)
        state = {
            "format": FORMAT,
            "run": self.run_name,
            "epoch": version.epoch,
            "number": version.number,
            "sha256": self._sha256,
            "updates": self.updates,
            "positions": {str(source): offset for source, offset in self.positions.items()},
            "accounting": self.accounting.to_json(),
            "identities": self.identities.state(),
            "commands": self.commands.state(),
            "parameters": live_values(self.settings),
            "folding_epoch": self.version.epoch,
            "roster": self.judge.roster.state() if self.judge.roster is not None else None,
            "journal": self.next_journal().encode().hex(),
            "note": note,
            "algorithm": values,
        }
        return Snapshot(tensors, state, self.in_force)

    def restore(self, snapshot: Snapshot) -> None:
        """Take over a checkpoint of this run; :meth:`refill` follows.

        Raises:
            CheckpointError: it is of another run or network, or damaged.
        """
        state = snapshot.state
        if state["run"] != self.run_name:
            raise CheckpointError(f"The checkpoint is of run {state['run']!r}, this is {self.run_name!r}.")
        journal = self.journal_of(snapshot)
        try:
            self._use(with_values(self.settings, state["parameters"]))
            self.load_state(below("algorithm", snapshot.tensors), state["algorithm"])
            torch.set_rng_state(torch.tensor(np.asarray(snapshot.tensors[_RNG])))
            self.parent = Version(state["epoch"], state["number"])
            self.version = Version(state["folding_epoch"], state["number"])
            self.in_force, self._sha256 = None, str(state["sha256"])
            self.updates = state["updates"]
            self.positions = {int(source): offset for source, offset in state["positions"].items()}
            self.judge.accounting = Accounting.from_json(state["accounting"])
            self.judge.identities.load_state(state["identities"])
            self.commands.load_state(state["commands"])
            if self.judge.roster is not None:
                self.judge.roster.load_state(state["roster"])
            self.journal.load(journal)
        except (KeyError, TypeError, ValueError, InvalidRecordError, ConfigError) as error:
            raise CheckpointError(f"The checkpoint's state does not fit this release: {error!r}") from error
        if self._ledger is not None:
            self._ledger.rewind(self.positions)

    @staticmethod
    def journal_of(snapshot: Snapshot) -> Journal:
        """What was done between a checkpoint's version and the checkpoint.

        Raises:
            CheckpointError: it cannot be read.
        """
        try:
            return Journal.decode(bytes.fromhex(snapshot.state["journal"]))
        except (KeyError, TypeError, ValueError, InvalidRecordError) as error:
            raise CheckpointError(f"The checkpoint's journal cannot be read: {error!r}") from error

    def forget_ledger(self) -> None:
        """The fold begins anew: no verdict was given yet."""
        if self._ledger is not None:
            self._ledger.rewind({})

    def restore_origin(self, snapshot: Snapshot) -> None:
        """Start from a checkpoint of any run: its networks and optimizer.

        Raises:
            CheckpointError: it is of another network, or damaged.
        """
        try:
            self.load_origin(below("algorithm", snapshot.tensors), snapshot.state["algorithm"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"The checkpoint's state does not fit this release: {error!r}") from error

    # -- inside -------------------------------------------------------------------------------------------------------

    def _use(self, settings: AlgorithmConfig) -> None:
        self.configure(settings)
        self.settings = settings

    def _note(self, arrival: Arrival, verdict: str) -> None:
        metrics, headers = self.metrics, arrival.headers
        if arrival.skipped:
            metrics.expired.inc(arrival.skipped)
        if verdict == ACCEPTED and headers is not None:
            metrics.accepted.inc(headers.count)
            metrics.policy_lag.observe(self.version.number - headers.version.number)
        elif verdict == DUPLICATE:
            metrics.duplicates.inc()
        else:
            metrics.rejected.labels(verdict).inc()
        if self._ledger is not None:
            self._ledger.write(self.version.number, arrival, verdict)
        if self.observe is not None:
            self.observe(arrival, verdict)


def _do_nothing() -> None:
    """There is nothing beside the fold."""
