"""Who is there: heartbeats and time, turned into the events of the journal.

The learner's decisions that depend on time are made here and nowhere else, and go into the journal as events of
:mod:`~pipeline.learner.members.roster`. :class:`Attendance` has no clock of its own: whoever calls it says what time it
is.

The learner's own heartbeats, read back from the topic progress, which nobody else writes, are the proof that the broker
carries any: while they do not come back nobody is declared lost, and all clocks start anew once they do.
"""

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pipeline.broker import LogReader, Record
from pipeline.config import SyncConfig
from pipeline.errors import InvalidRecordError, PipelineError
from pipeline.learner.members.roster import BEGIN, TAKE, Participant, Roster, join, lost
from pipeline.wire import Heartbeat, JournalEvent, Member, RecordHeaders, Voucher, is_identity

log = logging.getLogger(__name__)

_MOST_OTHERS = 1_000
"""Sessions that do not take part and are remembered all the same; beyond it the one heard longest ago goes."""
_MOST_LOST = 100
_MOST_REFUSED = 100
_MOST_SAID = 20
"""Refusals that are warned of; further ones are told to the client alone."""
_NEVER = -math.inf


@dataclass(frozen=True)
class End:
    """The decision that the run ends.

    Attributes:
        why: a sentence for the learner's user and for the clients.
    """

    why: str


@dataclass
class _Heard:
    """What is known of a session from its heartbeats and chunks.

    Attributes:
        actor: as the first heartbeat said.
        joins: whether it asks to take part, as the newest one says.
        transitions: pushed so far.
        seen: when it was heard last.
        grown: when it was last seen to have pushed, or a chunk of it came.
    """

    actor: str
    joins: bool = True
    transitions: int = -1
    seen: float = _NEVER
    grown: float = _NEVER


class Attendance:
    """Hears heartbeats, and decides when somebody joins, is lost, or is not waited for any longer.

    :meth:`heard` may be called by any thread, everything else by the fold's. Times are seconds of one monotonic clock.
    Memory is bounded, whatever comes over the topic: participants, and the last thousand other sessions.

    Args:
        run: heartbeats of other runs are passed over.
        session: the learner's own, by which its heartbeats are known.
        heartbeat_s: how often it sends one, in seconds.
    """

    def __init__(self, run: str, session: str, heartbeat_s: float) -> None:
        self._run = run
        self._session = session
        self._heartbeat_s = heartbeat_s
        self._lock = threading.Lock()
        self._participants: dict[str, _Heard] = {}
        self._others: OrderedDict[str, _Heard] = OrderedDict()
        self._lost: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._refused: dict[str, Member] = {}
        self._refusals = 0
        self._own = _NEVER
        self._anew = _NEVER
        self._patience = 0.0
        self._version = -1
        self._asked = _NEVER
        self._short: float | None = None
        self._ready: float | None = None
        self._end: End | None = None

    # -- what is heard ------------------------------------------------------------------------------------------------

    def heard(self, beat: Heartbeat, now: float) -> None:
        """Take in a heartbeat of the topic."""
        if beat.run != self._run:
            return
        with self._lock:
            if beat.role == "learner" and beat.session == self._session:
                if self._deaf(now):
                    self._anew = now
                self._own = now
            elif beat.role == "actor" and is_identity(beat.node, beat.session):
                self._note(beat, now)

    def arrived(self, session: str, now: float) -> None:
        """A chunk of this session was applied."""
        with self._lock:
            known = self._participants.get(session)
            if known is not None:
                known.seen = known.grown = now

    def _note(self, beat: Heartbeat, now: float) -> None:
        known = self._participants.get(beat.session)
        if known is None:
            known = self._others.setdefault(beat.session, _Heard(beat.node))
            self._others.move_to_end(beat.session)
            if len(self._others) > _MOST_OTHERS:
                self._others.popitem(last=False)
        if known.actor != beat.node:
            return
        known.seen, known.joins = now, beat.joins
        if beat.transitions > known.transitions:
            known.transitions, known.grown = beat.transitions, now

    def _deaf(self, now: float) -> bool:
        """Whether the learner's own heartbeats do not come back."""
        return now - self._own > self._patience

    # -- what is decided ----------------------------------------------------------------------------------------------

    def decide(self, roster: Roster, sync: SyncConfig, asked: int, now: float) -> JournalEvent | End | None:
        """The next decision, to be applied to the roster before this is called again; None: nothing is to be decided.

        Args:
            roster: as the fold has it now.
            sync: the settings in force.
            asked: number of the version whose rollouts are waited for; -1 while it is not announced, so that nobody
                could have acted under it.
            now: the time.
        """
        with self._lock:
            self._patience = max(sync.client_timeout_s / 3, 3 * self._heartbeat_s)
            self._align(roster, asked, now)
            if self._end is not None:
                return self._end
            if self._deaf(now):
                return None
            return (
                self._losses(roster, sync, now)
                or self._joins(roster, sync, now)
                or (self._progress(roster, sync, now) if roster.begun else self._registration(roster, sync, now))
            )

    def _align(self, roster: Roster, asked: int, now: float) -> None:
        """Let what is remembered follow the roster, which a journal or a checkpoint may have brought."""
        for session in self._participants.keys() - roster.participants.keys():
            self._others[session] = self._participants.pop(session)
        for session, participant in roster.participants.items():
            if session not in self._participants:
                known = self._others.pop(session, None)
                fits = known is not None and known.actor == participant.actor
                self._participants[session] = known if known is not None and fits else _Heard(participant.actor)
                self._lost.pop(session, None)
        if asked != self._version:
            self._version, self._asked, self._ready = asked, now, None

    def _losses(self, roster: Roster, sync: SyncConfig, now: float) -> JournalEvent | None:
        for session, participant in roster.participants.items():
            why = self._missed(participant, self._participants[session], sync.client_timeout_s, now)
            if why:
                self._lost[session] = participant.actor, why
                self._lost.move_to_end(session)
                if len(self._lost) > _MOST_LOST:
                    self._lost.popitem(last=False)
                if participant.member and sync.on_lost_client == "stop":
                    self._end = End(
                        f"Client {participant.actor} is lost ({why}), and algorithm.sync.on_lost_client=stop."
                    )
                # Only what is heard from now on lets it join again.
                self._participants[session].joins = False
                return lost(session, why)
        return None

    def _missed(self, participant: Participant, known: _Heard, timeout: float, now: float) -> str:
        """Why a participant is lost; empty: it is not."""
        if not known.joins:
            return "it left, or its loop stands still"
        if now - max(known.seen, self._anew) > timeout:
            return f"no heartbeat for {timeout:g} s"
        awaited = participant.member and not participant.complete and self._version >= 0
        if awaited and now - max(known.grown, self._anew, self._asked) > timeout:
            return f"no transition for {timeout:g} s while its rollout was waited for"
        return ""

    def _joins(self, roster: Roster, sync: SyncConfig, now: float) -> JournalEvent | None:
        asking = [
            (session, known)
            for session, known in self._others.items()
            if known.joins and now - known.seen <= sync.client_timeout_s
        ]
        before, self._refused = self._refused, {}
        if len(roster.participants) < sync.clients:
            return join(asking[0][0], asking[0][1].actor) if asking else None
        there = ", ".join(sorted(each.actor for each in roster.participants.values())[:8])
        why = f"the run has the {sync.clients} clients of algorithm.sync.clients: {there}"[:500]
        for session, known in asking[:_MOST_REFUSED]:
            self._refused[session] = Member(session, known.actor, "refused", detail=why)
            if session not in before:
                self._refusals += 1
                level = logging.WARNING if self._refusals <= _MOST_SAID else logging.DEBUG
                log.log(level, "Client %s is refused: %s.", known.actor, why)
        return None

    def _registration(self, roster: Roster, sync: SyncConfig, now: float) -> JournalEvent | End | None:
        waited = self._waited(True, now) >= sync.discovery_s
        if len(roster.participants) >= sync.clients or (waited and roster.enough):
            self._short = None
            return BEGIN
        return self._too_few(roster, sync) if waited else None

    def _progress(self, roster: Roster, sync: SyncConfig, now: float) -> JournalEvent | End | None:
        if self._waited(not roster.enough, now) >= sync.discovery_s:
            return self._too_few(roster, sync)
        members = roster.members
        complete = sum(member.complete for member in members)
        # A product such as 0.1 * 30 lies above the integer that it means.
        needed = math.ceil(sync.collect_fraction * len(members) - 1e-9)
        if roster.taken or not roster.enough or not max(1, needed) <= complete < len(members):
            self._ready = None
            return None
        self._ready = now if self._ready is None else max(self._ready, self._anew)
        return TAKE if now - self._ready >= sync.collect_grace_s else None

    def _waited(self, short: bool, now: float) -> float:
        """For how long clients have been too few, in seconds; they have not where ``short`` is False."""
        if not short:
            self._short = None
            return _NEVER
        self._short = now if self._short is None else max(self._short, self._anew)
        return now - self._short

    def _too_few(self, roster: Roster, sync: SyncConfig) -> End:
        count = len(roster.participants)
        there = ", ".join(sorted(each.actor for each in roster.participants.values())) or "none"
        self._end = End(
            f"Too few clients: {count} of at least {sync.min_clients} (algorithm.sync.min_clients) after "
            f"{sync.discovery_s:g} s of waiting; there: {there}."
        )
        return self._end

    # -- what is told -------------------------------------------------------------------------------------------------

    def members(self, roster: Roster) -> tuple[Member, ...]:
        """What clients are told of themselves: part of the learner's heartbeats."""
        with self._lock:
            if self._end is not None:
                return tuple(self._ended(roster, self._end.why))
            told = [
                Member(session, each.actor, "member" if each.member else "waiting", each.since)
                for session, each in roster.participants.items()
            ]
            gone = [(session, *said) for session, said in self._lost.items() if session not in self._refused]
            told += [Member(session, actor, "lost", detail=why) for session, actor, why in gone]
            return (*told, *self._refused.values())

    def _ended(self, roster: Roster, why: str) -> Iterator[Member]:
        actors = {session: actor for session, (actor, _) in self._lost.items()}
        actors |= {session: member.actor for session, member in self._refused.items()}
        actors |= {session: each.actor for session, each in roster.participants.items()}
        for session, actor in actors.items():
            yield Member(session, actor, "lost", detail=f"the run has ended: {why}"[:500])


class HeartbeatListener:
    """Reads the heartbeats of actors, and the learner's own, in a thread of its own, from their present end on.

    Args:
        reader: the topics heartbeats and progress, from "latest" on; closed with this.
        actors: the topic heartbeats, to which any client may write: what it says of a learner does not count.
        attendance: hears them.
        voucher: tells in whose name an actor's was written; None: every name is taken as it is.
        clock: the time, in seconds.

    Raises:
        BrokerError: on entering, the topic cannot be opened.
    """

    def __init__(
        self,
        reader: LogReader,
        actors: str,
        attendance: Attendance,
        voucher: Voucher | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = reader
        self._actors = actors
        self._voucher = voucher
        self._attendance = attendance
        self._clock = clock
        self._stopping = threading.Event()
        self._error: PipelineError | None = None
        self._thread = threading.Thread(target=self._run, name="attendance", daemon=True)

    def __enter__(self) -> Self:
        self._reader.open()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(10.0)
        self._reader.close()

    def check(self) -> None:
        """Look whether it still reads.

        Raises:
            PipelineError: what ended the reading, such as a topic that was deleted.
        """
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                for record in self._reader.poll(1000, 0.1):
                    self._hear(record)
        except PipelineError as error:
            self._error = error

    def _hear(self, record: Record) -> None:
        try:
            beat = Heartbeat.decode(record.value)
            if record.topic == self._actors and not self._genuine(record, beat):
                return
        except InvalidRecordError as error:
            log.debug("A record of the heartbeats topic is none and is passed over: %s", error)
            return
        self._attendance.heard(beat, self._clock())

    def _genuine(self, record: Record, beat: Heartbeat) -> bool:
        """Whether a record of actors is one of the actor that it names.

        Raises:
            InvalidRecordError: its headers are none, or not its client's.
        """
        if self._voucher is None:
            return beat.role == "actor"
        headers = RecordHeaders.from_kafka(record.headers)
        self._voucher.check(headers)
        return beat.role == "actor" and (headers.actor, headers.session) == (beat.node, beat.session)
