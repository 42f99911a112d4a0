"""Heartbeats and time become events; the clock is the test's."""

from dataclasses import replace

import pytest

from pipeline.config import SyncConfig
from pipeline.learner.members.attendance import Attendance, End
from pipeline.learner.members.roster import Roster
from tests.learner.made_ppo import RUN, Room, chunk_of, headers_of, session_of

LEARNER = "f" * 32
SYNC = SyncConfig(clients=3, min_clients=2, discovery_s=30.0, client_timeout_s=6.0)


class Learner:
    """A roster whose events are what the attendance decides, and cuts and chunks what the test says."""

    def __init__(self, sync: SyncConfig = SYNC) -> None:
        self.sync = sync
        self.roster = Roster(sync.min_clients, 10_000)
        self.attendance = Attendance(RUN, LEARNER, 0.1)
        self.room = Room(self.attendance, LEARNER)
        self.number = 0
        self.announced = True
        self.said: list[str] = []
        self.decide()
        self.room.own()

    def decide(self) -> list[str]:
        """All decisions of this moment, as ``kind name``; each is applied before the next is asked for."""
        said: list[str] = []
        while (decision := self.attendance.decide(*self._view())) is not None:
            if isinstance(decision, End):
                said.append(f"end: {decision.why}")
                break
            names = [
                each.actor for session, each in self.roster.participants.items() if session in decision.detail_json
            ]
            joining = [actor for actor in "abcde" if session_of(actor) in decision.detail_json]
            self.roster.apply(decision)
            said.append(" ".join([decision.kind, *(names or joining)]))
            if self.roster.cut_due:
                self.cut()
        self.said += said
        return said

    def _view(self):
        asked = self.number if self.announced else -1
        return self.roster, self.sync, asked, self.room.now

    def pass_time(self, seconds: float, *actors: str, own: bool = True, transitions: int = 0) -> list[str]:
        """What is decided while time goes by, asked every tenth of a second."""
        said: list[str] = []
        for _ in range(round(seconds * 10)):
            self.room.pass_time(0.1, *actors, own=own, transitions=transitions)
            said += self.decide()
        return said

    def cut(self) -> None:
        self.number += 1
        self.roster.cut(self.number)

    def arrive(self, actor: str, *, final: bool = False) -> None:
        chunk = chunk_of(actor, self.number, final=final)
        headers = headers_of(actor, 0, chunk)
        assert self.roster.refusal(headers) == ""
        self.roster.accepted(headers, chunk)
        self.attendance.arrived(session_of(actor), self.room.now)

    def state_of(self, actor: str) -> tuple[str, int, str]:
        """What the actor is told."""
        told = [each for each in self.attendance.members(self.roster) if each.session == session_of(actor)]
        assert len(told) == 1, told
        return told[0].state, told[0].since, told[0].detail


def begun(*actors: str, **changes: object) -> Learner:
    """Version 1, with these members."""
    learner = Learner(replace(SYNC, clients=len(actors), **changes))  # type: ignore[arg-type]
    for actor in actors:
        learner.room.beat(actor)
    assert learner.decide() == [*(f"join {actor}" for actor in actors), "begin"]
    assert learner.number == 1
    return learner


def test_registration_ends_when_all_are_there():
    learner = Learner()
    assert learner.pass_time(1, "a", "b") == ["join a", "join b"]
    assert learner.state_of("a") == ("waiting", -1, "")
    assert learner.pass_time(1, "a", "b", "c") == ["join c", "begin"]
    assert learner.state_of("c") == ("member", 1, "")


def test_registration_ends_with_fewer_when_its_time_is_over():
    learner = Learner()
    assert learner.pass_time(29.5, "a", "b") == ["join a", "join b"]
    assert learner.pass_time(1, "a", "b") == ["begin"]


def test_too_few_clients_end_the_run():
    learner = Learner()
    assert learner.pass_time(29.5, "a") == ["join a"]
    said = learner.pass_time(1, "a")
    assert said[0].startswith("end: Too few clients: 1 of at least 2 (algorithm.sync.min_clients) after 30 s")
    assert "there: a." in said[0]
    state, _, detail = learner.state_of("a")
    assert (state, detail[:40]) == ("lost", "the run has ended: Too few clients: 1 of")


def test_a_late_one_is_told_why():
    learner = begun("a", "b")
    assert learner.pass_time(1, "a", "b", "c") == []
    assert learner.state_of("c") == ("refused", -1, "the run has the 2 clients of algorithm.sync.clients: a, b")
    # Until there is a place.
    learner.room.beat("b", joins=False)
    assert learner.pass_time(1, "a", "c") == ["lost b", "join c"]
    assert learner.state_of("c") == ("waiting", -1, "")
    assert learner.state_of("b") == ("lost", -1, "it left, or its loop stands still")


def test_silence_loses_a_client_and_a_heartbeat_brings_it_back():
    learner = begun("a", "b")
    learner.arrive("a", final=True)
    learner.arrive("b", final=True)
    assert learner.pass_time(5.9, "a") == []
    assert learner.pass_time(0.3, "a") == ["lost b"]
    assert learner.state_of("b") == ("lost", -1, "no heartbeat for 6 s")
    assert learner.pass_time(1, "a") == []
    assert learner.pass_time(0.1, "a", "b") == ["join b"]
    learner.cut()
    assert learner.state_of("b") == ("member", 2, "")


def test_a_rollout_that_does_not_grow_loses_its_client_though_heartbeats_come():
    learner = begun("a", "b")
    learner.arrive("a", final=True)
    learner.pass_time(4, "a", "b", transitions=10)
    assert learner.pass_time(4, "a", "b", transitions=20) == []
    assert learner.pass_time(5.8, "a", "b", transitions=20)[:1] == ["lost b"]
    # It still asks to take part: whoever joined gets the next version, and its time starts with that.
    assert learner.said[-1] == "join b"
    assert learner.pass_time(20, "a", "b", transitions=20) == []


def test_chunks_count_as_signs_of_life():
    learner = begun("a", "b")
    learner.arrive("a", final=True)
    for _ in range(4):
        assert learner.pass_time(5, "a") == []
        learner.arrive("b")


def test_a_complete_rollout_is_not_waited_for_and_neither_is_one_of_a_version_not_announced():
    learner = begun("a", "b")
    learner.arrive("a", final=True)
    learner.announced = False
    assert learner.pass_time(30, "a", "b") == []
    learner.announced = True
    assert learner.pass_time(5.9, "a", "b") == []
    assert learner.pass_time(0.5, "a", "b") == ["lost b", "join b"]
    assert learner.pass_time(30, "a", "b") == []


def test_nobody_is_lost_while_the_learner_does_not_hear_itself():
    learner = begun("a", "b")
    assert learner.pass_time(60, own=False) == []
    # The clocks start anew with the first of its own heartbeats.
    assert learner.pass_time(5.9, "a") == []
    assert "lost b" in learner.pass_time(0.3, "a")


def test_who_is_gone_after_a_restart_is_lost_and_who_is_there_stays():
    learner = begun("a", "b")
    again = Learner(learner.sync)
    again.roster.load_state(learner.roster.state())
    again.number = 1
    again.arrive("a", final=True)
    assert again.pass_time(5.9, "a") == []
    assert again.pass_time(0.3, "a") == ["lost b"]


def test_with_fewer_than_the_least_others_are_waited_for_and_then_the_run_ends():
    learner = begun("a", "b", min_clients=2)
    learner.room.beat("b", joins=False)
    learner.arrive("a", final=True)
    assert learner.pass_time(29.8, "a") == ["lost b"]
    assert learner.pass_time(0.1, "a", "c") == ["join c"]
    assert learner.roster.train_due
    learner.cut()
    learner.room.beat("c", joins=False)
    said = learner.pass_time(30.5, "a", transitions=5)
    assert said[0] == "lost c"
    learner = begun("a", "b", min_clients=2)
    learner.arrive("a", final=True)
    learner.room.beat("b", joins=False)
    assert learner.pass_time(30.5, "a")[-1].startswith("end: Too few clients: 1 of at least 2")


def test_the_first_lost_client_ends_the_run_if_it_is_to():
    learner = begun("a", "b", on_lost_client="stop")
    learner.room.beat("b", joins=False)
    said = learner.pass_time(0.1, "a")
    assert said[0] == "lost b"
    why = "it left, or its loop stands still"
    assert said[1] == f"end: Client b is lost ({why}), and algorithm.sync.on_lost_client=stop."
    assert learner.state_of("a")[0] == learner.state_of("b")[0] == "lost"


def test_a_fraction_is_taken_after_a_moment_of_grace():
    learner = begun("a", "b", "c", collect_fraction=0.6, collect_grace_s=2.0)
    learner.arrive("a", final=True)
    assert learner.pass_time(3, "a", "b", "c") == []
    learner.arrive("b", final=True)
    assert learner.pass_time(1.8, "a", "b", "c") == []
    assert learner.pass_time(0.3, "a", "b", "c") == ["take"]
    learner.cut()
    assert learner.pass_time(1, "a", "b", "c") == []


def test_a_fraction_means_what_it_says_in_spite_of_binary_fractions():
    """0.1 * 30 is a little more than 3."""
    actors = [f"a{index}" for index in range(30)]
    learner = begun_many(actors, collect_fraction=0.1, collect_grace_s=0.0)
    for actor in actors[:3]:
        learner.arrive(actor, final=True)
    assert learner.decide() == ["take"]


def begun_many(actors: list[str], **changes: object) -> Learner:
    learner = Learner(replace(SYNC, clients=len(actors), **changes))  # type: ignore[arg-type]
    for actor in actors:
        learner.room.beat(actor)
    learner.decide()
    assert len(learner.roster.members) == len(actors)
    return learner


def test_hostile_heartbeats_neither_fill_the_memory_nor_touch_the_members():
    learner = begun("a", "b")
    learner.arrive("a", final=True)
    learner.arrive("b", final=True)
    for number in range(3000):
        learner.room.beat(f"x{number}", session=f"{number:032x}")
    learner.room.beat("mallory", session=session_of("a"), joins=False)
    learner.room.beat("two words", session="9" * 32)
    learner.room.beat("c", session="no session")
    learner.room.beat("c", run="another")
    assert learner.decide() == []
    assert len(learner.attendance._others) == 1000
    told = learner.attendance.members(learner.roster)
    assert len(told) == 102
    assert {each.state for each in told} == {"member", "refused"}


@pytest.mark.parametrize("joins", [True, False])
def test_nothing_is_decided_before_the_first_heartbeat_came_back(joins: bool):
    attendance = Attendance(RUN, LEARNER, 0.1)
    room = Room(attendance, LEARNER)
    room.beat("a", joins=joins)
    assert attendance.decide(Roster(1, 10), SYNC, 0, room.now) is None
    room.own()
    assert (attendance.decide(Roster(1, 10), SYNC, 0, room.now) is not None) == joins
