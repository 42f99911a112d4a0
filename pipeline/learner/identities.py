"""Each chunk counts once: de-duplication by (actor, session, sequence)."""

from collections import OrderedDict
from dataclasses import dataclass, field

from pipeline.experience import Identity


@dataclass(slots=True)
class _Session:
    """Sequence numbers seen: everything up to ``watermark``, and ``above`` it what came early."""

    watermark: int = -1
    above: set[int] = field(default_factory=set[int])
    transitions: int = 0
    newest: int = -1


class Identities:
    """Remembers which identities were seen, in bounded memory.

    Per session a watermark and a window of numbers above it. One record moves the watermark by the window at most, so
    a forged far-away number cannot make honest ones look like duplicates: what lies beyond the window is seen as new
    but leaves no trace, once it is over ``window`` ahead.

    Args:
        window: how far ahead of the watermark numbers are remembered.
        max_sessions: beyond it the session heard of longest ago is forgotten (counted in :attr:`evicted`).
    """

    def __init__(self, window: int = 4096, max_sessions: int = 4096) -> None:
        self._window = window
        self._max_sessions = max_sessions
        self._sessions: OrderedDict[tuple[str, str], _Session] = OrderedDict()
        self.evicted = 0

    def seen(self, identity: Identity) -> bool:
        """Whether this identity came before; remembers it."""
        session = self._session(identity)
        number = identity.sequence
        if number <= session.watermark or number in session.above:
            return True
        if number > session.watermark + self._window:
            # The oldest numbers missing are given up: they are this far behind what the broker has ordered.
            session.watermark += min(self._window, number - session.watermark - self._window)
            session.above = {n for n in session.above if n > session.watermark}
        if number <= session.watermark + self._window:
            session.above.add(number)
        while session.watermark + 1 in session.above:
            session.watermark += 1
            session.above.remove(session.watermark)
        return False

    def count(self, identity: Identity, transitions: int) -> None:
        """Note that a chunk was judged: what pacing goes by."""
        session = self._session(identity)
        session.transitions += transitions
        session.newest = max(session.newest, identity.sequence)

    def positions(self, most: int = 500) -> list[tuple[str, int, int]]:
        """(session, newest sequence, transitions judged) of the sessions heard of last, at most ``most``."""
        recent = list(self._sessions.items())[-most:]
        return [(key[1], max(0, s.newest), s.transitions) for key, s in recent]

    def _session(self, identity: Identity) -> _Session:
        key = (identity.actor, identity.session)
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = _Session()
            if len(self._sessions) > self._max_sessions:
                self._sessions.popitem(last=False)
                self.evicted += 1
        else:
            self._sessions.move_to_end(key)
        return session
