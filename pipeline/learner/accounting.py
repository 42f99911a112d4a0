"""What became of every record: the sums that must always hold."""

from collections import Counter
from dataclasses import dataclass, field

from pipeline.errors import RejectReason

STALE = "stale"
"""Reason of a chunk that an older version acted in than the window allows."""
FUTURE = "unknown-version"
"""Reason of a chunk that names a version which was never published."""


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
        rejected: records refused, by reason.
        rejected_transitions: transitions in refused chunks, as their headers say.
        by_actor: stale chunks by (actor, policy lag in versions).
        lag: accepted chunks by policy lag in versions.
    """

    accepted: int = 0
    accepted_transitions: int = 0
    duplicates: int = 0
    expired: int = 0
    offsets_advanced: int = 0
    rejected: Counter[str] = field(default_factory=Counter[str])
    rejected_transitions: int = 0
    by_actor: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    lag: Counter[int] = field(default_factory=Counter[int])

    def accept(self, transitions: int, lag: int) -> None:
        """A chunk was inserted."""
        self.accepted += 1
        self.accepted_transitions += transitions
        self.lag[lag] += 1

    def reject_stale(self, actor: str, lag: int, transitions: int) -> None:
        """A chunk is older than the window."""
        self.rejected[STALE] += 1
        self.rejected_transitions += transitions
        if (actor, lag) in self.by_actor or len(self.by_actor) < 10_000:
            self.by_actor[actor, lag] += 1

    def reject(self, reason: RejectReason | str) -> None:
        """A record is refused."""
        self.rejected[reason.value if isinstance(reason, RejectReason) else reason] += 1

    def to_json(self) -> dict[str, object]:
        """All counts, for the checkpoint and for people; stale chunks by actor and lag."""
        return {
            "offsets_advanced": self.offsets_advanced,
            "accepted": self.accepted,
            "accepted_transitions": self.accepted_transitions,
            "duplicates": self.duplicates,
            "expired": self.expired,
            "rejected": dict(self.rejected),
            "rejected_transitions": self.rejected_transitions,
            "accepted_by_lag": {str(lag): count for lag, count in sorted(self.lag.items())},
            "stale": [[actor, lag, count] for (actor, lag), count in sorted(self.by_actor.items())],
        }

    @property
    def records(self) -> int:
        """Records and expired offsets that have been accounted for."""
        return self.accepted + self.rejected.total() + self.duplicates + self.expired

    def holds(self) -> bool:
        """Whether the sum holds."""
        return self.offsets_advanced == self.records
