"""What happened between two versions, as figures for people."""

import logging
import math
import time
from collections.abc import Callable, Mapping

from pipeline.broker import LogReader
from pipeline.errors import BrokerError, InvalidRecordError
from pipeline.learner.intake.accounting import Accounting
from pipeline.learner.reports.trackers import Trackers
from pipeline.wire import TelemetryWindow

log = logging.getLogger(__name__)

_MOST_BATCHES = 10
"""Read at once: training does not wait for whoever floods the topic."""


class Progress:
    """Differences of the learner's sums between two calls.

    Args:
        accounting: the sums now.
        updates: train steps so far.
        clock: monotonic seconds.
    """

    def __init__(self, accounting: Accounting, updates: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before = _sums(accounting, updates)
        self._at = clock()

    def since(self, accounting: Accounting, updates: int) -> dict[str, float]:
        """What was added since the call before, by name; rates where time has passed, means where there is anything.

        ``samples/…`` count transitions, ``samples/policy_lag`` is the mean over accepted chunks, in versions.
        """
        sums, now = _sums(accounting, updates), self._clock()
        added = {name: value - self._before[name] for name, value in sums.items()}
        seconds = now - self._at
        self._before, self._at = sums, now
        judged = added["accepted"] + added["rejected"]
        figures = {f"samples/{name}": added[name] for name in ("accepted", "rejected", "stale")}
        if judged:
            figures["samples/stale_share"] = added["stale"] / judged
        if added["chunks"]:
            figures["samples/policy_lag"] = added["lag"] / added["chunks"]
        if seconds > 0:
            figures["speed/updates_per_s"] = added["updates"] / seconds
            figures["speed/transitions_per_s"] = added["accepted"] / seconds
        return figures


class Returns:
    """The newest window of the run's telemetry: the learner itself knows nothing of episodes.

    Args:
        reader: the telemetry topic, from now on.
        run: its name.
    """

    def __init__(self, reader: LogReader, run: str) -> None:
        self._reader = reader
        self._run = run

    def newest(self) -> dict[str, float]:
        """Mean return and length over the window that came last since the call before; nothing if none came."""
        figures: dict[str, float] = {}
        try:
            for _ in range(_MOST_BATCHES):
                records = self._reader.poll(100, 0.0)
                if not records:
                    break
                for record in records:
                    figures = self._figures(record.value) or figures
        except BrokerError as error:
            log.debug("no telemetry: %s", error)
        return figures

    def close(self) -> None:
        """Read no more."""
        self._reader.close()

    def _figures(self, value: bytes) -> dict[str, float]:
        try:
            window = TelemetryWindow.decode(value)
        except InvalidRecordError:
            return {}  # anybody may write there; the next window says the same
        figures = {"episodes/mean_return": window.mean_return, "episodes/mean_steps": window.mean_steps}
        return figures if window.run == self._run and all(map(math.isfinite, figures.values())) else {}


class Tracking:
    """Hands what happened since the version before to the trackers.

    Args:
        trackers: where figures go.
        progress: counts from the version in force.
        returns: the run's telemetry.
    """

    def __init__(self, trackers: Trackers, progress: Progress, returns: Returns) -> None:
        self._trackers = trackers
        self._progress = progress
        self._returns = returns

    def cut(self, accounting: Accounting, updates: int, figures: Mapping[str, float]) -> None:
        """A version was made.

        Args:
            accounting: the sums by now; accepted transitions are the step.
            updates: train steps so far.
            figures: what else there is to say of it, by name.
        """
        common = self._progress.since(accounting, updates) | self._returns.newest()
        self._trackers.log(accounting.accepted_transitions, {**common, **figures})

    def close(self) -> None:
        """There are no more versions."""
        self._returns.close()
        self._trackers.close()


def _sums(accounting: Accounting, updates: int) -> dict[str, float]:
    return {
        "accepted": accounting.accepted_transitions,
        "rejected": accounting.rejected_transitions,
        "stale": accounting.stale_transitions,
        "chunks": accounting.accepted,
        "lag": sum(lag * count for lag, count in accounting.lag.items()),
        "updates": updates,
    }
