"""A recorded run: where it is, and what its manifest and its journal say."""

import json
from dataclasses import dataclass, replace
from functools import cached_property

from pipeline.broker import BrokerSettings, Topics, list_runs
from pipeline.config import PipelineConfig, from_dict
from pipeline.connect import Connection, connect, voucher_of
from pipeline.errors import ConfigError, ReplayError, RunNotFoundError, SpaceError
from pipeline.experience import Layout
from pipeline.weights import Lineage
from pipeline.wire import Limits, RunManifest, Voucher


@dataclass(frozen=True)
class RecordedRun:
    """One run on the log.

    Attributes:
        manifest: as the learner wrote it last.
        connection: how broker and store are reached.
        asked: the configuration of whoever asks; its ``replay`` section says what for.
    """

    manifest: RunManifest
    connection: Connection
    asked: PipelineConfig

    @property
    def name(self) -> str:
        """The run's name."""
        return self.manifest.run

    @property
    def broker(self) -> BrokerSettings:
        """The broker."""
        return self.connection.broker

    @property
    def timeout(self) -> float:
        """Seconds that the broker may be silent."""
        return self.asked.kafka.timeout_s

    @cached_property
    def topics(self) -> Topics:
        """Names of its topics."""
        return Topics(self.manifest.namespace, self.manifest.run)

    @property
    def samples(self) -> str:
        """The topic that samples are read from: the run's own, or the copy that was asked for."""
        return self.asked.replay.samples_topic or self.topics.samples

    def topic(self, kind: str) -> str:
        """The full name of the topic that the setting ``replay.topic`` calls by its last word."""
        return self.samples if kind == "samples" else getattr(self.topics, kind.replace("-", "_"))

    @cached_property
    def config(self) -> PipelineConfig:
        """The configuration that the learner ran with.

        Raises:
            ReplayError: this version of the package does not understand it.
        """
        try:
            return from_dict(json.loads(self.manifest.config_json))
        except (ConfigError, ValueError) as error:
            raise ReplayError(
                f"The configuration in the manifest of run {self.name} cannot be read: {error}"
            ) from error

    def config_of(self, lineage: Lineage, epoch: int) -> PipelineConfig:
        """The configuration that the learner of an epoch ran with, as its claim says.

        Raises:
            ReplayError: this version of the package does not understand it.
        """
        claim = lineage.claims.get(epoch)
        if claim is None or not claim.config_json:
            return self.config
        try:
            return from_dict(json.loads(claim.config_json))
        except (ConfigError, ValueError) as error:
            raise ReplayError(
                f"The configuration in the claim of epoch {epoch} of run {self.name} cannot be read: {error}"
            ) from error

    @cached_property
    def layout(self) -> Layout:
        """Its columns.

        Raises:
            ReplayError: the manifest names a space that cannot be carried.
        """
        try:
            return Layout.from_json(json.loads(self.manifest.layout_json))
        except (SpaceError, ValueError) as error:
            raise ReplayError(f"The layout in the manifest of run {self.name} cannot be read: {error}") from error

    @property
    def limits(self) -> Limits:
        """What its learner refused as too large."""
        return Limits(max_bytes=self.config.learner.max_chunk_bytes)

    @property
    def voucher(self) -> Voucher | None:
        """What its learner checks actors' names by.

        Raises:
            ConfigError: the secret file of whoever asks does not hold the key.
        """
        return voucher_of(replace(self.config, secret=self.asked.secret))


def find_recorded(config: PipelineConfig) -> RecordedRun:
    """The run that the configuration names, or the newest one, whatever its state.

    Raises:
        RunNotFoundError: there is no such run; names those that there are.
        BrokerUnreachableError: nobody answers at the address.
    """
    connection = connect(config)
    manifests = list_runs(connection.broker, config.namespace, config.kafka.timeout_s)
    found = [manifest for manifest in manifests if config.run in ("", manifest.run)]
    if not found:
        there = ", ".join(manifest.run for manifest in manifests[-10:]) or "none"
        wanted = f"run {config.run!r}" if config.run else "run"
        raise RunNotFoundError(
            f"There is no {wanted} in namespace {config.namespace!r} at {connection.broker.address}; "
            f"runs there: {there}."
        )
    return RecordedRun(found[-1], connection.with_manifest(found[-1]), config)
