"""Typed records of all schemas but the chunk's, and their way to bytes and back.

``decode`` raises `InvalidRecordError` for anything that is not exactly one such record, and for
figures that no honest writer sends. Times are unix milliseconds of the writer's clock and only
for display: nothing is decided by them.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.experience.chunk import Ending
from pipeline.experience.episode import EpisodeInfo
from pipeline.experience.version import Version
from pipeline.wire.codec import MAX_BYTES, decode, encode

_HEX_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_INFO = 256


@dataclass(frozen=True)
class WireRecord:
    """A dataclass whose fields are those of a schema."""

    SCHEMA: ClassVar[str]

    def encode(self) -> bytes:
        """The record in Avro single-object encoding."""
        return encode(self.SCHEMA, self._to_dict())

    @classmethod
    def decode(cls, data: bytes | memoryview, max_bytes: int = MAX_BYTES) -> Self:
        """Read one record.

        Raises:
            InvalidRecordError: the bytes are anything but one such record.
        """
        record = cls._from_dict(decode(data, cls.SCHEMA, max_bytes))
        record.check()
        return record

    def check(self) -> None:
        """Check the rules that the schema cannot say.

        Raises:
            InvalidRecordError: MALFORMED, with the rule.
        """

    def _to_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def _from_dict(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**{field.name: fields[field.name] for field in dataclasses.fields(cls)})


@dataclass(frozen=True)
class ModelVersionRecord(WireRecord):
    """A line of the run's journal: a published version, the claim of an epoch, or a pin.

    Attributes:
        run: the run's name.
        epoch: the learner's claim.
        number: the version's number; for a claim, the newest number that the claimant saw.
        key: object key of the weights; empty unless they are announced.
        size: bytes of the object.
        sha256: of the object, 64 hexadecimal characters; empty unless they are announced.
        parent_number: the version these weights were trained on from; None for the first.
        transitions: transitions accepted so far, over all epochs.
        updates: train steps so far, over all epochs.
        created_ms: when it was made.
        kind: ``weights``, ``claim`` of an epoch, or ``pin``: the version stays through clean-ups.
        journal: an encoded `Journal`: what was applied since the parent; None in claims and pins.
        note: free text, such as why it was saved.
        platform: in a claim, device and library versions that the epoch is computed with.
        samples_id: in a claim, Kafka's id of the samples topic; empty where the broker has none.
        config_json: in a claim, the configuration that the epoch is computed with, secrets left out.
        exploration: the share of random actions that actors take under it.
    """

    SCHEMA: ClassVar[str] = "model_version"
    run: str
    epoch: int
    number: int
    key: str
    size: int
    sha256: str
    parent_number: int | None = None
    transitions: int = 0
    updates: int = 0
    created_ms: int = 0
    kind: str = "weights"
    journal: bytes | None = None
    note: str = ""
    platform: str = ""
    samples_id: str = ""
    config_json: str = ""
    exploration: float = 0.0

    @property
    def version(self) -> Version:
        """Epoch and number."""
        return Version(self.epoch, self.number)

    def check(self) -> None:
        _require(self.version.in_range(), f"version {self.version} is out of range")
        _not_negative(self, "size", "transitions", "updates")
        _require(0.0 <= self.exploration <= 1.0, f"an exploration of {self.exploration} is not between 0 and 1")
        if self.kind == "weights":
            _require(_HEX_SHA256.fullmatch(self.sha256) is not None, "sha256 is not 64 hex digits")
            _require(0 < len(self.key) <= 1024, "the object key has not 1 to 1024 characters")


@dataclass(frozen=True)
class RunManifest(WireRecord):
    """All that a client needs to know of a run.

    Attributes:
        run, namespace: topics are named ``<namespace>.<run>.<topic>``.
        created_ms: when the run was made.
        epoch: newest epoch at the time of writing.
        config_json: the resolved config, secrets left out.
        layout_json: `Layout.to_json` as text.
        schemas: fingerprints of the schemas that the learner reads, hexadecimal.
        store_endpoint, store_bucket, store_secure: where the weights are.
        algorithm, environment: names, for display and for finding a run.
        state: ``running``, ``stopped`` or ``solved``.
    """

    SCHEMA: ClassVar[str] = "run_manifest"
    run: str
    namespace: str
    created_ms: int
    epoch: int
    config_json: str
    layout_json: str
    schemas: tuple[str, ...]
    store_endpoint: str
    store_bucket: str
    store_secure: bool
    algorithm: str
    environment: str
    state: str = "running"

    def check(self) -> None:
        _require(Version(self.epoch, 0).in_range(), f"epoch {self.epoch} is out of range")

    def _to_dict(self) -> dict[str, Any]:
        return {**super()._to_dict(), "schemas": list(self.schemas)}

    @classmethod
    def _from_dict(cls, fields: Mapping[str, Any]) -> Self:
        return super()._from_dict({**fields, "schemas": tuple(fields["schemas"])})


@dataclass(frozen=True)
class Command(WireRecord):
    """An order to the learner, applied once per id.

    Attributes:
        id: unique; a command of an id that was applied already is passed over.
        kind: what to do, such as ``quicksave``, ``stop`` or ``set``.
        argument_json: the arguments, a JSON object.
        issued_ms: when it was given.
        issuer: who gave it.
    """

    SCHEMA: ClassVar[str] = "command"
    id: str
    kind: str
    argument_json: str = "{}"
    issued_ms: int = 0
    issuer: str = ""

    def check(self) -> None:
        _require(0 < len(self.id) <= 256, "the command's id has not 1 to 256 characters")


@dataclass(frozen=True)
class Position:
    """How far the learner has come in one session of one actor.

    Attributes:
        session: the actor's session.
        sequence: highest chunk number applied.
        transitions: transitions of the session judged so far, accepted or not.
        stale: those of them that were refused as too old.
    """

    session: str
    sequence: int
    transitions: int
    stale: int = 0


@dataclass(frozen=True)
class Member:
    """What the learner says to a client that asked to take part in synchronous training.

    Attributes:
        session, actor: the client's.
        state: ``waiting`` (taken in with a later version), ``member``, ``lost`` or ``refused``.
        since: number of the version from which on it takes part; -1: of none.
        detail: why, where it is lost or refused.
    """

    session: str
    actor: str
    state: str
    since: int = -1
    detail: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of a command.

    Attributes:
        id: the command's id.
        done: whether it was carried out.
        detail: what came of it (such as a path), or why it was not.
    """

    id: str
    done: bool
    detail: str = ""


@dataclass(frozen=True)
class Heartbeat(WireRecord):
    """A sign of life.

    Attributes:
        run: the run's name.
        node: the actor's or node's name.
        role: ``actor``, ``learner`` or ``telemetry``.
        session: the sender's session.
        sequence: number of the heartbeat within the session.
        sent_ms: when it was sent.
        version_epoch, version_number: the version it holds.
        transitions: transitions made, or accepted, so far.
        dropped: transitions that the bounded queue dropped so far.
        rejected: from a learner, transitions refused so far, for whatever reason.
        positions: from a learner, how far it is in each session: what pacing goes by.
        joins: from an actor, whether it asks to take part in synchronous training.
        members: from a learner in synchronous training, who takes part.
        outcomes: from a learner, the commands finished last.
    """

    SCHEMA: ClassVar[str] = "heartbeat"
    run: str
    node: str
    role: str
    session: str
    sequence: int
    sent_ms: int
    version_epoch: int = 0
    version_number: int = 0
    transitions: int = 0
    dropped: int = 0
    rejected: int = 0
    positions: tuple[Position, ...] = ()
    joins: bool = False
    members: tuple[Member, ...] = ()
    outcomes: tuple[Outcome, ...] = ()

    def check(self) -> None:
        _not_negative(self, "sequence", "transitions", "dropped", "rejected")
        version = Version(self.version_epoch, self.version_number)
        _require(version.in_range(), f"version {version} is out of range")

    def _to_dict(self) -> dict[str, Any]:
        positions = [dataclasses.asdict(position) for position in self.positions]
        outcomes = [dataclasses.asdict(outcome) for outcome in self.outcomes]
        members = [dataclasses.asdict(member) for member in self.members]
        return {**super()._to_dict(), "positions": positions, "members": members, "outcomes": outcomes}

    @classmethod
    def _from_dict(cls, fields: Mapping[str, Any]) -> Self:
        positions = tuple(
            Position(item["session"], item["sequence"], item["transitions"], item["stale"])
            for item in fields["positions"]
        )
        members = tuple(Member(**item) for item in fields["members"])
        outcomes = tuple(Outcome(item["id"], item["done"], item["detail"]) for item in fields["outcomes"])
        return super()._from_dict({**fields, "positions": positions, "members": members, "outcomes": outcomes})


@dataclass(frozen=True)
class TelemetryWindow(WireRecord):
    """Statistics over a window of episodes.

    Attributes:
        run: the run's name.
        first_ms, last_ms: log time of the first and last episode.
        episodes: number of episodes.
        mean_return, mean_steps, best_return: over the window.
        version_number: newest version that acted in it.
        transitions: steps of the run's episodes so far.
        metrics: further figures by name.
    """

    SCHEMA: ClassVar[str] = "telemetry_window"
    run: str
    first_ms: int
    last_ms: int
    episodes: int
    mean_return: float
    mean_steps: float
    best_return: float
    version_number: int
    transitions: int
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])

    def _to_dict(self) -> dict[str, Any]:
        return {**super()._to_dict(), "metrics": _metrics_to_list(self.metrics)}

    @classmethod
    def _from_dict(cls, fields: Mapping[str, Any]) -> Self:
        metrics = _metrics_from_list(fields["metrics"])
        return super()._from_dict({**fields, "metrics": metrics})


@dataclass(frozen=True)
class DeadLetter(WireRecord):
    """A record that was refused.

    Attributes:
        run: the run's name.
        topic, partition, offset: where the refused record lies.
        timestamp_ms: the broker's time of the record.
        reason: a `RejectReason` value.
        detail: a sentence with the figures.
        actor: the actor as its header says, or empty.
        sha256: of the whole value, hexadecimal.
        head: the value's first bytes, at most 1024.
    """

    SCHEMA: ClassVar[str] = "dead_letter"
    run: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    reason: str
    detail: str
    actor: str
    sha256: str
    head: bytes

    def check(self) -> None:
        _require(len(self.head) <= 1024, "head is longer than 1024 bytes")


def encode_episode(episode: EpisodeInfo) -> bytes:
    """An episode summary in Avro single-object encoding."""
    fields = {field.name: getattr(episode, field.name) for field in dataclasses.fields(episode)}
    version = cast("Version", fields.pop("version"))
    return encode(
        "episode",
        {
            **fields,
            "version_epoch": version.epoch,
            "version_number": version.number,
            "ending": Ending(episode.ending).name,
            "info": _metrics_to_list(episode.info),
        },
    )


def decode_episode(data: bytes | memoryview, max_bytes: int = MAX_BYTES) -> EpisodeInfo:
    """Read one episode summary.

    Raises:
        InvalidRecordError: the bytes are anything but one, or its return is not finite.
    """
    fields = decode(data, "episode", max_bytes)
    version = Version(fields.pop("version_epoch"), fields.pop("version_number"))
    ending = Ending[fields.pop("ending")]
    info = _metrics_from_list(fields.pop("info"))
    names = [field.name for field in dataclasses.fields(EpisodeInfo)]
    known = {name: fields[name] for name in names if name in fields}
    episode = EpisodeInfo(**known, version=version, ending=ending, info=info)
    _require(version.in_range(), f"version {version} is out of range")
    _not_negative(episode, "episode", "environment", "steps")
    if not math.isfinite(episode.total_return):
        raise InvalidRecordError(RejectReason.NOT_FINITE, "the episode's return is not finite")
    return episode


def _metrics_to_list(metrics: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"name": name, "value": float(value)} for name, value in metrics.items()]


def _metrics_from_list(items: list[Mapping[str, Any]]) -> dict[str, float]:
    _require(len(items) <= _MAX_INFO, f"more than {_MAX_INFO} metrics")
    return {item["name"]: item["value"] for item in items}


def _not_negative(record: object, *names: str) -> None:
    for name in names:
        _require(getattr(record, name) >= 0, f"{name} is negative")


def _require(condition: bool, rule: str) -> None:
    if not condition:
        raise InvalidRecordError(RejectReason.MALFORMED, rule)
