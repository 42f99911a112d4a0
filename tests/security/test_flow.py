"""A run under all of it: roles and a client with one file each, a hostile client beside it; and no secret is seen."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.broker import BrokerSettings, LogReader, Producer, Topics, find_run
from pipeline.config import load_config
from pipeline.connect import signer_of
from pipeline.environment import read_layout
from pipeline.experience import Ending, Segments, Version
from pipeline.experience.chunk import Chunk
from pipeline.wire import DeadLetter, Heartbeat, ModelVersionRecord, RecordHeaders, encode_chunk, fingerprint
from tests.flows.processes import role
from tests.security.conftest import NAMESPACE, Secured
from tests.security.hidden import secrets_of
from tests.waiting import wait_until

RUN = "flow"
TOPICS = Topics(NAMESPACE, RUN)
SMALL = ["algorithm.learning_starts=500", "algorithm.updates_per_version=100", "environment.envs=4", "security=tls"]
WAIT = 240.0


def process_lines() -> Iterator[str]:
    """The command lines of all processes of this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue


class Watcher:
    """Reads the learner's progress as somebody who may."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._reader = LogReader(settings, TOPICS.progress, open_timeout=WAIT)
        self.beat: Heartbeat | None = None

    def look(self) -> Heartbeat | None:
        for record in self._reader.poll(1000, 0.1):
            self.beat = Heartbeat.decode(record.value)
        return self.beat

    def accepted(self) -> int:
        beat = self.look()
        return 0 if beat is None else beat.transitions

    def version(self) -> int:
        beat = self.look()
        return -1 if beat is None else beat.version_number

    def positions(self) -> dict[str, int]:
        beat = self.look()
        return {} if beat is None else {position.session: position.sequence for position in beat.positions}

    def close(self) -> None:
        self._reader.close()


def chunk(version: Version) -> Chunk:
    return Chunk(
        version=version,
        segments=Segments(
            environment=np.zeros(1, np.int32),
            episode=np.zeros(1, np.int64),
            first_step=np.zeros(1, np.int32),
            length=np.ones(1, np.int32),
            ending=np.array([Ending.TERMINATED], np.uint8),
        ),
        columns={
            "observation": np.zeros((2, 4), np.float32),
            "action": np.zeros(1, np.int64),
            "reward": np.ones(1, np.float32),
        },
    )


@pytest.mark.timeout(600)
def test_a_run_with_a_hostile_client(secured: Secured, tmp_path: Path):
    saves = f"saves={tmp_path / 'saves'}"
    secured.users(RUN).apply()
    for client in ("alice", "bob"):
        secured.users(RUN).client(client)
    watcher = Watcher(secured.broker("operator"))
    hidden = secrets_of(secured.folder)
    with (
        role("learner", tmp_path / "learner.log", *secured.overrides("learner", RUN), saves, *SMALL) as learner,
        role(
            "telemetry",
            tmp_path / "telemetry.log",
            *secured.overrides("telemetry", RUN),
            saves,
            "telemetry.update_s=0.2",
        ),
        role("client", tmp_path / "alice.log", *secured.overrides("alice", RUN), "client.first_weights_timeout_s=120"),
    ):
        wait_until(lambda: watcher.version() >= 2, "two versions of alice's experience", WAIT)
        lines = list(process_lines())
        hostile(secured, watcher)
        quicksave = [
            sys.executable,
            "-m",
            "pipeline.cli",
            "quicksave",
            *secured.overrides("operator", RUN),
            "command.timeout_s=120",
        ]
        saved = subprocess.run(quicksave, capture_output=True, text=True, check=True, timeout=WAIT)
        before = watcher.version()
        wait_until(lambda: watcher.version() > before, "it goes on", WAIT)
        assert learner.poll() is None, (tmp_path / "learner.log").read_text()
    watcher.close()
    cleanup = [
        sys.executable,
        "-m",
        "pipeline.cli",
        "cleanup",
        *secured.overrides("cleanup", RUN),
        saves,
        "cleanup.keep_last=1",
    ]
    cleaned = subprocess.run(cleanup, capture_output=True, text=True, check=True, timeout=WAIT)
    verify = [sys.executable, "-m", "pipeline.cli", "replay", "verify", *secured.overrides("offline", RUN), saves]
    verified = subprocess.run(
        [*verify, "replay.versions=0..2"], capture_output=True, text=True, check=True, timeout=WAIT
    )
    assert "identical" in verified.stdout
    without = [each for each in verify if not each.startswith("secret=")]
    refused = subprocess.run(
        [*without, f"secret={secured.file('operator')}"], capture_output=True, text=True, check=False, timeout=WAIT
    )
    assert refused.returncode == 1 and "Topic authorization failed" in refused.stderr + refused.stdout

    seen = [*lines, saved.stdout, saved.stderr, cleaned.stdout, cleaned.stderr, verified.stdout, refused.stderr]
    places = [
        *tmp_path.rglob("*"),
        *(secured.services.folder / "logs").iterdir(),
        secured.services.folder / "services.json",
    ]
    seen += [path.read_bytes().decode(errors="replace") for path in places if path.is_file()]
    offline = secured.broker("offline")
    for topic in (TOPICS.runs, TOPICS.versions, TOPICS.progress, TOPICS.dead_letters):
        with LogReader(offline, topic) as reader:
            seen += [record.value.decode(errors="replace") for record in reader.read_to_end(60.0)]
    for secret in hidden:
        assert not [text[:200] for text in seen if secret in text]


def hostile(secured: Secured, watcher: Watcher) -> None:
    """Bob has a client's rights, and knows alice's session from the learner's progress."""
    bob = secured.config("bob", RUN)
    signer = signer_of(bob)
    positions = watcher.positions()
    (session,) = positions
    broker, topics = secured.broker("bob"), TOPICS
    manifest = find_run(broker, NAMESPACE, RUN, timeout=60.0)
    assert manifest.run == RUN
    layout = read_layout(load_config().environment)
    with LogReader(broker, topics.versions) as reader:
        versions = [ModelVersionRecord.decode(record.value) for record in reader.read_to_end(60.0)]
    version = [record.version for record in versions if record.kind == "weights"][-1]
    own = RecordHeaders(RUN, "bob", signer.new_session(), 0, version, fingerprint("chunk"), 1)
    forged = [
        signer.sign(replace(own, actor="alice/one")),
        signer.sign(replace(own, session=session, sequence=10**17)),
        replace(own, actor="alice", session=session, sequence=10**17),
    ]
    with Producer(broker) as producer:
        for headers in (*forged, signer.sign(own)):
            producer.send_and_wait(
                topics.samples, encode_chunk(chunk(version), layout), headers=headers.to_kafka(), timeout=60.0
            )
    with LogReader(secured.broker("offline"), topics.dead_letters) as reader:
        letters: list[DeadLetter] = []

        def told() -> bool:
            letters.extend(DeadLetter.decode(record.value) for record in reader.poll(100, 0.1))
            return sum(letter.reason == "forged" for letter in letters) >= len(forged)

        wait_until(told, "dead letters of what was forged", WAIT)
    wait_until(lambda: own.session in watcher.positions(), "bob's own record is judged", WAIT)
    assert positions[session] <= watcher.positions()[session] < 10**6
