"""Each chunk counts once: de-duplication by (actor, session, sequence)."""

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice
from typing import Any

from pipeline.errors import CheckpointError
from pipeline.experience import Identity
from pipeline.wire import Position, client_of

_Key = tuple[str, str]


class _Session:
    """The sequence numbers seen in one session, as disjoint runs with a gap between any two.

    Attributes:
        firsts: first number of each run, ascending.
        lasts: first number to last number of each run; the run touched longest ago comes first.
        transitions: judged so far.
        stale: those of them that were refused as too old.
        newest: the highest number judged; -1: none.
    """

    __slots__ = ("firsts", "lasts", "newest", "stale", "transitions")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.lasts: OrderedDict[int, int] = OrderedDict()
        self.transitions = 0
        self.stale = 0
        self.newest = -1

    def add(self, number: int) -> bool:
        """Remember a number; False if it was remembered already."""
        index = bisect_right(self.firsts, number)
        first, last = number, number
        if index:
            before = self.firsts[index - 1]
            end = self.lasts[before]
            if number <= end:
                self.lasts.move_to_end(before)
                return False
            if number == end + 1:
                first = before
        if index < len(self.firsts) and self.firsts[index] == number + 1:
            last = self.lasts.pop(self.firsts.pop(index))
        if first == number:
            insort(self.firsts, number)
        self.lasts[first] = last
        self.lasts.move_to_end(first)
        return True

    def forget_one(self) -> None:
        """Drop the run that was touched longest ago."""
        first, _ = self.lasts.popitem(last=False)
        del self.firsts[bisect_right(self.firsts, first) - 1]


class Identities:
    """Remembers which identities were seen, in bounded memory.

    Only numbers that were seen are remembered, as runs: a forged number, however far away, makes no honest one look
    like a duplicate. What is forgotten at a bound is counted, and would count as new if it came again. The bounds are
    for hostile or broken actors: one that sends in order has one run, and one more for each gap that its own bounded
    queue made.

    Every call depends on the calls before it alone, and :meth:`state` holds all of that.

    Args:
        window: runs remembered of a session; beyond it the one touched longest ago goes (:attr:`forgotten`).
        max_sessions_of_actor: sessions remembered of one actor; beyond it the actor's session heard of longest ago
            goes (:attr:`evicted`).
        max_sessions: sessions remembered in all; beyond it the one heard of longest ago goes (:attr:`evicted`).
        max_runs: runs remembered in all; beyond it the session heard of longest ago goes (:attr:`evicted`).
        max_sessions_of_client: sessions remembered of one client, of all its actors; beyond it the client's session
            heard of longest ago goes (:attr:`evicted`).

    Attributes:
        evicted: sessions forgotten.
        forgotten: runs forgotten in sessions that are remembered.
    """

    def __init__(
        self,
        window: int = 1024,
        max_sessions_of_actor: int = 16,
        max_sessions: int = 4096,
        max_runs: int = 65_536,
        max_sessions_of_client: int = 256,
    ) -> None:
        self._window = window
        self._max_sessions_of_actor = max_sessions_of_actor
        self._max_sessions_of_client = max_sessions_of_client
        self._max_sessions = max_sessions
        self._max_runs = max_runs
        # All from the session heard of longest ago to the one heard of last.
        self._sessions: OrderedDict[_Key, _Session] = OrderedDict()
        self._of_actor: dict[str, OrderedDict[_Key, None]] = {}
        self._of_client: dict[str, OrderedDict[_Key, None]] = {}
        self._runs = 0
        self.evicted = 0
        self.forgotten = 0

    def __len__(self) -> int:
        """Sessions remembered."""
        return len(self._sessions)

    @property
    def runs(self) -> int:
        """Runs remembered, in all sessions."""
        return self._runs

    def seen(self, identity: Identity) -> bool:
        """Whether this identity came before; remembers it."""
        session = self._session((identity.actor, identity.session))
        before = len(session.firsts)
        new = session.add(identity.sequence)
        self._runs += len(session.firsts) - before
        while len(session.firsts) > self._window:
            session.forget_one()
            self._runs -= 1
            self.forgotten += 1
        while self._runs > self._max_runs and len(self._sessions) > 1:
            self._evict(next(iter(self._sessions)))
        return not new

    def count(self, identity: Identity, transitions: int, *, stale: bool = False) -> None:
        """Note that a chunk was judged, and whether it was too old: what clients pace themselves by."""
        session = self._session((identity.actor, identity.session))
        session.transitions += transitions
        session.stale += transitions if stale else 0
        session.newest = max(session.newest, identity.sequence)

    def positions(self, most: int = 500) -> tuple[Position, ...]:
        """How far each session was judged, of the sessions heard of last, at most ``most``."""
        recent = list(islice(reversed(self._sessions.items()), most))
        return tuple(Position(key[1], max(0, s.newest), s.transitions, s.stale) for key, s in reversed(recent))

    def state(self) -> dict[str, Any]:
        """All that is remembered, in the order of forgetting, for a checkpoint; made of lists, str and int."""
        sessions: list[list[Any]] = []
        for (actor, name), session in self._sessions.items():
            runs = [number for run in session.lasts.items() for number in run]
            sessions.append([actor, name, session.transitions, session.stale, session.newest, runs])
        return {"evicted": self.evicted, "forgotten": self.forgotten, "sessions": sessions}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave; the bounds of this object hold from the next call on.

        Raises:
            CheckpointError: the state is damaged. Nothing was changed then.
        """
        try:
            sessions = OrderedDict(_read_session(item) for item in state["sessions"])
            evicted, forgotten = int(state["evicted"]), int(state["forgotten"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"identities: the table in the checkpoint is damaged: {error!r}") from error
        self._sessions = sessions
        self._of_actor, self._of_client = {}, {}
        for key in sessions:
            self._of_actor.setdefault(key[0], OrderedDict())[key] = None
            self._of_client.setdefault(client_of(key[0]), OrderedDict())[key] = None
        self._runs = sum(len(session.firsts) for session in sessions.values())
        self.evicted, self.forgotten = evicted, forgotten

    def _session(self, key: _Key) -> _Session:
        """The session, which is now the one heard of last."""
        session = self._sessions.get(key)
        if session is not None:
            self._sessions.move_to_end(key)
            self._of_actor[key[0]].move_to_end(key)
            self._of_client[client_of(key[0])].move_to_end(key)
            return session
        session = self._sessions[key] = _Session()
        for owner, index, most in (
            (key[0], self._of_actor, self._max_sessions_of_actor),
            (client_of(key[0]), self._of_client, self._max_sessions_of_client),
        ):
            own = index.setdefault(owner, OrderedDict())
            own[key] = None
            while len(own) > most:
                self._evict(next(iter(own)))
        while len(self._sessions) > self._max_sessions:
            self._evict(next(iter(self._sessions)))
        return session

    def _evict(self, key: _Key) -> None:
        self._runs -= len(self._sessions.pop(key).firsts)
        for owner, index in ((key[0], self._of_actor), (client_of(key[0]), self._of_client)):
            own = index[owner]
            del own[key]
            if not own:
                del index[owner]
        self.evicted += 1


def _read_session(item: Any) -> tuple[_Key, _Session]:
    actor, name, transitions, stale, newest, runs = item
    session = _Session()
    session.transitions, session.stale, session.newest = int(transitions), int(stale), int(newest)
    for first, last in zip(runs[::2], runs[1::2], strict=True):
        session.lasts[int(first)] = int(last)
    session.firsts = sorted(session.lasts)
    for first, after in zip(session.firsts, [*session.firsts[1:], None], strict=True):
        last = session.lasts[first]
        if last < first or (after is not None and after <= last + 1):
            raise ValueError(f"run {first} to {last} of session {name} runs backwards or into the next")
    return (str(actor), str(name)), session
