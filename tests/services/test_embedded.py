import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import ServiceError
from pipeline.services import (
    down,
    running_services,
    services_down,
    services_status,
    services_up,
    start_detached,
    status,
)
from pipeline.services.asking import broker_answers, http_answers
from tests.waiting import process_runs, wait_until


def embedded_pid(folder: Path) -> int:
    return int((folder / "logs" / "embedded.pid").read_text())


def test_both_answer_on_entry_and_are_gone_on_exit(tmp_path: Path) -> None:
    with running_services("embedded", tmp_path) as services:
        pid = embedded_pid(tmp_path)
        assert broker_answers(services.bootstrap_servers)
        assert http_answers(services.endpoint, "/moto-api/")
        assert status(tmp_path) == services.addresses
        assert services.ended() == []
    assert not process_runs(pid)
    assert not broker_answers(services.bootstrap_servers)
    assert status(tmp_path) is None


def test_addresses_are_private_and_secrets_are_not_shown(tmp_path: Path) -> None:
    with running_services("embedded", tmp_path) as services:
        path = tmp_path / "services.json"
        assert path.stat().st_mode & 0o777 == 0o600
        held = json.loads(path.read_text())
        assert held["bootstrap_servers"].startswith("127.0.0.1:")
        assert held["endpoint"].startswith("127.0.0.1:")
        assert held["secret_key"] not in repr(services.addresses)
    assert not path.exists()


def test_a_second_start_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with (
        running_services("embedded", tmp_path),
        pytest.raises(ServiceError, match="already run"),
        running_services("embedded", tmp_path),
    ):
        pass


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(ServiceError, match="embedded, local"),
        running_services("external", tmp_path),
    ):
        pass
    with pytest.raises(ServiceError, match="nothing to start"):
        services_up(tmp_path, "external")


def test_the_embedded_services_have_no_kafka_to_restart(tmp_path: Path) -> None:
    with (
        running_services("embedded", tmp_path) as services,
        pytest.raises(ServiceError, match="no kafka of its own"),
    ):
        services.kafka.stop()


def test_detached_services_outlive_the_start_and_end_with_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    addresses = start_detached("embedded", tmp_path)
    try:
        pid = embedded_pid(tmp_path)
        assert services_status(tmp_path) == 0
        said = capsys.readouterr().out
        assert addresses.bootstrap_servers in said
        assert addresses.endpoint in said
        assert addresses.secret_key not in said
        assert broker_answers(addresses.bootstrap_servers)
    finally:
        assert services_down(tmp_path) == 0
    assert not process_runs(pid)
    assert services_status(tmp_path) == 3
    assert not down(tmp_path)


def test_a_failed_detached_start_says_why(tmp_path: Path) -> None:
    with (
        running_services("embedded", tmp_path),
        pytest.raises(ServiceError, match="already run"),
    ):
        start_detached("embedded", tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_kill_9_of_the_supervising_process_leaves_no_orphans(tmp_path: Path) -> None:
    addresses = start_detached("embedded", tmp_path)
    pid = embedded_pid(tmp_path)
    os.kill(addresses.pid, signal.SIGKILL)
    wait_until(lambda: not process_runs(pid), "the embedded services end")
    # What the killed process left behind misleads nobody, and the folder can be used again.
    assert status(tmp_path) is None
    assert not (tmp_path / "services.json").exists()
    with running_services("embedded", tmp_path):
        pass


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_ctrl_c_ends_the_services_in_the_foreground(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipeline.services", "up", "--kind", "embedded"]
    process = subprocess.Popen(
        [*command, "--folder", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: status(tmp_path) is not None, "the services answer")
    pid = embedded_pid(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "The services have ended." in said
    assert not process_runs(pid)


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_the_foreground_says_when_a_service_ends_by_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipeline.services", "up", "--kind", "embedded"]
    process = subprocess.Popen([*command, "--folder", str(tmp_path)], stderr=subprocess.PIPE, text=True)
    wait_until(lambda: status(tmp_path) is not None, "the services answer")
    os.kill(embedded_pid(tmp_path), signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "ended by itself" in said
