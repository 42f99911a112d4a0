"""The actor's ledger: what was handed to the broker and what the broker acknowledged, for audits.

One line per event, written through to the operating system at once, so that it outlives a killed process:

    P <actor> <session> <sequence> <count>          before a samples chunk is produced
    A <session> <sequence> <partition> <offset>     when the broker has acknowledged it

A chunk that is sent again has more than one of either. Compared with the learner's ledger, this shows that nothing
acknowledged was lost and nothing was counted twice.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import ClientError, InvalidRecordError
from pipeline.experience import Identity
from pipeline.wire import RecordHeaders


class ActorLedger:
    """Appends to the ledger; any number of processes may append to one file.

    Args:
        path: the file; made, with its folders, where it is missing.

    Raises:
        ClientError: it cannot be opened.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise ClientError(f"The ledger {path} cannot be opened; check client.ledger: {error}") from error

    def produced(self, headers: Sequence[tuple[str, bytes]]) -> Identity | None:
        """Write that a chunk goes to the producer now.

        Args:
            headers: of the record, as Kafka takes them.

        Returns:
            What `acknowledged` wants to know; None for a record that says no identity, of which nothing is written.

        Raises:
            ClientError: the line cannot be written, so the chunk must not be sent.
        """
        try:
            read = RecordHeaders.from_kafka(headers)
        except InvalidRecordError:
            return None
        self._write(f"P {read.actor} {read.session} {read.sequence} {read.count}\n")
        return read.identity

    def acknowledged(self, identity: Identity, partition: int, offset: int) -> None:
        """Write where the broker has put the chunk.

        Raises:
            ClientError: the line cannot be written.
        """
        self._write(f"A {identity.session} {identity.sequence} {partition} {offset}\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, line: str) -> None:
        try:
            os.write(self._file, line.encode("ascii"))
        except OSError as error:
            raise ClientError(f"The ledger {self._path} cannot be written: {error}") from error
