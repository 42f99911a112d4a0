"""The training node: what every algorithm's learner has in common.

After SoulsAI's ``server.training_node`` (reference 001): the loop receives samples, verifies that they can be used,
inserts them, trains when the algorithm's condition is met, and publishes. Here the loop is a fold over the log
(:mod:`pipeline.learner.fold`), and a restarted node first comes back to where the old one was
(:mod:`pipeline.learner.durable.recovery`).
"""

import json
import logging
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from numpy.typing import NDArray
from omegaconf import OmegaConf
from prometheus_client import Gauge

from pipeline.broker import Record, Topics
from pipeline.config import PipelineConfig, from_dict, to_dict
from pipeline.connect import with_actors
from pipeline.errors import ConfigError, LearnerError, PipelineError
from pipeline.experience import Version, new_session
from pipeline.files import remove_leftovers
from pipeline.learner.commands import SET
from pipeline.learner.durable.checkpoint import CheckpointWriter, checkpoint_name, save_checkpoint
from pipeline.learner.durable.decisive import changed_settings
from pipeline.learner.durable.recovery import Recovered, recover, start_from
from pipeline.learner.durable.run_folder import RunFolder, new_run_name
from pipeline.learner.fold import Fold
from pipeline.learner.intake.arrival import Arrival
from pipeline.learner.intake.dead_letters import DeadLetters
from pipeline.learner.intake.ingest import Ingest
from pipeline.learner.links import Links, open_links
from pipeline.learner.parameters import difference
from pipeline.learner.presence import Presence
from pipeline.learner.reports.figures import Progress, Returns, Tracking
from pipeline.learner.reports.staleness import Staleness
from pipeline.learner.reports.trackers import open_trackers, require_trackers
from pipeline.weights import BackgroundPublisher, clean_up, unpack
from pipeline.wire import (
    COMMANDS,
    Command,
    Member,
    ModelVersionRecord,
)

log = logging.getLogger(__name__)

_Link = TypeVar("_Link")
_CLOSE_S = 20.0
_WATCH_S = 1.0


class TrainingNode(Fold):
    """Consumes samples, trains, publishes versions; one per run.

    Derived classes fill the hooks of :class:`Fold`. The constructor opens no connection; :meth:`run` does.

    Args:
        config: the whole configuration.

    Raises:
        ConfigError: the run's name or the environment is not usable.
        SpaceError: the environment's spaces cannot be carried.
    """

    def __init__(self, config: PipelineConfig) -> None:
        super().__init__(config, config.run or new_run_name(config))
        self.folder = RunFolder(config.saves, self.run_name)
        self.topics = Topics(config.namespace, self.run_name)
        self._links: Links | None = None
        self._publisher: BackgroundPublisher | None = None
        self._checkpoints: CheckpointWriter | None = None
        self._dead_letters: DeadLetters | None = None
        self._presence: Presence | None = None
        self._origin: Path | None = None
        self._beginning: tuple[dict[str, NDArray[Any]], dict[str, Any]] | None = None
        self._checkpoint_next = False
        self._session = new_session()
        self._watch_due = 0.0
        self._stopping = False
        self._gaps_said = False
        self._skipped_said = False
        self._commands_end = 0
        self._failure = ""
        self._staleness = Staleness(self.metrics, config.learner.stale_warning)
        self._tracking: Tracking | None = None

    # -- what users call ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Train until :meth:`shutdown`, or until ``learner.max_transitions`` are accepted.

        A run that has versions is gone on with, exactly where its newest announced version leads.

        Raises:
            FencedError: another learner took the run over.
            LearnerError: synchronous training has too few clients to go on.
            RecoveryError: see ``learner.require_exact``.
            BrokerError, StoreError: a service is missing or refuses; see the message.
        """
        with self._opened() as ingest:
            if self.version.number < 0:
                self.publish()
            log.info("Run %s: version %s is out; waiting for samples.", self.run_name, self.parent)
            while not self._ended():
                self._turn(ingest)
            # Whoever ordered the end waits for its outcome.
            _open(self._presence).beat(now=True)
        if self._failure:
            raise LearnerError(self._failure)

    def shutdown(self, _: Any = None) -> None:
        """End :meth:`run` after the record in hand. The run stays open: a learner may go on with it."""
        self._stopping = True

    def checkpoint(self, path: Path, options: Mapping[str, Any] | None = None) -> None:
        """Save the present state in this folder; one that was there is kept as ``<path>.previous``.

        Args:
            path: the checkpoint's folder.
            options: ``note``: a text to keep with it.

        Raises:
            OSError: it cannot be written; nothing is left of it then.
        """
        save_checkpoint(path, self.snapshot(str((options or {}).get("note", ""))))

    def load_checkpoint(self, path: Path) -> None:
        """Start from a checkpoint of any run: its networks and optimizer. Call it before :meth:`run`.

        A new run begins with it. A run that has versions goes on with it under its own numbers, which never go back.
        Either way the journal names the checkpoint, and the run's folder keeps a copy.

        Raises:
            CheckpointError: it is missing, damaged, or of another network.
        """
        self._beginning = self._beginning or self.state()
        start_from(self, path, self.folder)
        self._origin = path

    def save_config(self, path: Path) -> None:
        """Write the configuration as YAML; secrets are not part of it."""
        path.write_text(OmegaConf.to_yaml(OmegaConf.create(to_dict(self.config))))

    @staticmethod
    def load_config(path: Path) -> PipelineConfig:
        """Read a configuration that :meth:`save_config` wrote.

        Raises:
            ConfigError: it does not exist or does not fit.
        """
        try:
            tree = OmegaConf.to_container(OmegaConf.load(path))
        except OSError as error:
            raise ConfigError(f"The configuration {path} cannot be read: {error}") from error
        if not isinstance(tree, dict):
            raise ConfigError(f"The configuration {path} is not a mapping.")
        return from_dict(cast("dict[str, Any]", tree))

    @contextmanager
    def monitor_timing(self, prom_timer: Gauge) -> Generator[None]:
        """Set ``prom_timer`` to the seconds that the block took; only when Prometheus is on."""
        with self.metrics.timing(prom_timer):
            yield

    # -- versions -----------------------------------------------------------------------------------------------------

    def publish(self) -> bool:
        """Hand the present weights over as the next version.

        Waits while the version before waits for the store. While the store or the broker fails, the version is not
        made, False is returned, and training goes on under the version in force, whose samples stay acceptable; in
        synchronous training it waits for them as well.

        Raises:
            FencedError, WeightsExistError: another learner took the run over.
        """
        links, publisher = _open(self._links), _open(self._publisher)
        with self.monitor_timing(self.metrics.publish_seconds):
            tensors = self.weights()
            version = Version(links.epoch, self.version.number + 1)
            record = ModelVersionRecord(
                run=self.run_name,
                epoch=version.epoch,
                number=version.number,
                key="",
                size=0,
                sha256="",
                parent_number=self.parent.number if self.parent is not None else None,
                transitions=self.accounting.accepted_transitions,
                updates=self.updates,
                created_ms=int(time.time() * 1000),
                journal=self.next_journal().encode(),
                exploration=self.exploration(),
            )
            while not publisher.submit(record, tensors, timeout=0.1):
                self._look_around()
                if self._stopping or (publisher.failing and self._puts_off()):
                    self._say_skipped(version)
                    return False
            self._skipped_said = False
            self.cut(version, tensors)
            self._track()
        self._checkpoint_if_due()
        return True

    def _published(self, record: ModelVersionRecord) -> None:
        """In the publishing thread."""
        _open(self._links).lineage.note(record)

    def announced(self, version: Version) -> ModelVersionRecord | None:
        """A version's announcement; None where this run never announced it."""
        record = _open(self._links).lineage.find(version.number)
        return record if record is not None and record.version == version else None

    def is_announced(self, number: int) -> bool:
        """Whether a version of this number was announced."""
        return _open(self._links).lineage.find(number) is not None

    def _was_announced(self, version: Version) -> bool | None:
        record = _open(self._links).lineage.find(version.number)
        return None if record is None else record.version == version

    def fetch(self, record: ModelVersionRecord) -> bytes:
        """An announced version's object, its size and sha256 checked.

        Raises:
            StoreError: see ``ObjectStore.get``.
        """
        return _open(self._links).store.get(record.key, record.size, record.sha256)

    def pin(self, version: Version, note: str) -> None:
        """Keep a version from clean-ups.

        Raises:
            BrokerError: see ``Publisher.pin``.
        """
        links = _open(self._links)
        links.publisher.pin(version, note)
        links.lineage.pins[version] = note

    # -- inside: the live loop ----------------------------------------------------------------------------------------

    def _turn(self, ingest: Ingest) -> None:
        """Make the train steps that are due, then apply one record."""
        self._train_while_due()
        if self._stopping:
            return  # with steps still due, which whoever goes on makes before the next record
        if self.cut_due():
            self.publish()
        if self._decide():
            self._look_around()
            return  # steps that are due by that come before the next record
        arrival = ingest.take(0.0 if self.free_running and self.train_due() else 0.05)
        if isinstance(arrival, Record):
            self._command(arrival)
        elif arrival is not None:
            self.apply(arrival)
        elif self.free_running and self.train_due():
            self._train_once()
        if self.journal.full:
            self._relieve_journal()
        self._look_around()

    def _train_while_due(self) -> None:
        if self.free_running:
            return
        while not self._stopping and self.train_due():
            self._train_once()
            self._look_around()

    def _train_once(self) -> None:
        if self.train():
            self.publish()

    def _command(self, record: Record) -> None:
        if record.partition != 0:
            return  # the embedded cluster makes more of them than anyone writes to
        self.positions[COMMANDS] = record.offset + 1
        command = self.commands.read(record)
        if command is not None:
            self.journal.command(command, record.offset + 1)
            self.commands.apply(command, self, earlier=record.offset < self._commands_end)

    def _ended(self) -> bool:
        """Whether the loop is to end; at the limit of transitions, the last version is published first."""
        if not self._stopping and self._limit_reached():
            if self._worth_a_version() and not self.publish():
                return self._stopping
            log.info("%d transitions are accepted: the run ends.", self.accounting.accepted_transitions)
            _open(self._presence).announce("stopped")
            self._stopping = True
        return self._stopping

    def _fail(self, why: str) -> None:
        """End the run with an error, after all that a good end does; those who still listen are told."""
        log.error("%s The run ends.", why)
        self._failure = why
        self._stopping = True
        presence = _open(self._presence)
        presence.beat(now=True)
        presence.announce("stopped")

    # -- inside: what synchronous training does otherwise -------------------------------------------------------------

    def _attend(self, stack: ExitStack, links: Links) -> None:
        """Open what the decisions need, to be closed with the stack."""

    def _decide(self) -> bool:
        """Make one decision that depends on time; whether there was any, so that steps may be due by it."""
        return False

    def _members(self) -> tuple[Member, ...]:
        """What heartbeats tell of who takes part."""
        return ()

    def _relieve_journal(self) -> None:
        """The journal is full: cut a version early."""
        self.publish()

    def _puts_off(self) -> bool:
        """Whether training goes on where a version cannot be published."""
        return True

    def _limit_reached(self) -> bool:
        """Whether the run has the transitions that it was to have."""
        limit = self.config.learner.max_transitions
        return bool(limit) and self.accounting.accepted_transitions >= limit

    def _worth_a_version(self) -> bool:
        """Whether something was applied that a version at the run's end should tell of."""
        return not self.journal.empty

    # -- inside: beside the fold --------------------------------------------------------------------------------------

    def _look_around(self) -> None:
        """Say how far the learner has come, and see whether it still leads the run."""
        _open(self._presence).beat()
        now = time.monotonic()
        if now >= self._watch_due:
            self._watch_due = now + _WATCH_S
            publisher = _open(self._publisher)
            if publisher.error is not None:
                raise publisher.error
            _open(self._links).watch.check()
            self.metrics.version_age.set(publisher.age)

    def _checkpoint_if_due(self) -> None:
        every, number = self.config.learner.checkpoint_every, self.version.number
        due = bool(every) and number > 0 and number % every == 0
        if not due and not self._checkpoint_next:
            return
        self._checkpoint_next = False
        with self.monitor_timing(self.metrics.checkpoint_seconds):
            self._submit_checkpoint()

    def _submit_checkpoint(self) -> None:
        if self.parent is not None:
            name = checkpoint_name(self.parent, self.accounting.offsets_advanced)
            _open(self._checkpoints).submit(name, self.snapshot())

    def _clean_up(self) -> None:
        """After a checkpoint, in its thread: remove old weights."""
        settings = self.config.cleanup
        if not settings.by_learner:
            return
        links = _open(self._links)
        try:
            clean_up(
                links.store,
                links.lineage,
                keep_last=settings.keep_last,
                keep_every=settings.keep_every,
                needed=self.folder.needed_versions(),
            )
        except PipelineError as error:
            log.warning(
                "Old weights of run %s could not be removed, the next checkpoint tries again: %s", self.run_name, error
            )

    # -- inside: what is said -----------------------------------------------------------------------------------------

    def _note_trouble(self, arrival: Arrival, verdict: str) -> None:
        """Say what was refused, and write its dead letter; say what was gone."""
        record, headers, error = arrival.record, arrival.headers, arrival.error
        if headers is not None:
            self._staleness.note(headers.actor, headers.count, self.version.number - headers.version.number, verdict)
        if error is not None and verdict == error.reason.value:
            actor = headers.actor if headers is not None else ""
            _open(self._dead_letters).write(record, actor, error)
            if self.accounting.rejected[verdict] == 1:
                log.warning("A record of %s was refused and is a dead letter now: %s", actor or "unknown", error)
        if arrival.skipped:
            log.log(
                logging.DEBUG if self._gaps_said else logging.WARNING,
                "%s, partition %d: %d offsets before %d were gone when they were to be read; they count as expired.",
                record.topic,
                record.partition,
                arrival.skipped,
                record.offset,
            )
            self._gaps_said = True

    def _track(self) -> None:
        """Hand the figures of the version that was just made to the trackers."""
        if self._tracking is None:
            return
        figures = {
            **self.figures,
            "acting/exploration": self.exploration(),
            "samples/worst_stale_share": self._staleness.worst(),
            "version": float(self.version.number),
        }
        self._tracking.cut(self.accounting, self.updates, figures)

    def _open_tracking(self, links: Links) -> Tracking | None:
        names, newest = self.config.learner.trackers, links.lineage.newest
        if not names:
            return None
        step = 0 if newest is None else newest.transitions + 1
        trackers = open_trackers(names, self.folder.path, self.run_name, to_dict(self.config), step)
        return Tracking(trackers, Progress(self.accounting, self.updates), Returns(links.windows(), self.run_name))

    def _say_skipped(self, version: Version) -> None:
        log.log(
            logging.DEBUG if self._skipped_said else logging.WARNING,
            "Version %s is put off while store or broker are away; training goes on.",
            version,
        )
        self._skipped_said = True

    # -- inside: opening and closing ----------------------------------------------------------------------------------

    @contextmanager
    def _opened(self) -> Generator[Ingest]:
        """Claim the run, come back to where it is, and read on; closed in reverse."""
        config = self.config = with_actors(self.config)
        require_trackers(config.learner.trackers)
        with ExitStack() as stack:
            links = self._links = stack.enter_context(open_links(config, self.run_name))
            self._dead_letters = DeadLetters(
                links.producer, self.topics, self.run_name, config.learner.dead_letters_per_s, self.metrics
            )
            extent = links.extent()
            self._commands_end = extent.commands_end
            for folder in (self.folder.checkpoints, self.folder.manual_save):
                remove_leftovers(folder)
            self._come_back(links, extent.first)
            self._presence = Presence(self, links, self._session, self._members)
            self._presence.announce("running")
            self.folder.save_config(config)
            self._tracking = self._open_tracking(links)
            if self._tracking is not None:
                stack.callback(self._tracking.close)
            self._checkpoints = CheckpointWriter(
                self.folder.checkpoints,
                config.learner.keep_checkpoints,
                announced=self._was_announced,
                on_saved=self._clean_up,
            )
            stack.callback(self._checkpoints.close)
            self._publisher = BackgroundPublisher(links.publisher, on_published=self._published)
            stack.callback(self._publisher.close, timeout=_CLOSE_S)
            self.commands.resume(self)
            self.observe, self.breathe = self._note_trouble, self._look_around
            stack.callback(self.commands.close)
            self._attend(stack, links)
            ingest = Ingest(
                links.reader(self.positions),
                self.topics.samples,
                self.examiner(),
                config.learner.prefetch_chunks,
                oldest=lambda: self.version.number - config.learner.version_window + 1,
            )
            ingest.start()
            stack.callback(ingest.close)
            yield ingest
            self._last_checkpoint()

    def _come_back(self, links: Links, first: Mapping[int, int]) -> None:
        """To the newest announced version, or to the beginning of a new run."""
        if links.lineage.newest is None:
            self._begin(first)
        else:
            if self._beginning is not None:
                # The run may have to be computed from its beginning, which the loaded state is not.
                self.load_origin(*self._beginning)
            recovered = recover(self, links.lineage, self.folder, links.ordered, self._fetch_tensors)
            # The learner that this state is of: not always that of the newest version, where a checkpoint is newer.
            before = links.lineage.claims.get(self.version.epoch)
            live, changed = changed_settings(before.config_json if before is not None else "", self.config)
            self._go_on(recovered, changed)
            self._set_launched(live, links.epoch)
        self.enter(links.epoch)

    def _begin(self, first: Mapping[int, int]) -> None:
        origin = ("", "")
        chosen = self._origin or (Path(self.config.learner.load) if self.config.learner.load else None)
        if chosen is not None:
            origin = start_from(self, chosen, self.folder)
            log.info("Run %s starts from %s.", self.run_name, origin[0])
        self.positions = dict(first)
        self.journal.begin(self.positions, origin=origin)
        self.forget_ledger()

    def _go_on(self, recovered: Recovered, changed: str) -> None:
        broken, origin = "; ".join(filter(None, (recovered.trouble, changed))), ("", "")
        if changed:
            log.warning("Run %s goes on with other settings than before: %s.", self.run_name, changed)
        if self._origin is not None:
            origin = start_from(self, self._origin, self.folder)
            broken = f"it was made of the loaded {origin[0]}"
        elif self.config.learner.load:
            log.info("learner.load is passed over: run %s has versions and goes on with its own.", self.run_name)
        if broken:
            # The journal does not lead over the next version: recovery needs a checkpoint behind it.
            self.journal.begin(self.positions, origin=origin, broken=broken)
            self._checkpoint_next = True

    def _set_launched(self, changes: Mapping[str, Any], epoch: int) -> None:
        """Take over what was changed by hand of the settings that can change: as a command, so that it is journalled.

        What was set live before stays, unless it is among the changes.
        """
        if changes:
            command = Command(f"launch-{epoch}-{self._session}", SET, json.dumps(dict(changes)), issuer="learner")
            self.journal.command(command, self.positions.get(COMMANDS, 0))
            self.commands.apply(command, self)
        kept = difference(self.config.algorithm, self.settings)
        if kept:
            log.info("Run %s goes on with what was set live: %s.", self.run_name, kept)

    def _fetch_tensors(self, record: ModelVersionRecord) -> dict[str, NDArray[Any]]:
        return unpack(self.fetch(record))

    def _last_checkpoint(self) -> None:
        """At the end in good order: the next start then has nothing to compute again."""
        publisher = _open(self._publisher)
        if publisher.close(timeout=_CLOSE_S) == 0 and publisher.error is None:
            self._submit_checkpoint()


def _open(link: _Link | None) -> _Link:
    if link is None:
        raise AssertionError("run() opens this")
    return link
