"""A client's name is its own: nobody else's records count under it, nor move what it is paced by."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config import load_config
from pipeline.connect import signer_of, voucher_of, with_actors
from pipeline.errors import ConfigError, InvalidRecordError, RejectReason
from pipeline.experience import Ending, Version
from pipeline.learner.intake.arrival import Arrival, Examiner
from pipeline.learner.intake.identities import Identities
from pipeline.learner.intake.judge import ACCEPTED, DUPLICATE, Judge
from pipeline.secret import Secret
from pipeline.secrets.secret_file import ActorAccess, ActorsAccess, SecretFile
from pipeline.wire import Limits, RecordHeaders, Signer, Voucher, client_key, encode_chunk, fingerprint, key_mark
from tests.offline.made import FIRST, LAYOUT, RUN, FakeLog, chunk_of

KEY = "11" * 32
CHUNK = chunk_of([3, 2], [Ending.TERMINATED, Ending.OPEN])
EXAMINER = Examiner(LAYOUT, RUN, Limits(), Voucher(KEY))


def signer(client: str) -> Signer:
    return Signer(client, client_key(KEY, client))


def headers(actor: str, session: str, sequence: int = 0) -> RecordHeaders:
    return RecordHeaders(RUN, actor, session, sequence, FIRST, fingerprint("chunk"), CHUNK.steps)


def arrive(found: RecordHeaders) -> Arrival:
    log = FakeLog()
    log.add(0, 0, CHUNK)
    return EXAMINER.examine(replace(log.partitions[0][0], headers=found.to_kafka()))


def test_a_clients_own_records_count():
    alice = signer("alice")
    session = alice.new_session()
    judge = Judge(3)
    for actor in ("alice", "alice/one"):
        arrival = arrive(alice.sign(headers(actor, session)))
        assert judge.judge(arrival, FIRST) == ACCEPTED
    assert judge.judge(arrive(alice.sign(headers("alice", session))), FIRST) == DUPLICATE


@pytest.mark.parametrize(
    "forge",
    [
        lambda bob, session: headers("alice", session),
        lambda bob, session: bob.sign(headers("alice", session)),
        lambda bob, session: bob.sign(headers("alice/one", session)),
        lambda bob, session: replace(bob.sign(headers("bob", bob.new_session())), actor="alice"),
        lambda bob, session: bob.sign(headers("bob", session, 10**17)),
        lambda bob, session: replace(bob.sign(headers("bob", bob.new_session())), sequence=7),
        lambda bob, session: replace(bob.sign(headers("bob", bob.new_session())), version=Version(0, 0)),
        lambda bob, session: headers("bob", bob.new_session()),
    ],
    ids=[
        "alice, unsigned",
        "alice, signed by bob",
        "alice's actor, signed by bob",
        "name changed behind the signature",
        "bob's name, alice's session",
        "sequence changed",
        "version changed",
        "bob, unsigned",
    ],
)
def test_what_bob_forges_counts_for_nobody(forge):
    """It is refused before anything is counted under the name, and is a dead letter with its reason."""
    alice, bob = signer("alice"), signer("bob")
    session = alice.new_session()
    judge = Judge(3)
    judge.judge(arrive(alice.sign(headers("alice", session, 5))), FIRST)
    positions = judge.identities.positions()
    arrival = arrive(forge(bob, session))
    assert arrival.headers is None and arrival.chunk is None
    assert arrival.error is not None and arrival.error.reason is RejectReason.FORGED
    assert judge.judge(arrival, FIRST) == "forged"
    assert judge.identities.positions() == positions
    assert judge.judge(arrive(alice.sign(headers("alice", session, 6))), FIRST) == ACCEPTED


def test_one_client_with_many_actors_and_sessions_displaces_only_itself():
    identities = Identities(max_sessions_of_client=8)
    identities.seen(headers("alice", "a" * 32).identity)
    for number in range(100):
        identities.seen(headers(f"bob/{number}", f"{number:032x}").identity)
    assert len(identities) == 9
    assert identities.evicted == 92
    assert identities.seen(headers("alice", "a" * 32).identity)
    again = Identities(max_sessions_of_client=8)
    again.load_state(identities.state())
    identities.seen(headers("bob/new", "b" * 32).identity)
    again.seen(headers("bob/new", "b" * 32).identity)
    assert again.state() == identities.state()


def test_without_a_key_everything_is_as_it_was():
    nobody = Signer()
    assert nobody.actor("any/name") == "any/name"
    plain = headers("any/name", nobody.new_session())
    assert nobody.sign(plain) == plain
    arrival = Examiner(LAYOUT, RUN, Limits()).examine(
        replace(_record(), headers=plain.to_kafka(), value=encode_chunk(CHUNK, LAYOUT))
    )
    assert arrival.error is None
    assert "code" not in dict(plain.to_kafka())


def test_actors_are_called_as_their_client():
    alice = signer("alice")
    assert [alice.actor(name) for name in ("one", "alice", "alice/two", "alicex")] == [
        "alice/one",
        "alice",
        "alice/two",
        "alice/alicex",
    ]


@pytest.mark.parametrize("code", [b"", b"0" * 63, b"G" * 64, b"0" * 65])
def test_a_malformed_code_is_a_bad_header(code: bytes):
    raw = [*headers("a", "0" * 32).to_kafka(), ("code", code)]
    if not code:
        assert RecordHeaders.from_kafka(raw).code == ""
        return
    with pytest.raises(InvalidRecordError) as caught:
        RecordHeaders.from_kafka(raw)
    assert caught.value.reason is RejectReason.BAD_HEADERS


def test_who_judges_by_which_key(tmp_path: Path):
    """A learner notes the mark of its key; whoever judges again needs a file with that key."""
    path, other, client = (tmp_path / name for name in ("learner.yaml", "other.yaml", "alice.yaml"))
    SecretFile(actors=ActorsAccess(Secret(KEY))).write(path, "test")
    SecretFile(actors=ActorsAccess(Secret("22" * 32))).write(other, "test")
    SecretFile(actor=ActorAccess("alice", client_key(KEY, "alice"))).write(client, "test")
    plain = with_actors(load_config([]))
    assert plain.learner.actors == "" and voucher_of(plain) is None
    marked = with_actors(load_config([f"secret={path}"]))
    assert marked.learner.actors == key_mark(KEY)
    voucher, alice = voucher_of(marked), signer_of(load_config([f"secret={client}"]))
    assert voucher is not None
    voucher.check(alice.sign(headers("alice", alice.new_session())))
    for secret in ("", str(other)):
        with pytest.raises(ConfigError, match="learner or of the role offline"):
            voucher_of(replace(marked, secret=secret))


def _record():
    log = FakeLog()
    log.add(0, 0, CHUNK)
    return log.partitions[0][0]
