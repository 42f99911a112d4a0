"""Registration and sync, against what a learner may say and when; without services."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline.client import PPOConnector
from pipeline.client.builder import ChunkBuilder
from pipeline.client.counters import ALIVE
from pipeline.client.outbox import QueuePolicy
from pipeline.errors import (
    ClientError,
    ConnectorClosedError,
    InvalidSampleError,
    RunEndedError,
    ServerTimeoutError,
)
from pipeline.experience import Version
from pipeline.wire import Member, encode_chunk
from tests.client.made import Scene, ScriptedUplink, numbers

SOON_S = 0.1
NEVER_S = 60.0
OTHER = "b" * 32
BEATS = 30


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch, "algorithm=ppo", "client.chunk_steps=4", "client.queue_policy=drop_oldest")


@pytest.fixture
def connector(scene: Scene):
    with_member = PPOConnector(scene.config)
    yield with_member
    with_member.close()


def later(task: Callable[[], None]) -> None:
    """While the test waits in a call; each task is something that the learner does."""
    threading.Timer(0.05, task).start()


def beat_on(uplink: ScriptedUplink) -> None:
    """A learner that lives, until the connector is closed."""
    while not uplink.closed:
        uplink.say("member", since=0)
        time.sleep(0.02)


def finals(scene: Scene, connector: PPOConnector) -> list[bool]:
    return [chunk.final for _, chunk in scene.chunks(connector)]


# -- registration -----------------------------------------------------------------------------------------------------


def test_it_asks_to_be_taken_in(scene: Scene, connector: PPOConnector):
    """And what it pushes is never dropped, whatever client.queue_policy says."""
    assert scene.uplink.settings.joins
    assert connector.rollout_steps == scene.config.algorithm.ppo.rollout_steps
    assert connector._outbox._policy is QueuePolicy.BLOCK


def test_one_that_waits_is_taken_in_with_a_later_version(scene: Scene):
    """However long it takes: the learner is heard all the time."""

    def learn(uplink: ScriptedUplink) -> None:
        for number in range(6, 6 + BEATS):
            uplink.deliver(number)
            uplink.say("waiting")
            time.sleep(scene.config.client.first_weights_timeout_s / 10)
        uplink.deliver(6 + BEATS)
        uplink.say("member", since=7 + BEATS)
        uplink.deliver(7 + BEATS)

    scene.script = lambda uplink: threading.Thread(target=learn, args=(uplink,)).start()
    connector = PPOConnector(scene.config)
    assert connector.model_id == 7 + BEATS
    assert [member.state for member in connector.members] == ["member"]
    connector.close()


def test_one_that_is_refused_is_told_why(scene: Scene):
    def script(uplink: ScriptedUplink) -> None:
        uplink.deliver(0)
        uplink.say("refused", detail="2 clients take part already, algorithm.sync.clients is 2")

    scene.script = script
    with pytest.raises(ClientError, match=r"refused this client: 2 clients take part already"):
        PPOConnector(scene.config)
    assert scene.uplink.closed


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ([], r"Nobody answered the registration of a .* not heard in that time: is it running"),
        (["other"], r"Nobody answered the registration of a .* learner lives"),
        (["waiting"], r"answered, and then fell silent"),
        (["member"], r"weights did not come .* object store"),
    ],
)
def test_what_keeps_it_from_beginning_is_said(scene: Scene, said: list[str], error: str):
    """No learner; one that does not answer; one that dies; weights that cannot be fetched."""

    def script(uplink: ScriptedUplink) -> None:
        if "other" in said:
            later(lambda: uplink.members(Member(OTHER, "b", "member", 0)))
        elif said:
            uplink.say(said[0], since=0)
        if said == ["member"]:
            threading.Thread(target=beat_on, args=(uplink,), daemon=True).start()

    scene.script = script
    with pytest.raises(ServerTimeoutError, match=error):
        PPOConnector(scene.config)
    assert scene.uplink.closed


def test_a_run_that_is_over_takes_nobody_in(scene: Scene):
    scene.script = lambda uplink: uplink.end_run()
    with pytest.raises(RunEndedError, match=r"Run 'made' is over\."):
        PPOConnector(scene.config)


# -- sync -------------------------------------------------------------------------------------------------------------


def test_a_second_queued_update_does_not_end_the_next_wait(scene: Scene, connector: PPOConnector):
    """Only a version after that of the samples does, however often the others are told of."""
    connector.push_sample(scene.sample(0))
    scene.uplink.deliver(1)
    scene.uplink.deliver(1)
    connector.sync(NEVER_S)
    assert connector.model_id == 1
    assert all((array == 1).all() for array in connector.agent.weights().values())
    scene.uplink.deliver(1)
    connector.push_sample(scene.sample(1))
    with pytest.raises(ServerTimeoutError, match=r"no version after 1\.1 .* learner was not heard"):
        connector.sync(SOON_S)
    assert connector.model_id == 1
    # It may be called again, to wait on; until then the rollout is over.
    with pytest.raises(ClientError, match="call it again"):
        connector.push_sample(scene.sample(2))
    later(lambda: scene.uplink.deliver(2))
    connector.sync(NEVER_S)
    assert connector.model_id == 2
    assert [(chunk.version.number, chunk.final) for _, chunk in scene.chunks(connector)] == [(0, True), (1, True)]


def test_a_version_that_was_skipped_is_made_up_for_by_a_later_one(scene: Scene, connector: PPOConnector):
    """A new epoch is a later version as well, and old ones that come late are none."""
    connector.push_sample(scene.sample(0))
    scene.uplink.deliver(3)
    connector.sync(NEVER_S)
    connector.push_sample(scene.sample(1))
    scene.uplink.deliver(2)
    with pytest.raises(ServerTimeoutError):
        connector.sync(SOON_S)
    scene.uplink.deliver(4, epoch=2)
    connector.sync(NEVER_S)
    assert connector.version == Version(2, 4)


def test_weights_change_in_sync_only(scene: Scene, connector: PPOConnector):
    """So a rollout is of one version; that a newer one is there can be asked."""
    connector.push_sample(scene.sample(0))
    assert not connector.overtaken
    scene.uplink.deliver(1)
    with connector:
        assert connector.model_id == 0
    connector.push_sample(scene.sample(1))
    assert connector.overtaken
    with connector, pytest.raises(ClientError, match="outside of"):
        connector.sync(NEVER_S)
    connector.sync(NEVER_S)
    assert connector.model_id == 1 and not connector.overtaken
    assert [chunk.version.number for _, chunk in scene.chunks(connector)] == [0]


def test_sync_needs_samples(scene: Scene, connector: PPOConnector):
    with pytest.raises(ClientError, match="nothing was pushed"):
        connector.sync(NEVER_S)
    connector.push_sample(scene.sample(0))
    scene.uplink.deliver(1)
    connector.sync(NEVER_S)
    with pytest.raises(ClientError, match="nothing was pushed"):
        connector.sync(NEVER_S)


def test_a_client_that_was_lost_comes_back_with_the_version_that_takes_it_in(
    scene: Scene, connector: PPOConnector, caplog: pytest.LogCaptureFixture
):
    """Versions that it is no member under are passed over."""
    caplog.set_level(logging.WARNING)
    connector.push_sample(scene.sample(0))
    scene.uplink.say("lost", detail="it was silent for 15 s")
    scene.uplink.deliver(1)
    with pytest.raises(ServerTimeoutError, match=r"Version 1\.1 is there.*lost \(it was silent for 15 s\)"):
        connector.sync(SOON_S)
    scene.uplink.say("waiting")
    scene.uplink.deliver(2)
    with pytest.raises(ServerTimeoutError):
        connector.sync(SOON_S)
    scene.uplink.say("member", since=4)
    scene.uplink.deliver(3)
    with pytest.raises(ServerTimeoutError):
        connector.sync(SOON_S)
    scene.uplink.deliver(4)
    connector.sync(NEVER_S)
    assert connector.model_id == 4
    assert [r.getMessage() for r in caplog.records if "has lost" in r.getMessage()] == [
        "The learner has lost this client: it was silent for 15 s. It asks to take part again."
    ]


def test_a_learner_that_was_started_again_may_have_to_take_the_client_in_anew(scene: Scene, connector: PPOConnector):
    """A state goes back, or the client is unknown at first."""
    connector.push_sample(scene.sample(0))
    scene.uplink.members()
    scene.uplink.deliver(1, epoch=2)
    with pytest.raises(ServerTimeoutError, match="said nothing of this client"):
        connector.sync(SOON_S)
    scene.uplink.say("waiting")
    scene.uplink.say("member", since=2)
    scene.uplink.deliver(2, epoch=2)
    connector.sync(NEVER_S)
    assert connector.version == Version(2, 2)


def test_other_clients_that_are_lost_are_said_once(
    scene: Scene, connector: PPOConnector, caplog: pytest.LogCaptureFixture
):
    lost = Member(OTHER, "b", "lost", detail="it left")
    scene.uplink.say("member", since=0, others=(Member(OTHER, "b", "member", 0),))
    scene.uplink.say("member", since=0, others=(lost,))
    scene.uplink.say("member", since=0, others=(lost,))
    assert [r.getMessage() for r in caplog.records if "has lost" in r.getMessage()] == [
        "The learner has lost client b: it left."
    ]
    assert [(member.actor, member.state) for member in connector.members] == [("a", "member"), ("b", "lost")]


@pytest.mark.parametrize("in_time", [True, False])
def test_the_run_ends(scene: Scene, connector: PPOConnector, in_time: bool):
    """Before or during the wait; the learner's reason is part of the error, even where it is heard a little later."""
    connector.push_sample(scene.sample(0))

    def end() -> None:
        scene.uplink.end_run()
        later(lambda: scene.uplink.say("lost", detail="the run has ended: Too few clients: 1 of at least 2."))

    if in_time:
        end()
    else:
        later(end)
    with pytest.raises(RunEndedError, match=r"is over\. .*lost \(the run has ended: Too few clients: 1 of at least 2"):
        connector.sync(NEVER_S)
    assert connector.run_ended
    assert finals(scene, connector) == [True]


def test_the_learner_may_refuse_it_later(scene: Scene, connector: PPOConnector):
    connector.push_sample(scene.sample(0))
    later(lambda: scene.uplink.say("refused", detail="the run is full"))
    with pytest.raises(ClientError, match="the run is full"):
        connector.sync(NEVER_S)


def test_close_ends_a_wait(scene: Scene, connector: PPOConnector):
    """In another thread, or by a signal."""
    connector.push_sample(scene.sample(0))
    later(connector.close)
    with pytest.raises(ConnectorClosedError):
        connector.sync(NEVER_S)
    with pytest.raises(ConnectorClosedError):
        connector.sync(NEVER_S)


def test_the_loop_shows_life_while_it_waits(scene: Scene, connector: PPOConnector):
    """Else the uplink would withdraw it from the run."""
    connector.push_sample(scene.sample(0))
    before = scene.uplink.counters[ALIVE]
    with pytest.raises(ServerTimeoutError):
        connector.sync(SOON_S)
    assert scene.uplink.counters[ALIVE] > before


# -- the last chunk ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 9])
def test_the_last_chunk_of_a_rollout_and_no_other_says_so(scene: Scene, connector: PPOConnector, count: int):
    """Wherever chunks are cut; what is held back until then is not lost."""
    for number in range(count):
        connector.push_sample(scene.sample(number))
    scene.uplink.deliver(1)
    connector.sync(NEVER_S)
    sent = scene.chunks(connector)
    assert [number for _, chunk in sent for number in numbers(chunk)] == list(range(count))
    assert finals(scene, connector) == [False] * (len(sent) - 1) + [True]
    assert len(sent) == -(-count // 4)


def test_a_bad_sample_at_the_cut_leaves_a_chunk_to_mark(scene: Scene, connector: PPOConnector):
    """The push that would have begun another chunk failed, so the full one is the last."""
    for number in range(4):
        connector.push_sample(scene.sample(number))
    with pytest.raises(InvalidSampleError):
        connector.push_sample(scene.sample(4, extras=None))
    assert scene.chunks(connector) == []
    scene.uplink.deliver(1)
    connector.sync(NEVER_S)
    assert finals(scene, connector) == [True]


def test_encoded_chunks_are_marked_as_well(scene: Scene, connector: PPOConnector):
    """Whatever they say of themselves; those of another version are refused."""
    builder = ChunkBuilder(connector.layout, 64, 1 << 20)

    def encoded(number: int, version: Version, final: bool) -> bytes:
        builder.add(scene.sample(number), version)
        chunk = builder.cut()
        assert chunk is not None
        return encode_chunk(replace(chunk, final=final), connector.layout)

    connector.push_sample(encoded(0, Version(1, 0), final=True))
    connector.push_sample(encoded(1, Version(1, 0), final=False))
    with pytest.raises(ClientError, match=r"version 1\.7, but this rollout is of version 1\.0"):
        connector.push_sample(encoded(2, Version(1, 7), final=False))
    scene.uplink.deliver(1)
    connector.sync(NEVER_S)
    assert [(numbers(chunk), chunk.final) for _, chunk in scene.chunks(connector)] == [([0], False), ([1], True)]


def test_age_and_flush_leave_the_newest_chunk_here(scene: Scene, connector: PPOConnector):
    """close() in mid-rollout sends it, unmarked."""
    for number in range(6):
        connector.push_sample(scene.sample(number))
    scene.config.client.chunk_age_s = 0.0
    scene.uplink.tick()
    assert connector.flush(5.0)
    assert [numbers(chunk) for _, chunk in scene.chunks(connector)] == [[0, 1, 2, 3]]
    connector.close()
    assert [(numbers(chunk), chunk.final) for _, chunk in scene.chunks(connector)] == [
        ([0, 1, 2, 3], False),
        ([4, 5], False),
    ]


def test_a_chunk_that_the_queue_can_never_hold_is_an_error(scene: Scene):
    """A hole in the rollout would be worse."""
    scene.config.client.queue_bytes = 100
    connector = PPOConnector(scene.config)
    connector.push_sample(scene.sample(0))
    with pytest.raises(ClientError, match=r"client\.queue_bytes"):
        connector.sync(NEVER_S)
    connector.close()
