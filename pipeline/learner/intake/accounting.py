"""What became of every record: the sums that must always hold."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from pipeline.experience import Chunk
from pipeline.wire import JournalCounters

STALE = "stale"
"""Reason of a chunk that an older version acted in than the window allows."""
FUTURE = "unknown-version"
"""Reason of a chunk that names a version which was never published."""

BEFORE = "before-restart"
"""Stands for reasons that a restart without a checkpoint forgot."""

_MAX_STALE = 10_000


@dataclass
class Accounting:
    """Counts of records and of the transitions in them.

    At any time ``offsets_advanced == accepted + sum(rejected.values()) + duplicates + expired``, all in records.

    Attributes:
        accepted: records inserted.
        accepted_transitions: transitions in them.
        duplicates: records whose identity had been seen before.
        expired: offsets that the log no longer held, or never showed, when they were read.
        offsets_advanced: how far the reading positions moved, over all partitions.
        bytes: bytes of the values read.
        reward_sum: sum of the accepted rewards.
        rejected: records refused, by reason.
        rejected_transitions: transitions in refused chunks, as their headers say.
        stale_transitions: those of them in chunks that were too old.
        by_actor: stale chunks by (actor, policy lag in versions).
        lag: accepted chunks by policy lag in versions.
    """

    accepted: int = 0
    accepted_transitions: int = 0
    duplicates: int = 0
    expired: int = 0
    offsets_advanced: int = 0
    bytes: int = 0
    reward_sum: float = 0.0
    rejected: Counter[str] = field(default_factory=Counter[str])
    rejected_transitions: int = 0
    stale_transitions: int = 0
    by_actor: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    lag: Counter[int] = field(default_factory=Counter[int])

    def advance(self, offsets: int, size: int) -> None:
        """A partition's position moved over this many offsets, and a value of ``size`` bytes was read."""
        self.offsets_advanced += offsets
        self.bytes += size

    def accept(self, chunk: Chunk, lag: int) -> None:
        """A chunk is inserted."""
        self.accepted += 1
        self.accepted_transitions += chunk.steps
        self.reward_sum += float(chunk.columns["reward"].sum(dtype=np.float64))
        self.lag[lag] += 1

    def reject_stale(self, actor: str, lag: int, transitions: int) -> None:
        """A chunk is older than the window."""
        self.reject(STALE, transitions)
        self.stale_transitions += transitions
        if (actor, lag) in self.by_actor or len(self.by_actor) < _MAX_STALE:
            self.by_actor[actor, lag] += 1

    def reject(self, reason: str, transitions: int) -> None:
        """A record is refused, and the transitions that its header speaks of with it."""
        self.rejected[reason] += 1
        self.rejected_transitions += transitions

    @property
    def records(self) -> int:
        """Records and expired offsets that have been accounted for."""
        return self.accepted + self.rejected.total() + self.duplicates + self.expired

    def holds(self) -> bool:
        """Whether the sum holds."""
        return self.offsets_advanced == self.records

    def counters(self) -> JournalCounters:
        """The sums that each version's journal carries."""
        return JournalCounters(
            offsets_advanced=self.offsets_advanced,
            accepted=self.accepted,
            rejected=self.rejected.total(),
            duplicates=self.duplicates,
            expired=self.expired,
            bytes=self.bytes,
            reward_sum=self.reward_sum,
        )

    def to_json(self) -> dict[str, Any]:
        """All counts, for the checkpoint and for people; stale chunks by actor and lag."""
        return {
            "offsets_advanced": self.offsets_advanced,
            "accepted": self.accepted,
            "accepted_transitions": self.accepted_transitions,
            "duplicates": self.duplicates,
            "expired": self.expired,
            "bytes": self.bytes,
            "reward_sum": self.reward_sum,
            "rejected": dict(self.rejected),
            "rejected_transitions": self.rejected_transitions,
            "stale_transitions": self.stale_transitions,
            "accepted_by_lag": {str(lag): count for lag, count in sorted(self.lag.items())},
            "stale": [[actor, lag, count] for (actor, lag), count in sorted(self.by_actor.items())],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """What :meth:`to_json` gave."""
        plain = dict(values)
        lag = Counter({int(lag): count for lag, count in plain.pop("accepted_by_lag").items()})
        by_actor = Counter({(actor, lag): count for actor, lag, count in plain.pop("stale")})
        rejected = Counter[str](plain.pop("rejected"))
        return cls(**plain, rejected=rejected, by_actor=by_actor, lag=lag)

    @classmethod
    def from_counters(cls, counters: JournalCounters, transitions: int) -> Self:
        """What a version's journal still tells, where nothing better is left; reasons are one then."""
        return cls(
            accepted=counters.accepted,
            accepted_transitions=transitions,
            duplicates=counters.duplicates,
            expired=counters.expired,
            offsets_advanced=counters.offsets_advanced,
            bytes=counters.bytes,
            reward_sum=counters.reward_sum,
            rejected=Counter({BEFORE: counters.rejected} if counters.rejected else {}),
        )
