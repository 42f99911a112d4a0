"""Avro encoding of all that is on the log, and the refusal of what should not be."""

from pipeline.wire.chunks import DEFAULT_LIMITS, Limits, decode_chunk, encode_chunk
from pipeline.wire.codec import MAX_BYTES, decode, encode
from pipeline.wire.headers import RecordHeaders, is_identity
from pipeline.wire.journal import (
    COMMANDS,
    EVENTS,
    Journal,
    JournalCommand,
    JournalCounters,
    JournalEvent,
    JournalStep,
)
from pipeline.wire.records import (
    Command,
    DeadLetter,
    Heartbeat,
    Member,
    ModelVersionRecord,
    Outcome,
    Position,
    RunManifest,
    TelemetryWindow,
    decode_episode,
    encode_episode,
)
from pipeline.wire.registry import Registry, Released, fingerprint, registry
from pipeline.wire.vouching import Signer, Voucher, client_key, client_of, key_mark

__all__ = [
    "COMMANDS",
    "DEFAULT_LIMITS",
    "EVENTS",
    "MAX_BYTES",
    "Command",
    "DeadLetter",
    "Heartbeat",
    "Journal",
    "JournalCommand",
    "JournalCounters",
    "JournalEvent",
    "JournalStep",
    "Limits",
    "Member",
    "ModelVersionRecord",
    "Outcome",
    "Position",
    "RecordHeaders",
    "Registry",
    "Released",
    "RunManifest",
    "Signer",
    "TelemetryWindow",
    "Voucher",
    "client_key",
    "client_of",
    "decode",
    "decode_chunk",
    "decode_episode",
    "encode",
    "encode_chunk",
    "encode_episode",
    "fingerprint",
    "is_identity",
    "key_mark",
    "registry",
]
