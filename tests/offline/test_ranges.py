"""Ranges as they are typed."""

import pytest

from pipeline.config import ReplayConfig
from pipeline.errors import ReplayError
from pipeline.offline.ranges import ALL, Range, Selection, clock, numbers, times


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ALL),
        ("100..200", Range(100, 200)),
        ("100..", Range(100, None)),
        ("..200", Range(None, 200)),
        ("..", ALL),
        (" 100 .. 200 ", Range(100, 200)),
        ("412", Range(412, 412)),
        ("0..0", Range(0, 0)),
    ],
)
def test_numbers(text: str, expected: Range):
    assert numbers(text, "replay.offsets") == expected


@pytest.mark.parametrize("text", ["a..b", "1...2", "-1..2", "2..1", "1-2", "1.5..2", "1..2..3", "²..3"])
def test_nonsense_is_refused_with_the_setting_s_name(text: str):
    with pytest.raises(ReplayError, match=r"replay\.offsets"):
        numbers(text, "replay.offsets")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ALL),
        ("2026-01-01T00:00..2026-01-01T00:00:01.5", Range(1_767_225_600_000, 1_767_225_601_500)),
        ("2026-01-01..", Range(1_767_225_600_000, None)),
        ("..2026-01-01T01:00+01:00", Range(None, 1_767_225_600_000)),
        ("1767225600000..1767225600001", Range(1_767_225_600_000, 1_767_225_600_001)),
        ("2026-01-01T00:00:00Z..", Range(1_767_225_600_000, None)),
    ],
)
def test_times(text: str, expected: Range):
    assert times(text, "replay.time") == expected


@pytest.mark.parametrize("text", ["2026-01-01", "yesterday..", "2026-01-02..2026-01-01", "..99"])
def test_no_times(text: str):
    with pytest.raises(ReplayError, match=r"replay\.time"):
        times(text, "replay.time")


def test_a_range_includes_both_ends():
    assert [value for value in range(6) if value in Range(2, 4)] == [2, 3, 4]
    assert 10**12 in Range(3, None) and 2 not in Range(3, None)
    assert str(Range(3, None)) == "3.."


def test_the_time_that_is_shown_can_be_asked_for():
    shown = clock(1_767_225_600_123)
    assert shown == "2026-01-01T00:00:00.123Z"
    assert times(f"{shown}..{shown}", "replay.time") == Range(1_767_225_600_123, 1_767_225_600_123)
    assert clock(-1) == "-"


def test_the_settings_make_a_selection():
    config = ReplayConfig(offsets="1..2", versions="7", partition=3, limit=5)
    assert Selection.of(config) == Selection(Range(1, 2), ALL, Range(7, 7), 3, 5)
    assert Selection.of(ReplayConfig()) == Selection()
