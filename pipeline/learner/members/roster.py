"""Who takes part in synchronous training, and how far each one's rollout has come.

A pure state machine: only events of the journal, applied chunks, train steps and cuts change it, and no clock does. So
whoever follows the journal comes to the same answers. Why the learner decided an event, and when, is
:mod:`pipeline.learner.members.attendance`'s.

A client asks to take part by its heartbeats. The event ``join`` {session, actor} makes it a waiting one; each cut of a
version makes the waiting ones members, from that version on. Before the first members ``begin`` {} has to end the time
of registration. ``lost`` {session, why} takes a client out; what arrived of its rollout stays. ``take`` {} stops the
waiting for rollouts that are not complete. No change of membership takes effect but with a version, whose announcement
holds the events in its journal: a client never acts as a member that a restarted learner would not know of.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pipeline.errors import CheckpointError, InvalidRecordError, RejectReason
from pipeline.experience import Chunk
from pipeline.wire import JournalEvent, RecordHeaders, is_identity

NOT_A_MEMBER = "not-a-member"
"""Verdict of a chunk whose session takes no part in the version in force."""
COMPLETE = "rollout-complete"
"""Verdict of a chunk that comes after the end of its session's rollout."""

_WAITING = -1


@dataclass
class Participant:
    """One session that joined.

    Attributes:
        actor: its actor.
        since: number of the version from which on it takes part; -1: it waits for the next cut.
        transitions: of its rollout under the version in force, so far.
        complete: whether that rollout has ended.
    """

    actor: str
    since: int = _WAITING
    transitions: int = 0
    complete: bool = False

    @property
    def member(self) -> bool:
        """Whether it takes part in the version in force."""
        return self.since != _WAITING


class Roster:
    """Who takes part.

    Args:
        min_clients: with fewer clients nothing is trained.
        max_rollout: a rollout is complete at this many transitions, whatever its client says.

    Attributes:
        begun: whether the time of registration is over.
        taken: whether what has arrived is trained on as it is.
        trained: whether the iteration's train step was made, and its version is still to be cut.
        arrived: transitions accepted under the version in force, those of lost clients included.
        participants: by session, in the order of joining.
    """

    def __init__(self, min_clients: int, max_rollout: int) -> None:
        self.min_clients = min_clients
        self._max_rollout = max_rollout
        self.begun = False
        self.taken = False
        self.trained = False
        self.arrived = 0
        self.participants: dict[str, Participant] = {}

    # -- what changes it ----------------------------------------------------------------------------------------------

    def apply(self, event: JournalEvent) -> None:
        """Apply an event.

        Raises:
            InvalidRecordError: there is no such event, or it does not fit what is. Nothing was changed then.
        """
        detail = _detail(event)
        match event.kind:
            case "join":
                session, actor = detail.get("session"), detail.get("actor")
                if not is_identity(actor, session):
                    raise _refused(event, "it names no session and actor")
                if session in self.participants:
                    raise _refused(event, "the session has joined already")
                self.participants[cast(str, session)] = Participant(cast(str, actor))
            case "lost":
                session = detail.get("session")
                if not isinstance(session, str) or session not in self.participants:
                    raise _refused(event, "there is no such session")
                del self.participants[session]
            case "begin":
                if self.begun:
                    raise _refused(event, "it has begun before")
                self.begun = True
            case "take":
                if not self.begun or not self.arrived or self.trained:
                    raise _refused(event, "there is nothing to take")
                self.taken = True
            case _:
                raise _refused(event, "no such event is known")

    def accepted(self, headers: RecordHeaders, chunk: Chunk) -> None:
        """A chunk that :meth:`refusal` had nothing against counts."""
        participant = self.participants[headers.session]
        self.arrived += chunk.steps
        participant.transitions += chunk.steps
        participant.complete = chunk.final or participant.transitions >= self._max_rollout

    def train(self) -> None:
        """The iteration's train step was made: its version is to be cut."""
        self.trained = True

    def cut(self, number: int) -> None:
        """A version of this number is in force: new rollouts begin, and who waited takes part."""
        self.taken = self.trained = False
        self.arrived = 0
        for participant in self.participants.values():
            participant.transitions, participant.complete = 0, False
            if self.begun and not participant.member:
                participant.since = number

    # -- what follows from it -----------------------------------------------------------------------------------------

    def refusal(self, headers: RecordHeaders) -> str:
        """The verdict by which a chunk of the version in force does not count; empty: it counts."""
        participant = self.participants.get(headers.session)
        if participant is None or participant.actor != headers.actor or not participant.member:
            return NOT_A_MEMBER
        return COMPLETE if participant.complete else ""

    @property
    def members(self) -> list[Participant]:
        """Those who take part in the version in force."""
        return [participant for participant in self.participants.values() if participant.member]

    @property
    def enough(self) -> bool:
        """Whether so many clients are there that training goes on."""
        return len(self.participants) >= max(1, self.min_clients)

    @property
    def train_due(self) -> bool:
        """Whether the iteration is to be trained on: something arrived, and every member's rollout is complete."""
        complete = self.taken or all(member.complete for member in self.members)
        return self.begun and not self.trained and self.arrived > 0 and self.enough and complete

    @property
    def cut_due(self) -> bool:
        """Whether a version is to be cut now: it is trained, or only by a cut are there members again."""
        nobody = self.begun and not self.arrived and not self.members
        return self.trained or (nobody and self.enough)

    # -- checkpoint ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """JSON-able values for the checkpoint."""
        return {
            "begun": self.begun,
            "taken": self.taken,
            "trained": self.trained,
            "arrived": self.arrived,
            "participants": [
                [session, each.actor, each.since, each.transitions, each.complete]
                for session, each in self.participants.items()
            ],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave.

        Raises:
            CheckpointError: it is damaged. Nothing was changed then.
        """
        try:
            participants = {
                str(session): Participant(str(actor), int(since), int(transitions), bool(complete))
                for session, actor, since, transitions, complete in state["participants"]
            }
            flags = [bool(state[name]) for name in ("begun", "taken", "trained")]
            arrived = int(state["arrived"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"roster: the list in the checkpoint is damaged: {error!r}") from error
        self.participants, self.arrived = participants, arrived
        self.begun, self.taken, self.trained = flags


def join(session: str, actor: str) -> JournalEvent:
    """The event that a session joins."""
    return JournalEvent("join", json.dumps({"session": session, "actor": actor}))


def lost(session: str, why: str) -> JournalEvent:
    """The event that a session is lost."""
    return JournalEvent("lost", json.dumps({"session": session, "why": why}))


BEGIN = JournalEvent("begin")
"""The event that the time of registration is over."""
TAKE = JournalEvent("take")
"""The event that what has arrived is trained on."""


def _detail(event: JournalEvent) -> Mapping[str, Any]:
    try:
        detail: object = json.loads(event.detail_json)
    except (ValueError, RecursionError) as error:
        raise _refused(event, f"its particulars are not JSON: {error}") from error
    if not isinstance(detail, dict):
        raise _refused(event, "its particulars are no JSON object")
    return cast("dict[str, Any]", detail)


def _refused(event: JournalEvent, why: str) -> InvalidRecordError:
    said = f"the event {event.kind[:32]!r} {event.detail_json[:200]} cannot be applied: {why}"
    return InvalidRecordError(RejectReason.MALFORMED, said)
