from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.services.cache import cache_folder, cached, fetched


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PIPELINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_entry_is_made_once_however_many_ask(own_cache: Path) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "tool").write_text("x")

    with ThreadPoolExecutor(8) as pool:
        entries = set(pool.map(lambda _: fetched("tool-1", make), range(8)))
    assert entries == {own_cache / "tool-1"}
    assert len(made) == 1
    assert (own_cache / "tool-1" / "tool").read_text() == "x"


def test_a_failed_make_leaves_no_entry(own_cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise RuntimeError("cut off")

    with pytest.raises(RuntimeError):
        fetched("tool-1", fail)
    assert cached("tool-1") is None
    assert [path.name for path in own_cache.iterdir() if path.is_dir()] == []


def test_the_platform_s_cache_folder_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIPELINE_CACHE")
    assert cache_folder().name == "rl-pipeline"
