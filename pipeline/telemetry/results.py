"""``results.csv``: a line per episode, with its place in the log."""

import csv
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from pipeline.experience import EpisodeInfo

COLUMNS = (
    "partition",
    "offset",
    "time_ms",
    "actor",
    "session",
    "environment",
    "episode",
    "steps",
    "total_return",
    "version_epoch",
    "version_number",
    "ending",
    "info",
)


class Results:
    """Writes the file anew from the log, then adds to it.

    The log is read from its beginning, so a file that a killed process left cut short is made whole again. Until
    :meth:`publish`, when the log's end is reached, the old file stays. Lines of episodes that the log has forgotten are
    taken over.

    Args:
        path: the file.
        starts: by partition, the first offset that is read from the log.

    Raises:
        OSError: the disk is full or refuses; so do all methods.
    """

    def __init__(self, path: Path, starts: Mapping[int, int]) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._temporary: Path | None = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._file = self._temporary.open("w", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file)
        self._writer.writerow(COLUMNS)
        self._writer.writerows(_forgotten(path, starts))

    def add(self, partition: int, offset: int, time_ms: int, episode: EpisodeInfo) -> None:
        """Add an episode; :meth:`flush` makes it visible."""
        self._writer.writerow(
            (
                partition,
                offset,
                time_ms,
                episode.actor,
                episode.session,
                episode.environment,
                episode.episode,
                episode.steps,
                repr(episode.total_return),
                *episode.version,
                episode.ending.name.lower(),
                json.dumps(dict(episode.info)) if episode.info else "",
            )
        )

    def publish(self) -> None:
        """The log's end is reached: put the new file in the old one's place."""
        if self._temporary is None:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()  # an open file is not renamed everywhere
        self._temporary.replace(self._path)
        self._temporary = None
        for left in self._path.parent.glob(f".{self._path.name}.*.tmp"):
            left.unlink(missing_ok=True)  # of a process that was killed
        self._file = self._path.open("a", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file)

    def flush(self) -> None:
        """Make what was added visible."""
        self._file.flush()

    def close(self) -> None:
        """Close the file; one that was not published is thrown away."""
        try:
            self._file.close()
        finally:
            if self._temporary is not None:
                self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _forgotten(path: Path, starts: Mapping[int, int]) -> Iterator[list[str]]:
    """The file's whole lines of episodes before those that the log still holds."""
    if not path.exists():
        return
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        lines = csv.reader(file)
        if tuple(next(lines, ())) != COLUMNS:
            return
        for line in lines:
            if len(line) == len(COLUMNS) and line[0].isdecimal() and line[1].isdecimal():
                partition, offset = int(line[0]), int(line[1])
                if offset < starts.get(partition, 0):
                    yield line
