"""The learner's ledger: one line per judged record, for audits.

    <number in force> <partition> <offset> <actor> <session> <sequence> <count> <verdict>

The verdict is `accepted`, `duplicate` or the reason of the rejection. A record whose headers cannot be read has ``-``
for actor and session, sequence −1 and count 0. Each line is written through to the operating system at once, so that
it outlives a killed process.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from pipeline.errors import LearnerError
from pipeline.learner.intake.arrival import Arrival


class LearnerLedger:
    """Appends verdicts, and forgets those that a recovery will give anew.

    Args:
        path: the file; made, with its folders, where it is missing.

    Raises:
        LearnerError: it cannot be opened.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open()
        except OSError as error:
            raise self._trouble("opened", error) from error

    def write(self, number: int, arrival: Arrival, verdict: str) -> None:
        """Write down one verdict.

        Args:
            number: of the version in force.
            arrival: the judged record.
            verdict: what the judge said.

        Raises:
            LearnerError: the line cannot be written.
        """
        record, headers = arrival.record, arrival.headers
        whose = "- - -1 0"
        if headers is not None:
            whose = f"{headers.actor} {headers.session} {headers.sequence} {headers.count}"
        line = f"{number} {record.partition} {record.offset} {whose} {verdict}\n"
        try:
            os.write(self._file, line.encode("ascii"))
        except OSError as error:
            raise self._trouble("written", error) from error

    def rewind(self, positions: Mapping[int, int]) -> None:
        """Drop the lines of all records that will be judged again; all of them or none.

        Recovery calls it before it judges anything.

        Args:
            positions: the next offset by partition in the state that the learner goes back to; lines of partitions
                that are not named go altogether.

        Raises:
            LearnerError: the file cannot be replaced.
        """
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        try:
            with self._path.open("rb") as old, temporary.open("wb") as new:
                new.writelines(line for line in old if _before(line, positions))
                new.flush()
                os.fsync(new.fileno())
            os.close(self._file)
            temporary.replace(self._path)
            self._file = self._open()
        except (OSError, ValueError) as error:
            raise self._trouble("rewound", error) from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def _trouble(self, done: str, error: Exception) -> LearnerError:
        return LearnerError(f"The ledger {self._path} cannot be {done}; check learner.ledger: {error}")


def _before(line: bytes, positions: Mapping[int, int]) -> bool:
    if not line.endswith(b"\n"):
        return False  # A kill cut it short: its record was not accounted for either.
    _, partition, offset, _ = line.split(b" ", 3)
    return int(offset) < positions.get(int(partition), 0)
