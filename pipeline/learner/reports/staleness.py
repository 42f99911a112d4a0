"""How much of each actor's work is lost because it comes too late, for people: metrics, figures, and a warning.

Nothing here is part of the fold: clocks are allowed, and a restart begins anew.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from pipeline.learner.intake.accounting import STALE
from pipeline.learner.intake.judge import ACCEPTED, DUPLICATE
from pipeline.learner.reports.metrics import LearnerMetrics

log = logging.getLogger(__name__)

_MOST_ACTORS = 256
_WINDOW_S = 30.0
_LEAST_CHUNKS = 10
_PAUSE_S = 10.0


class _Actor:
    """What became of one actor's chunks lately.

    Attributes:
        now, before: of this window and the one before: chunks judged, transitions in them, those of them that were too
            old, and the sum over these of how many versions they were behind.
        since: when this window began, in monotonic seconds.
        troubled: whether it was warned of and has not recovered.
    """

    __slots__ = ("before", "now", "since", "troubled")

    def __init__(self, since: float) -> None:
        self.now = [0, 0, 0, 0]
        self.before = [0, 0, 0, 0]
        self.since = since
        self.troubled = False

    def add(self, at: float, transitions: int, lag: int, stale: bool) -> None:
        elapsed = at - self.since
        if elapsed >= _WINDOW_S:
            self.before = self.now if elapsed < 2 * _WINDOW_S else [0, 0, 0, 0]
            self.now = [0, 0, 0, 0]
            self.since = at
        self.now[0] += 1
        self.now[1] += transitions
        if stale:
            self.now[2] += transitions
            self.now[3] += transitions * lag

    def sums(self, at: float) -> tuple[int, int, int, int]:
        if at - self.since >= 2 * _WINDOW_S:
            return 0, 0, 0, 0
        chunks, transitions, stale, lag = (a + b for a, b in zip(self.before, self.now, strict=True))
        return chunks, transitions, stale, lag


class Staleness:
    """Keeps the share of stale transitions of the actors heard of last, and warns of an actor that loses too much.

    An actor that loses more than ``warning`` of its transitions, over the last half minute to minute and ten chunks at
    least, is in trouble until it loses less than half of that: one warning for each such episode. All warnings
    together come ten seconds apart at least; whoever is left out is warned of later, if it is still in trouble.

    At most 256 actors are remembered, the one heard of longest ago goes: names are the actors' own, and anybody may
    make up more of them.

    Args:
        metrics: gets the figures of each remembered actor.
        warning: the share, 0 to 1; 1: no warning.
        clock: monotonic seconds.
    """

    def __init__(self, metrics: LearnerMetrics, warning: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._warning = warning
        self._clock = clock
        self._actors: OrderedDict[str, _Actor] = OrderedDict()
        self._warn_next = 0.0

    def __len__(self) -> int:
        """Actors remembered."""
        return len(self._actors)

    def note(self, actor: str, transitions: int, lag: int, verdict: str) -> None:
        """A chunk was judged.

        Args:
            actor: whose it is.
            transitions: in it.
            lag: versions that it is behind the one in force.
            verdict: as the judge gave it; a duplicate was judged before and counts for nothing.
        """
        if verdict == DUPLICATE:
            return
        now = self._clock()
        known = self._actors.get(actor)
        if known is None:
            known = self._actors[actor] = _Actor(now)
            if len(self._actors) > _MOST_ACTORS:
                self._metrics.forget_actor(self._actors.popitem(last=False)[0])
        self._actors.move_to_end(actor)
        stale = verdict == STALE
        known.add(now, transitions, lag, stale)
        kind = verdict if verdict in (ACCEPTED, STALE) else "refused"
        self._metrics.actor_transitions.labels(actor, kind).inc(transitions)
        chunks, judged, lost, behind = known.sums(now)
        share = lost / judged if judged else 0.0
        self._metrics.actor_stale_share.labels(actor).set(share)
        if share < self._warning / 2 or not lost:
            known.troubled = False
        if stale and share > self._warning and chunks >= _LEAST_CHUNKS and not known.troubled:
            self._warn(actor, known, share, behind / lost, now)

    def worst(self) -> float:
        """The largest share of stale transitions of an actor, lately; 0 without any."""
        now = self._clock()
        shares = [sums[2] / sums[1] for actor in self._actors.values() if (sums := actor.sums(now))[1]]
        return max(shares, default=0.0)

    def _warn(self, actor: str, known: _Actor, share: float, behind: float, now: float) -> None:
        if now < self._warn_next:
            return
        self._warn_next = now + _PAUSE_S
        known.troubled = True
        log.warning(
            "Actor %s loses %.0f %% of its transitions: those lost lately were %.1f versions old on average. Let it "
            "pace itself (client.max_lead, client.adapt_chunks), make its chunks smaller (client.chunk_steps, "
            "client.chunk_age_s), or accept older ones (learner.version_window).",
            actor,
            100 * share,
            behind,
        )
