"""Who sent a chunk: what the reader removes duplicates by."""

from __future__ import annotations

import secrets
from typing import NamedTuple


class Identity(NamedTuple):
    """The identity of one chunk; two chunks with equal identities are the same chunk.

    Attributes:
        actor: the actor's name, up to 128 printable ASCII characters.
        session: 32 lower-case hexadecimal characters, 128 random bits per process start.
        sequence: 0, 1, 2, … within the session, without gaps.
    """

    actor: str
    session: str
    sequence: int


def new_session() -> str:
    """128 random bits as 32 hexadecimal characters: a new session of an actor."""
    return secrets.token_hex(16)
