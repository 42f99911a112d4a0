"""How large and how old chunks may get: less while the learner refuses this client's transitions as too old."""

LEAST_STEPS = 8
_RISE = 16


class Freshness:
    """Halves at a refusal and rises slowly without, as a sender's window on a crowded network does.

    A slow client, or one far away, loses work when versions change faster than its chunks arrive: the first
    transitions of a chunk wait for the last. With smaller chunks it sends more records, and loses less.

    A refusal counts once: after a change the next one is heeded only when chunks that were cut after it have been
    judged. While nothing is refused, the size rises by a sixteenth of the full one for every full chunk's worth of
    judged transitions. Age and lead shrink in the same proportion.

    Args:
        steps: transitions in a chunk, at most.
        age_s: seconds that a chunk's oldest transition waits, at most.
        adapt: whether anything changes at all.
    """

    def __init__(self, steps: int, age_s: float, adapt: bool) -> None:
        self._full = steps
        self._full_age = age_s
        self._adapt = adapt
        self._stale = 0
        self._quiet_since = 0
        self._heed_from = 0
        self.steps = steps

    @property
    def share(self) -> float:
        """What is left of the full size, above 0 up to 1."""
        return self.steps / self._full

    @property
    def age_s(self) -> float:
        """Seconds that a chunk's oldest transition may wait."""
        return self._full_age * self.share

    def note(self, cut: int, reached: int, judged: int, stale: int) -> None:
        """Take in what the learner's heartbeats say.

        Args:
            cut: the number that this session's next chunk gets.
            reached: the number of the newest chunk that the learner has judged; -1: none.
            judged: transitions that the learner has judged in this session.
            stale: those of them that were too old.
        """
        refused, self._stale = stale > self._stale, stale
        # A learner that was started again may have judged less than the one before.
        if not self._adapt or refused or judged < self._quiet_since:
            self._quiet_since = judged
        if not self._adapt:
            return
        if refused and reached >= self._heed_from:
            self.steps = max(min(LEAST_STEPS, self._full), self.steps // 2)
            self._heed_from = cut
        while judged - self._quiet_since >= self._full and self.steps < self._full:
            self._quiet_since += self._full
            self.steps = min(self._full, self.steps + max(1, self._full // _RISE))
