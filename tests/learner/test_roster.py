"""Who takes part: what events, chunks and cuts make of the roster."""

import json

import pytest

from pipeline.errors import CheckpointError, InvalidRecordError
from pipeline.learner.members.roster import BEGIN, COMPLETE, NOT_A_MEMBER, TAKE, Roster, join, lost
from pipeline.wire import JournalEvent
from tests.learner.made_ppo import chunk_of, headers_of, session_of


def arrive(roster: Roster, actor: str, number: int, *, final: bool = False, steps: int = 8) -> str:
    """A chunk, as the judge treats it: the verdict."""
    chunk = chunk_of(actor, number, steps, final=final)
    headers = headers_of(actor, 0, chunk)
    refusal = roster.refusal(headers)
    if not refusal:
        roster.accepted(headers, chunk)
    return refusal


def begun(*actors: str, min_clients: int = 1, max_rollout: int = 1000) -> Roster:
    """Version 1, with these members."""
    roster = Roster(min_clients, max_rollout)
    for actor in actors:
        roster.apply(join(session_of(actor), actor))
    roster.apply(BEGIN)
    assert roster.cut_due
    roster.cut(1)
    return roster


def test_nobody_is_a_member_before_registration_is_over():
    roster = Roster(1, 1000)
    roster.apply(join(session_of("a"), "a"))
    roster.cut(0)
    assert arrive(roster, "a", 0) == NOT_A_MEMBER
    assert not roster.cut_due
    roster.apply(BEGIN)
    roster.cut(1)
    assert roster.participants[session_of("a")].since == 1
    assert arrive(roster, "a", 1) == ""


def test_an_iteration_is_complete_with_every_member_s_final_chunk():
    roster = begun("a", "b")
    assert arrive(roster, "a", 1, final=True) == ""
    assert not roster.train_due
    assert arrive(roster, "b", 1) == ""
    assert not roster.train_due
    assert arrive(roster, "a", 1) == COMPLETE
    assert arrive(roster, "b", 1, final=True) == ""
    assert roster.train_due and not roster.cut_due
    roster.train()
    assert roster.cut_due and not roster.train_due
    roster.cut(2)
    assert (roster.arrived, roster.train_due, roster.cut_due) == (0, False, False)
    assert arrive(roster, "a", 2) == ""


def test_a_rollout_is_complete_at_the_most_transitions_it_may_have():
    roster = begun("a", max_rollout=20)
    assert [arrive(roster, "a", 1) for _ in range(4)] == ["", "", "", COMPLETE]
    assert (roster.arrived, roster.train_due) == (24, True)


def test_who_joins_later_takes_part_from_the_next_version_on():
    roster = begun("a")
    roster.apply(join(session_of("b"), "b"))
    assert arrive(roster, "b", 1) == NOT_A_MEMBER
    arrive(roster, "a", 1, final=True)
    assert roster.train_due
    roster.cut(2)
    assert [member.since for member in roster.members] == [1, 2]


def test_what_a_lost_client_sent_stays_and_it_is_not_waited_for():
    roster = begun("a", "b")
    arrive(roster, "b", 1)
    arrive(roster, "a", 1, final=True)
    roster.apply(lost(session_of("b"), "no heartbeat"))
    assert arrive(roster, "b", 1) == NOT_A_MEMBER
    assert (roster.arrived, roster.train_due) == (16, True)


def test_a_session_belongs_to_the_actor_that_joined_with_it():
    roster = begun("a")
    chunk = chunk_of("a", 1)
    headers = headers_of("a", 0, chunk)
    assert roster.refusal(headers) == ""
    assert roster.refusal(headers.__class__(**{**headers.__dict__, "actor": "mallory"})) == NOT_A_MEMBER


def test_what_has_arrived_can_be_taken():
    roster = begun("a", "b")
    with pytest.raises(InvalidRecordError, match="nothing to take"):
        roster.apply(TAKE)
    arrive(roster, "a", 1)
    roster.apply(TAKE)
    assert roster.train_due
    roster.cut(2)
    assert not roster.taken


def test_too_few_clients_train_nothing_until_others_come():
    roster = begun("a", "b", min_clients=2)
    roster.apply(lost(session_of("b"), "it left"))
    arrive(roster, "a", 1, final=True)
    assert not roster.train_due and not roster.enough
    roster.apply(join(session_of("c"), "c"))
    assert roster.train_due


def test_when_everybody_was_lost_a_cut_makes_members_of_those_who_come():
    """Nothing else would ever cut a version."""
    roster = begun("a")
    roster.apply(lost(session_of("a"), "it left"))
    assert not roster.cut_due
    roster.apply(join(session_of("b"), "b"))
    assert roster.cut_due and not roster.train_due
    roster.cut(2)
    assert roster.participants[session_of("b")].since == 2


@pytest.mark.parametrize(
    "event",
    [
        JournalEvent("dance"),
        JournalEvent("join", "{"),
        JournalEvent("join", "[]"),
        JournalEvent("join", json.dumps({"session": session_of("b")})),
        JournalEvent("join", json.dumps({"session": "short", "actor": "b"})),
        JournalEvent("join", json.dumps({"session": session_of("b"), "actor": "two words"})),
        join(session_of("a"), "a"),
        lost(session_of("b"), "why"),
        JournalEvent("lost", json.dumps({"session": ["a"]})),
        JournalEvent("join", "[" * 100_000),
        BEGIN,
        TAKE,
    ],
    ids=lambda event: f"{event.kind}-{len(event.detail_json)}",
)
def test_an_event_that_cannot_be_is_refused_and_changes_nothing(event: JournalEvent):
    roster = begun("a")
    before = roster.state()
    with pytest.raises(InvalidRecordError):
        roster.apply(event)
    assert roster.state() == before


def test_the_state_goes_through_json():
    roster = begun("a", "b")
    roster.apply(join(session_of("c"), "c"))
    arrive(roster, "a", 1, final=True)
    again = Roster(1, 1000)
    again.load_state(json.loads(json.dumps(roster.state())))
    assert again.state() == roster.state()
    arrive(again, "b", 1, final=True)
    assert again.train_due
    with pytest.raises(CheckpointError, match="damaged"):
        again.load_state({"participants": [["a"]]})
