"""Figures of training reach TensorBoard and Weights & Biases, and never stop the training."""

import logging
import math
import struct
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline.broker import Record
from pipeline.errors import BrokerUnreachableError, ConfigError
from pipeline.learner import DQNTrainingNode
from pipeline.learner.reports.event_file import EventFile, crc32c
from pipeline.learner.reports.figures import Progress, Returns, Tracking
from pipeline.learner.reports.trackers import TensorBoardTracker, Trackers, open_trackers, require_trackers
from pipeline.wire import TelemetryWindow
from tests.learner.made import feed, node_in, record_of


def read(folder: Path, name: str) -> list[tuple[int, float]]:
    """What TensorBoard shows of one figure."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def records_of(path: Path) -> int:
    """How many whole records an event file holds; there is nothing behind them."""
    data, at, count = path.read_bytes(), 0, 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        at, count = at + 16 + length, count + 1
    assert at == len(data)
    return count


def test_the_checksum_is_that_of_the_standard():
    """RFC 3720, appendix B.4, and the usual check value."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(bytes(range(32))) == 0x46DD794E


def test_tensorboard_reads_what_was_written(tmp_path: Path):
    file = EventFile(tmp_path)
    for step in (0, 300, 2**40):
        file.write(step, {"train/loss": step / 4, "far": 1e300, "none": math.nan})
    # Readable at once, without being closed.
    assert read(tmp_path, "train/loss") == [(0, 0.0), (300, 75.0), (2**40, 2.0**38)]
    assert read(tmp_path, "far")[0] == (0, math.inf)
    assert math.isnan(read(tmp_path, "none")[0][1])
    file.close()


def test_a_run_that_goes_on_shows_no_step_twice(tmp_path: Path):
    """What the killed learner wrote of versions that nobody saw is gone, and so is half a record of its."""
    first = TensorBoardTracker(tmp_path, 0)
    for step in (100, 200, 300, 400):
        first.log(step, {"loss": 1.0})
    [path] = tmp_path.iterdir()
    with path.open("ab") as file:
        file.write(b"\x30\0\0\0\0\0\0\0half")
    second = TensorBoardTracker(tmp_path, 201)
    for step in (290, 390):
        second.log(step, {"loss": 2.0})
    assert read(tmp_path, "loss") == [(100, 1.0), (200, 1.0), (290, 2.0), (390, 2.0)]
    # Not only by TensorBoard's own rule: its faster reader does not know it.
    assert [records_of(each) for each in sorted(tmp_path.iterdir())] == [4, 4]


def test_a_full_disk_costs_the_figures_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any):
    caplog.set_level(logging.WARNING)
    tracker = TensorBoardTracker(tmp_path, 0)
    trackers = Trackers({"tensorboard": tracker})
    trackers.log(1, {"loss": 1.0})
    file = tracker._file
    whole = file._file

    class Full:
        """Takes some bytes, as a disk does that has no more."""

        def write(self, data: bytes) -> int:
            return whole.write(data[:7])

        def truncate(self, size: int) -> int:
            return whole.truncate(size)

    monkeypatch.setattr(file, "_file", Full())
    trackers.log(2, {"loss": 2.0})
    trackers.log(3, {"loss": 3.0})
    monkeypatch.setattr(file, "_file", whole)
    trackers.log(4, {"loss": 4.0})
    trackers.close()
    assert [message for message in caplog.messages if "training goes on" in message] == caplog.messages
    assert len(caplog.messages) == 1
    assert read(tmp_path, "loss") == [(1, 1.0), (4, 4.0)]


def test_one_that_cannot_be_opened_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "tensorboard").write_text("in the way")
    assert len(open_trackers(["tensorboard"], tmp_path, "run", {}, 0)) == 0
    assert "cannot be opened" in caplog.text


def fake_wandb(monkeypatch: pytest.MonkeyPatch, logged_in: Any) -> SimpleNamespace:
    """Stands for the package; notes what it is given."""
    seen = SimpleNamespace(init={}, logged=[], finished=False)

    def init(**arguments: Any) -> Any:
        seen.init = arguments
        return SimpleNamespace(
            log=lambda figures, step: seen.logged.append((step, figures)),
            finish=lambda: setattr(seen, "finished", True),
        )

    module = ModuleType("wandb")
    module.__spec__ = SimpleNamespace()  # type: ignore[assignment]
    module.init, module.login, module.Settings = init, logged_in, dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return seen


@pytest.mark.parametrize(("key", "mode"), [(True, "online"), (False, "offline"), (None, "offline")])
def test_wandb_is_offline_without_a_key_that_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: bool | None, mode: str
):
    def login(prompt: bool) -> bool:
        assert prompt is False
        if key is None:
            raise RuntimeError("the service is away")
        return key

    seen = fake_wandb(monkeypatch, login)
    trackers = open_trackers(["wandb"], tmp_path / "run", "run", {"a": 1}, 0)
    trackers.log(7, {"loss": 1.0})
    trackers.close()
    assert (seen.init["mode"], seen.init["id"], seen.init["config"]) == (mode, "run", {"a": 1})
    assert seen.init["resume"] == ("allow" if mode == "online" else None)
    assert seen.logged == [(7, {"loss": 1.0})] and seen.finished


def test_wandb_that_is_not_installed_is_said_before_anything_is_opened(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    require_trackers(["tensorboard"])
    with pytest.raises(ConfigError, match=r"pip install 'pipeline\[wandb\]'"):
        require_trackers(["wandb"])
    # No broker is asked for anything.
    with pytest.raises(ConfigError, match="wandb"):
        node_in(tmp_path, "learner.trackers=[wandb]").run()


class Windows:
    """The telemetry topic."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.away = False
        self.closed = False

    def poll(self, most: int, timeout: float) -> list[Record]:
        if self.away:
            raise BrokerUnreachableError("away")
        waiting, self.waiting = self.waiting, []
        return [Record("t", 0, 0, 0, None, value, None) for value in waiting]

    def close(self) -> None:
        self.closed = True


def window(mean: float, run: str = "fold") -> bytes:
    return TelemetryWindow(run, 0, 1, 2, mean, 9.0, mean, 3, 4).encode()


def test_the_newest_window_of_the_telemetry_counts():
    windows = Windows()
    returns = Returns(windows, "fold")  # type: ignore[arg-type]
    windows.waiting = [window(1.0), window(2.0), window(5.0, "another"), window(math.nan), b"nonsense"]
    assert returns.newest() == {"episodes/mean_return": 2.0, "episodes/mean_steps": 9.0}
    assert returns.newest() == {}
    windows.away = True
    assert returns.newest() == {}


def tracked(folder: Path, *overrides: str) -> tuple[DQNTrainingNode, Windows]:
    node, windows = node_in(folder, *overrides), Windows()
    trackers = open_trackers(["tensorboard"], node.folder.path, "fold", {}, 0)
    now = iter(range(100))
    progress = Progress(node.accounting, node.updates, lambda: 2.0 * next(now))
    node._tracking = Tracking(trackers, progress, Returns(windows, "fold"))  # type: ignore[arg-type]
    return node, windows


def test_every_version_has_its_figures(tmp_path: Path):
    """By accepted transitions; windows of two seconds here."""
    node, windows = tracked(tmp_path, "algorithm=rainbow", "learner.version_window=2")
    node.publish()
    windows.waiting = [window(3.5)]
    feed(node, [record_of(node, sequence, sequence) for sequence in range(9)])
    folder = node.folder.path / "tensorboard"
    assert [step for step, _ in read(folder, "version")] == [0, 40, 60]
    assert read(folder, "episodes/mean_return") == [(40, 3.5)]
    assert read(folder, "samples/policy_lag") == [(40, 0.0), (60, 1.0)]
    assert read(folder, "speed/updates_per_s") == [(0, 0.0), (40, 2.0), (60, 2.0)]
    assert read(folder, "speed/transitions_per_s") == [(0, 0.0), (40, 20.0), (60, 10.0)]
    for name in ("loss", "td_error", "q", "gradient_norm", "learning_rate", "beta"):
        values = read(folder, f"train/{name}")
        assert [step for step, _ in values] == [40, 60] and all(math.isfinite(value) for _, value in values)
    assert read(folder, "acting/exploration")[0] == (0, 1.0)
    assert node.accounting.stale_transitions == 30
    node.publish()
    assert read(folder, "samples/stale")[-1] == (60, 30.0)
    assert read(folder, "samples/stale_share")[-1] == (60, 1.0)
    node._tracking.close()  # type: ignore[union-attr]
    assert windows.closed
