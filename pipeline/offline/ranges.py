"""Ranges as they are typed: of offsets, of version numbers, of times."""

from dataclasses import dataclass
from datetime import UTC, datetime

from pipeline.config import ReplayConfig
from pipeline.errors import ReplayError


@dataclass(frozen=True)
class Range:
    """From ``first`` to ``last``, both included; None: open on that side."""

    first: int | None = None
    last: int | None = None

    def __contains__(self, value: int) -> bool:
        return (self.first is None or value >= self.first) and (self.last is None or value <= self.last)

    @property
    def everything(self) -> bool:
        """Whether it is open on both sides."""
        return self.first is None and self.last is None

    def __str__(self) -> str:
        first, last = ("" if end is None else str(end) for end in (self.first, self.last))
        return f"{first}..{last}"


ALL = Range()


@dataclass(frozen=True)
class Selection:
    """Which records are asked for; those in all of its ranges.

    Attributes:
        offsets: within each partition.
        times: of the log, unix milliseconds.
        versions: version numbers.
        partition: None: all.
        limit: at most this many records; None: all.
    """

    offsets: Range = ALL
    times: Range = ALL
    versions: Range = ALL
    partition: int | None = None
    limit: int | None = None

    @staticmethod
    def of(config: ReplayConfig) -> "Selection":
        """The selection that the settings ask for.

        Raises:
            ReplayError: a range is none.
        """
        return Selection(
            offsets=numbers(config.offsets, "replay.offsets"),
            times=times(config.time, "replay.time"),
            versions=numbers(config.versions, "replay.versions"),
            partition=None if config.partition < 0 else config.partition,
            limit=config.limit if config.limit > 0 else None,
        )


def numbers(text: str, setting: str) -> Range:
    """Read ``100..200``, ``100..``, ``..200`` or ``100``; empty: everything.

    Raises:
        ReplayError: it is none of these, or its end lies before its beginning.
    """
    example = "100..200 (both included), 100.., ..200 or 100"
    if not text.strip():
        return ALL
    first, dots, last = (part.strip() for part in text.strip().partition(".."))
    if not all(part == "" or (part.isascii() and part.isdigit() and len(part) < 19) for part in (first, last)):
        raise ReplayError(f"{setting}={text!r} is no range; write {example}.")
    if not dots:
        return Range(int(first), int(first))
    return _ordered(int(first) if first else None, int(last) if last else None, text, setting)


def times(text: str, setting: str) -> Range:
    """Read a range of ISO 8601 times or unix milliseconds, as in ``2026-01-01T12:00..2026-01-01T13:00``.

    Times without a zone are UTC, as all times that are shown.

    Raises:
        ReplayError: it is no such range, or its end lies before its beginning.
    """
    if not text.strip():
        return ALL
    first, dots, last = (part.strip() for part in text.strip().partition(".."))
    if not dots:
        raise ReplayError(f"{setting}={text!r} is no range of times: write FROM..TO; either side may stay empty.")
    return _ordered(_milliseconds(first, setting), _milliseconds(last, setting), text, setting)


def _milliseconds(text: str, setting: str) -> int | None:
    if not text:
        return None
    if text.isascii() and text.isdigit() and 8 < len(text) < 16:
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ReplayError(
            f"{setting}: {text!r} is neither an ISO 8601 time, such as 2026-01-01T12:00, nor unix milliseconds."
        ) from error
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _ordered(first: int | None, last: int | None, text: str, setting: str) -> Range:
    if first is not None and last is not None and last < first:
        raise ReplayError(f"{setting}={text!r} ends before it begins.")
    return Range(first, last)


def clock(milliseconds: int) -> str:
    """Unix milliseconds as people read them, UTC: ``2026-01-01T12:00:00.123Z``; ``-`` where there is no time."""
    if milliseconds < 0:
        return "-"
    try:
        time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"
