"""The actor's ledger says what was produced and acknowledged."""

from pathlib import Path

import pytest

from pipeline.client.ledger import ActorLedger
from pipeline.errors import ClientError
from pipeline.experience import Version
from pipeline.wire import RecordHeaders

SESSION = "a" * 32


def headers(sequence: int) -> list[tuple[str, bytes]]:
    return RecordHeaders("run", "actor-1", SESSION, sequence, Version(1, 2), "0" * 16, 256).to_kafka()


def test_two_processes_write_one_file(tmp_path: Path):
    """Lines are appended whole; what has no identity is passed over."""
    one, two = ActorLedger(tmp_path / "deep" / "ledger"), ActorLedger(tmp_path / "deep" / "ledger")
    identity = one.produced(headers(0))
    two.produced(headers(1))
    assert identity is not None and one.produced([]) is None
    one.acknowledged(identity, 3, 17)
    one.close()
    two.close()
    assert (tmp_path / "deep" / "ledger").read_text().splitlines() == [
        f"P actor-1 {SESSION} 0 256",
        f"P actor-1 {SESSION} 1 256",
        f"A {SESSION} 0 3 17",
    ]


def test_a_ledger_that_cannot_be_opened_is_said(tmp_path: Path):
    with pytest.raises(ClientError, match=r"client\.ledger"):
        ActorLedger(tmp_path)
