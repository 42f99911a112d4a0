"""The training node: what every algorithm's learner has in common.

After SoulsAI's ``server.training_node`` (reference 001): the loop receives samples, verifies that they can be used,
inserts them, trains when the algorithm's condition is met, and publishes. Here the loop is a fold: records are applied
in log order by one thread, and training is triggered by what was applied, never by the clock.
"""

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from numpy.typing import NDArray
from omegaconf import OmegaConf
from prometheus_client import Gauge

from pipeline.broker import LogReader, Producer, Topics, ensure_topics, publish_manifest
from pipeline.config import PipelineConfig, from_dict, to_dict
from pipeline.connect import connect
from pipeline.environment import read_layout
from pipeline.errors import CheckpointError, ConfigError, InvalidRecordError, PipelineError
from pipeline.experience import Chunk, Version, new_session
from pipeline.learner.accounting import FUTURE, Accounting
from pipeline.learner.checkpoint import has_checkpoint, load_checkpoint, save_checkpoint
from pipeline.learner.dead_letters import DeadLetters
from pipeline.learner.identities import Identities
from pipeline.learner.ingest import Arrival, Ingest
from pipeline.learner.metrics import LearnerMetrics
from pipeline.learner.run_folder import RunFolder, new_run_name
from pipeline.weights import BackgroundPublisher, ObjectStore, Publisher
from pipeline.wire import (
    Heartbeat,
    Limits,
    ModelVersionRecord,
    Position,
    RecordHeaders,
    RunManifest,
    fingerprint,
)

log = logging.getLogger(__name__)

_READ_SCHEMAS = ("chunk", "episode", "command", "heartbeat")


class TrainingNode(ABC):
    """Consumes samples, trains, publishes versions.

    Derived classes fill the hooks :meth:`insert`, :meth:`train_due`, :meth:`train_step`, :meth:`weights`,
    :meth:`state` and :meth:`load_state`. The constructor opens no connection; :meth:`run` does.

    Args:
        config: the whole configuration.

    Raises:
        ConfigError: the run's name or the environment is not usable.
        SpaceError: the environment's spaces cannot be carried.
    """

    def __init__(self, config: PipelineConfig) -> None:
        torch.set_num_threads(config.learner.torch_threads)
        self.config = config
        self.run_name = config.run or new_run_name(config)
        self.folder = RunFolder(config.saves, self.run_name)
        self.layout = read_layout(config.environment)
        self.topics = Topics(config.namespace, self.run_name)
        self.accounting = Accounting()
        self.identities = Identities()
        self.metrics = LearnerMetrics(config.learner.metrics_port)
        self.version = Version(0, -1)
        self.updates = 0
        self._positions: dict[int, int] = {}
        self._session = new_session()
        self._heartbeats = 0
        self._heartbeat_due = 0.0
        self._stopping = False
        self._created_ms = int(time.time() * 1000)
        self._gaps_said = False

    # -- hooks --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def insert(self, headers: RecordHeaders, chunk: Chunk) -> None:
        """Put an accepted chunk where :meth:`train_step` finds it."""

    @abstractmethod
    def train_due(self) -> bool:
        """Whether the counts ask for a train step now. Decided by what was applied, never by the clock."""

    @abstractmethod
    def train_step(self) -> bool:
        """One train step; True when a new version is to be published after it."""

    @abstractmethod
    def weights(self) -> dict[str, NDArray[Any]]:
        """Copies of the tensors that actors need, by name."""

    @abstractmethod
    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """What a checkpoint keeps of the algorithm: tensors, and JSON-able values."""

    @abstractmethod
    def load_state(self, tensors: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave."""

    # -- the fold -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Train until :meth:`shutdown`, or until ``learner.max_transitions`` are accepted.

        Raises:
            BrokerError, StoreError: a service is missing or refuses; see the message.
        """
        with self._opened() as (ingest, publisher):
            self._ingest, self._publisher = ingest, publisher
            self.publish()
            log.info("Run %s: version %s is out; waiting for samples.", self.run_name, self.version)
            while not self._stopping:
                arrival = ingest.take(timeout=0.05)
                if arrival is not None:
                    self.apply(arrival)
                    self._train_while_due()
                self._beat()
            self.checkpoint(self.folder.checkpoint)

    def shutdown(self, _: Any = None) -> None:
        """End :meth:`run` after the record in hand. The run stays open: a learner may go on with it."""
        self._stopping = True

    def apply(self, arrival: Arrival) -> None:
        """Account for one record, in order: refuse, de-duplicate, filter by version, insert."""
        accounting = self.accounting
        record = arrival.record
        accounting.offsets_advanced += 1 + arrival.skipped
        self._positions[record.partition] = record.offset + 1
        if arrival.skipped:
            self._note_gap(arrival)
        if arrival.error is not None:
            self._refuse(arrival, arrival.error)
            return
        headers = arrival.headers
        if headers is None:
            raise AssertionError("an arrival without headers carries an error")
        if self.identities.seen(headers.identity):
            accounting.duplicates += 1
            self.metrics.duplicates.inc()
            return
        self.identities.count(headers.identity, headers.count)
        lag = self.version.number - headers.version.number
        if lag < 0:
            self._reject(FUTURE)
        elif lag >= self.config.learner.version_window:
            accounting.reject_stale(headers.actor, lag, headers.count)
            self.metrics.rejected.labels("stale").inc()
        elif arrival.chunk is not None:
            self.insert(headers, arrival.chunk)
            accounting.accept(arrival.chunk.steps, lag)
            self.metrics.accepted.inc(arrival.chunk.steps)
        else:
            raise AssertionError("a chunk inside the version window was not decoded")

    def publish(self) -> None:
        """Hand the current weights over as the next version."""
        with self.monitor_timing(self.metrics.publish_seconds):
            parent = self.version.number if self.version.number >= 0 else None
            self.version = Version(self.version.epoch, self.version.number + 1)
            record = ModelVersionRecord(
                run=self.run_name,
                epoch=self.version.epoch,
                number=self.version.number,
                key="",
                size=0,
                sha256="",
                parent_number=parent,
                transitions=self.accounting.accepted_transitions,
                updates=self.updates,
                created_ms=int(time.time() * 1000),
            )
            self._publisher.submit(record, self.weights())
        self.metrics.version.set(self.version.number)
        every = self.config.learner.checkpoint_every
        if every and self.version.number and self.version.number % every == 0:
            self.checkpoint(self.folder.checkpoint)

    # -- checkpoint and configuration ---------------------------------------------------------------------------------

    def checkpoint(self, path: Path, options: Mapping[str, Any] | None = None) -> None:
        """Save networks, optimizer, counters and reading positions; the checkpoint before is kept.

        Args:
            path: the checkpoint's folder.
            options: ``note``: a text to keep with it.
        """
        tensors, values = self.state()
        accounting = self.accounting
        state = {
            "run": self.run_name,
            "epoch": self.version.epoch,
            "number": self.version.number,
            "updates": self.updates,
            "accepted": accounting.accepted,
            "accounting": accounting.to_json(),
            "accepted_transitions": accounting.accepted_transitions,
            "positions": {str(partition): offset for partition, offset in self._positions.items()},
            "note": str((options or {}).get("note", "")),
            "algorithm": values,
        }
        save_checkpoint(path, tensors, state)

    def load_checkpoint(self, path: Path) -> None:
        """Take over a checkpoint's networks, optimizer, counters and reading positions.

        Raises:
            CheckpointError: it is missing, damaged, or of another run or network.
        """
        tensors, state = load_checkpoint(path)
        if state["run"] != self.run_name:
            raise CheckpointError(f"{path} is of run {state['run']!r}, this is {self.run_name!r}.")
        self.load_state(tensors, state["algorithm"])
        self.version = Version(self.version.epoch, max(self.version.number, state["number"]))
        self.updates = state["updates"]
        self.accounting.accepted_transitions = state["accepted_transitions"]
        self._positions = {int(partition): offset for partition, offset in state["positions"].items()}

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
        if not self.metrics.enabled:
            yield
            return
        started = time.perf_counter()
        yield
        prom_timer.set(time.perf_counter() - started)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _train_while_due(self) -> None:
        while not self._stopping and self.train_due():
            with self.monitor_timing(self.metrics.update_seconds):
                publish = self.train_step()
            self.updates += 1
            self.metrics.updates.inc()
            if publish:
                self.publish()
            self._beat()
        limit = self.config.learner.max_transitions
        if limit and self.accounting.accepted_transitions >= limit and not self._stopping:
            log.info("%d transitions are accepted: the run ends.", self.accounting.accepted_transitions)
            self.publish()
            self._announce_run("stopped")
            self._stopping = True

    def _reject(self, reason: str) -> None:
        self.accounting.reject(reason)
        self.metrics.rejected.labels(reason).inc()

    def _refuse(self, arrival: Arrival, error: InvalidRecordError) -> None:
        headers = arrival.headers
        actor = headers.actor if headers is not None else ""
        if headers is not None:
            # Judged all the same: an actor that paces itself must not wait for a refused chunk.
            self.identities.count(headers.identity, headers.count)
            self.accounting.rejected_transitions += headers.count
        self._reject(error.reason.value)
        self._dead_letters.write(arrival.record, actor, error)
        if self.accounting.rejected[error.reason.value] == 1:
            log.warning("A record of %s was refused and is a dead letter now: %s", actor or "unknown", error)

    def _note_gap(self, arrival: Arrival) -> None:
        self.accounting.expired += arrival.skipped
        self.metrics.expired.inc(arrival.skipped)
        record = arrival.record
        log.log(
            logging.DEBUG if self._gaps_said else logging.WARNING,
            "%s, partition %d: %d offsets before %d were gone when they were to be read; they are counted as expired.",
            record.topic,
            record.partition,
            arrival.skipped,
            record.offset,
        )
        self._gaps_said = True

    def _beat(self) -> None:
        """Say how far the learner has come, at most every ``learner.heartbeat_s``."""
        now = time.monotonic()
        if now < self._heartbeat_due:
            return
        self._heartbeat_due = now + self.config.learner.heartbeat_s
        positions = tuple(Position(*position) for position in self.identities.positions())
        beat = Heartbeat(
            run=self.run_name,
            node="learner",
            role="learner",
            session=self._session,
            sequence=self._heartbeats,
            sent_ms=int(time.time() * 1000),
            version_epoch=self.version.epoch,
            version_number=max(0, self.version.number),
            transitions=self.accounting.accepted_transitions,
            rejected=self.accounting.rejected_transitions,
            positions=positions,
        )
        self._heartbeats += 1
        try:
            self._producer.send(self.topics.heartbeats, beat.encode(), key="learner")
            self._producer.poll(0)
        except PipelineError as error:
            log.debug("no heartbeat: %s", error)
        self.metrics.actors.set(len(positions))

    @contextmanager
    def _opened(self) -> Generator[tuple[Ingest, BackgroundPublisher]]:
        """Everything that talks to the outside, opened in order and closed in reverse."""
        config = self.config
        connection = connect(config)
        kafka = config.kafka
        ensure_topics(
            connection.broker,
            self.topics.specs(partitions=kafka.partitions, retention_ms=kafka.retention_ms),
            timeout=kafka.timeout_s,
            replication=kafka.replication,
        )
        store = ObjectStore(connection.store)
        store.ensure_bucket()
        self._connection = connection
        self._producer = Producer(connection.broker)
        self._dead_letters = DeadLetters(self._producer, self.topics, self.run_name)
        publisher = BackgroundPublisher(Publisher(store, self._producer, self.topics))
        self._resume()
        self._announce_run("running")
        self.folder.save_config(config)
        start = {(self.topics.samples, partition): offset for partition, offset in self._positions.items()}
        reader = LogReader(connection.broker, self.topics.samples, start=start or "earliest")
        ingest = Ingest(
            reader,
            self.layout,
            self.run_name,
            Limits(max_bytes=config.learner.max_chunk_bytes),
            config.learner.prefetch_chunks,
            oldest=lambda: self.version.number - config.learner.version_window + 1,
        )
        ingest.start()
        try:
            yield ingest, publisher
        finally:
            ingest.close()
            publisher.close(timeout=20.0)
            self._producer.close()

    def _resume(self) -> None:
        """Claim the next epoch, and go on with numbers where the versions topic says."""
        newest = Version(0, -1)
        reader = LogReader(self._connection.broker, [self.topics.versions], start="earliest")
        try:
            for record in reader.read_to_end(self.config.kafka.timeout_s):
                try:
                    seen = ModelVersionRecord.decode(record.value or b"")
                except InvalidRecordError as error:
                    log.warning("versions, offset %d: %s", record.offset, error)
                    continue
                newest = Version(max(newest.epoch, seen.epoch), max(newest.number, seen.number))
        finally:
            reader.close()
        self.version = Version(newest.epoch + 1, newest.number)
        if newest.number >= 0 and has_checkpoint(self.folder.checkpoint):
            self.load_checkpoint(self.folder.checkpoint)
            log.info("Run %s goes on after version %s.", self.run_name, newest)
        claim = ModelVersionRecord(
            run=self.run_name,
            epoch=self.version.epoch,
            number=max(0, self.version.number),
            key="",
            size=0,
            sha256="",
            created_ms=int(time.time() * 1000),
            kind="claim",
        )
        self._producer.send_and_wait(self.topics.versions, claim.encode(), timeout=self.config.kafka.timeout_s)

    def _announce_run(self, state: str) -> None:
        store = self._connection.store
        manifest = RunManifest(
            run=self.run_name,
            namespace=self.config.namespace,
            created_ms=self._created_ms,
            epoch=self.version.epoch,
            config_json=json.dumps(to_dict(self.config)),
            layout_json=json.dumps(self.layout.to_json()),
            schemas=tuple(fingerprint(name) for name in _READ_SCHEMAS),
            store_endpoint=store.endpoint,
            store_bucket=store.bucket,
            store_secure=store.secure,
            algorithm=self.config.algorithm.name,
            environment=self.config.environment.id,
            state=state,
        )
        publish_manifest(self._producer, self.topics, manifest)
