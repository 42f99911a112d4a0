"""results.csv: a line per episode, whole again after any end."""

import csv
from pathlib import Path

from pipeline.telemetry.duplicates import Duplicates
from pipeline.telemetry.results import COLUMNS, Results
from tests.telemetry.made import episode


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, offsets: range, start: int = 0) -> None:
    with Results(path, {0: start}) as results:
        for offset in offsets:
            results.add(0, offset, 99, episode(offset, offset / 3))
        results.publish()


def test_a_line_per_episode(tmp_path: Path):
    path = tmp_path / "results.csv"
    write(path, range(3))
    [_, line, _] = lines(path)
    assert tuple(line) == COLUMNS
    assert line["offset"] == "1" and float(line["total_return"]) == 1 / 3
    assert line["ending"] == "terminated" and (line["version_epoch"], line["version_number"]) == ("1", "0")
    assert line["info"].startswith('{"score":')


def test_until_the_end_of_the_log_the_old_file_stays(tmp_path: Path):
    path = tmp_path / "results.csv"
    write(path, range(5))
    with Results(path, {0: 0}) as results:
        results.add(0, 0, 99, episode(0))
        results.flush()
        assert len(lines(path)) == 5
    assert len(lines(path)) == 5
    assert [each.name for each in tmp_path.iterdir()] == ["results.csv"]


def test_after_it_lines_are_added(tmp_path: Path):
    path = tmp_path / "results.csv"
    with Results(path, {0: 0}) as results:
        results.add(0, 0, 99, episode(0))
        results.publish()
        assert len(lines(path)) == 1
        results.add(0, 1, 99, episode(1))
        results.publish()
        results.flush()
        assert len(lines(path)) == 2


def test_what_a_killed_process_left_is_put_right(tmp_path: Path):
    """A line that was cut short, a temporary file; and what the log has forgotten stays."""
    path = tmp_path / "results.csv"
    write(path, range(6))
    path.write_text(path.read_text() + "0,1")
    (tmp_path / ".results.csv.1.tmp").write_text("x")
    write(path, range(4, 8), start=4)
    assert [int(line["offset"]) for line in lines(path)] == list(range(8))
    assert [each.name for each in tmp_path.iterdir()] == ["results.csv"]


def test_a_file_of_other_columns_is_replaced(tmp_path: Path):
    path = tmp_path / "results.csv"
    path.write_text("a,b\n0,0\n")
    write(path, range(2), start=1)
    assert len(lines(path)) == 2


def test_hostile_names_stay_in_their_cell(tmp_path: Path):
    path = tmp_path / "results.csv"
    with Results(path, {}) as results:
        results.add(0, 0, 0, episode(0, actor='a","b\nc'))
        results.publish()
    [line] = lines(path)
    assert line["actor"] == 'a","b\nc'


def test_duplicates_are_found_in_bounded_memory():
    duplicates = Duplicates(most=3)
    assert [duplicates.seen(value) for value in (b"1", b"2", b"1", b"3", b"4", b"1", b"2")] == [
        False,
        False,
        True,
        False,
        False,
        True,
        False,
    ]
    assert duplicates.found == 2
