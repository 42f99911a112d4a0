"""Whether a record counts: de-duplication, the version window, validity, in that order.

The verdict follows from the records judged before and from the version in force alone, so whoever
reads the log again in the journal's order comes to the same one.
"""

from pipeline.experience import Version
from pipeline.learner.accounting import FUTURE, STALE, Accounting
from pipeline.learner.arrival import Arrival
from pipeline.learner.identities import Identities

ACCEPTED = "accepted"
DUPLICATE = "duplicate"


class Judge:
    """Judges records in the fold's order and keeps the accounts.

    Args:
        window: chunks of this many newest versions are accepted.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.accounting = Accounting()
        self.identities = Identities()

    def judge(self, arrival: Arrival, version: Version) -> str:
        """The verdict: `ACCEPTED`, `DUPLICATE`, `STALE`, `FUTURE`, or a `RejectReason`'s value.

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
        # Judged, whatever comes of it: an actor that paces itself must not wait for a refused chunk.
        self.identities.count(headers.identity, headers.count)
        lag = version.number - headers.version.number
        if lag < 0 or headers.version.epoch > version.epoch:
            accounting.reject(FUTURE, headers.count)
            return FUTURE
        if lag >= self.window:
            accounting.reject_stale(headers.actor, lag, headers.count)
            return STALE
        if arrival.error is not None:
            # After the version: an old chunk may not have been decoded at all.
            return self._refused(arrival)
        chunk = arrival.chunk
        if chunk is None:
            raise AssertionError("a chunk inside the version window was not decoded")
        accounting.accept(chunk, lag)
        return ACCEPTED

    def _refused(self, arrival: Arrival) -> str:
        if arrival.error is None:
            raise AssertionError("an arrival without headers carries an error")
        reason = arrival.error.reason.value
        self.accounting.reject(reason, arrival.headers.count if arrival.headers is not None else 0)
        return reason
