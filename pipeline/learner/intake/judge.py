"""Whether a record counts: de-duplication, the version window, membership, validity, in that order.

The verdict follows from the records judged before, from the journal's events and from the version in force alone, so
whoever reads the log again in the journal's order comes to the same one.
"""

from pipeline.config import PipelineConfig
from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.experience import Version
from pipeline.learner.intake.accounting import FUTURE, STALE, Accounting
from pipeline.learner.intake.arrival import Arrival
from pipeline.learner.intake.identities import Identities
from pipeline.learner.members.roster import Roster
from pipeline.wire import JournalEvent

ACCEPTED = "accepted"
DUPLICATE = "duplicate"


class Judge:
    """Judges records in the fold's order and keeps the accounts.

    Args:
        window: chunks of this many newest versions are accepted.
        roster: in synchronous training, who takes part; None: everybody.
    """

    def __init__(self, window: int, roster: Roster | None = None) -> None:
        self.window = window
        self.roster = roster
        self.accounting = Accounting()
        self.identities = Identities()

    def judge(self, arrival: Arrival, version: Version) -> str:
        """The verdict: `ACCEPTED`, `DUPLICATE`, `STALE`, `FUTURE`, one of the roster's, or a `RejectReason`'s value.

        Args:
            arrival: the next record of its partition.
            version: in force now.
        """
        accounting = self.accounting
        accounting.advance(1 + arrival.skipped, len(arrival.record.value or b""))
        accounting.expired += arrival.skipped
        headers = arrival.headers
        if headers is None:
            return self._refused(arrival)
        if self.identities.seen(headers.identity):
            accounting.duplicates += 1
            return DUPLICATE
        lag = version.number - headers.version.number
        future = lag < 0 or headers.version.epoch > version.epoch
        # Judged, whatever comes of it: an actor that paces itself must not wait for a refused chunk.
        self.identities.count(headers.identity, headers.count, stale=lag >= self.window and not future)
        if future:
            accounting.reject(FUTURE, headers.count)
            return FUTURE
        if lag >= self.window:
            accounting.reject_stale(headers.actor, lag, headers.count)
            return STALE
        refusal = self.roster.refusal(headers) if self.roster is not None else ""
        if refusal:
            accounting.reject(refusal, headers.count)
            return refusal
        if arrival.error is not None:
            # After the version: an old chunk may not have been decoded at all.
            return self._refused(arrival)
        chunk = arrival.chunk
        if chunk is None:
            raise AssertionError("a chunk inside the version window was not decoded")
        accounting.accept(chunk, lag)
        if self.roster is not None:
            self.roster.accepted(headers, chunk)
        return ACCEPTED

    def note_event(self, event: JournalEvent) -> None:
        """Apply an event of the journal.

        Raises:
            InvalidRecordError: it is none of this run's, or malformed. Nothing was changed then.
        """
        if self.roster is None:
            raise InvalidRecordError(RejectReason.MALFORMED, f"this run's journal has no event {event.kind[:32]!r}")
        self.roster.apply(event)

    def cut(self, number: int) -> None:
        """A version of this number is in force now."""
        if self.roster is not None:
            self.roster.cut(number)

    def _refused(self, arrival: Arrival) -> str:
        if arrival.error is None:
            raise AssertionError("an arrival without headers carries an error")
        reason = arrival.error.reason.value
        self.accounting.reject(reason, arrival.headers.count if arrival.headers is not None else 0)
        return reason


def new_judge(config: PipelineConfig) -> Judge:
    """The judge of a run of these settings, at its beginning."""
    algorithm = config.algorithm
    synchronous = algorithm.name == "ppo"
    roster = Roster(algorithm.sync.min_clients, algorithm.ppo.max_rollout) if synchronous else None
    return Judge(config.learner.version_window, roster)
