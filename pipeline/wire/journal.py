"""The journal: what made a model version of its parent.

Written into each version's record by the learner, read by recovery and by verification.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.experience.version import Version
from pipeline.wire.records import WireRecord

COMMANDS = -1
"""The source of a step that applies the next command."""
EVENTS = -2
"""The source of a step that applies the next event."""

_NO_PARENT = Version(-1, -1)


@dataclass(frozen=True, slots=True)
class JournalStep:
    """One step of the fold.

    Attributes:
        source: the samples partition that was read on, `COMMANDS`, or `EVENTS`.
        next_offset: the records of the source before this offset were applied; of `EVENTS` always 0.
        updates: train steps made then, where training is free-running.
    """

    source: int
    next_offset: int
    updates: int = 0


@dataclass(frozen=True, slots=True)
class JournalCommand:
    """A command that was applied.

    Attributes:
        id, kind, argument_json: as in the `Command`.
    """

    id: str
    kind: str
    argument_json: str = "{}"


@dataclass(frozen=True, slots=True)
class JournalEvent:
    """A decision of the learner that depends on time, such as that a client is lost.

    Attributes:
        kind: what was decided.
        detail_json: its particulars, a JSON object.
    """

    kind: str
    detail_json: str = "{}"


@dataclass(frozen=True, slots=True)
class JournalCounters:
    """The learner's sums since the run began, after the last step.

    Attributes:
        offsets_advanced: how far reading moved, all partitions together.
        accepted: chunks inserted.
        rejected: records refused, for whatever reason.
        duplicates: records seen before.
        expired: offsets that the log no longer held.
        bytes: bytes of the values read.
        reward_sum: sum of the accepted rewards.
    """

    offsets_advanced: int = 0
    accepted: int = 0
    rejected: int = 0
    duplicates: int = 0
    expired: int = 0
    bytes: int = 0
    reward_sum: float = 0.0


@dataclass(frozen=True)
class Journal(WireRecord):
    """What made a model version of its parent.

    Attributes:
        parent: the version whose state the steps begin with; None for the first.
        seed: of networks and sampling.
        free_running: whether train steps are written down; otherwise the counts tell when they
            were due.
        steps: in the order in which they were made.
        commands: the commands among the steps, in order.
        events: the events among the steps, in order.
        positions: where the steps begin, by source: in the first version and after a break;
            otherwise empty, and they begin where the parent's ended.
        counters: after the last step.
        samples: hash chain over headers and values of the records applied, 8 bytes; empty before the first.
        origin: run and version that the state was loaded from, where it is not the parent's.
        origin_sha256: of that checkpoint's manifest.
        broken: why the parent's state could not be reached again; empty: it was.
    """

    SCHEMA: ClassVar[str] = "journal"
    parent: Version | None
    seed: int = 0
    free_running: bool = False
    steps: tuple[JournalStep, ...] = ()
    commands: tuple[JournalCommand, ...] = ()
    events: tuple[JournalEvent, ...] = ()
    positions: Mapping[int, int] = field(default_factory=dict[int, int])
    counters: JournalCounters = JournalCounters()
    samples: bytes = b""
    origin: str = ""
    origin_sha256: str = ""
    broken: str = ""

    def check(self) -> None:
        for source, given, what in ((COMMANDS, self.commands, "commands"), (EVENTS, self.events, "events")):
            applied = sum(step.source == source for step in self.steps)
            if applied != len(given):
                detail = f"{applied} steps apply {what}, but there are {len(given)}"
                raise InvalidRecordError(RejectReason.MALFORMED, detail)

    def _to_dict(self) -> dict[str, Any]:
        parent = self.parent or _NO_PARENT
        return {
            "parent_epoch": parent.epoch,
            "parent_number": parent.number,
            "seed": self.seed,
            "free_running": self.free_running,
            "steps": [asdict(step) for step in self.steps],
            "commands": [asdict(command) for command in self.commands],
            "events": [asdict(event) for event in self.events],
            "positions": [{"source": s, "next_offset": offset} for s, offset in self.positions.items()],
            "counters": asdict(self.counters),
            "samples": self.samples,
            "origin": self.origin,
            "origin_sha256": self.origin_sha256,
            "broken": self.broken,
        }

    @classmethod
    def _from_dict(cls, fields: Mapping[str, Any]) -> Self:
        fields = dict(fields)
        parent = Version(fields.pop("parent_epoch"), fields.pop("parent_number"))
        return cls(
            parent=None if parent == _NO_PARENT else parent,
            steps=tuple(JournalStep(**step) for step in fields.pop("steps")),
            commands=tuple(JournalCommand(**command) for command in fields.pop("commands")),
            events=tuple(JournalEvent(**event) for event in fields.pop("events")),
            positions={item["source"]: item["next_offset"] for item in fields.pop("positions")},
            counters=JournalCounters(**fields.pop("counters")),
            samples=bytes(fields.pop("samples")),
            **fields,
        )
