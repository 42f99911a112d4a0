"""PPO with a learner and clients as processes: rollouts are whole, and whoever goes is not waited for."""

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipeline.broker import LogReader
from pipeline.client import PPOConnector, Transition
from pipeline.environment import read_layout
from pipeline.experience import Chunk
from pipeline.services import Services
from pipeline.wire import RecordHeaders, decode_chunk
from tests.flows.processes import Watcher, config_of, last_state, overrides, role
from tests.recovery.runs import SOAK

SMALL = [
    "algorithm=ppo",
    "algorithm.hidden=[16]",
    "algorithm.ppo.rollout_steps=32",
    "algorithm.ppo.epochs=1",
    "algorithm.sync.discovery_s=120",
    "environment.envs=2",
]

LEFT = "it left, or its loop stands still"


def state_of(watcher: Watcher, actor: str) -> str:
    """What the learner says of a client, with its detail; empty: nothing."""
    members = () if watcher.learner is None else watcher.learner.members
    return next((f"{m.state} {m.detail}".strip() for m in reversed(members) if m.actor == actor), "")


def chunks_of(services: Services, run: str, saves: Path) -> Iterator[tuple[RecordHeaders, Chunk]]:
    """Every chunk on the log, each identity once, in the order of its session."""
    watcher = Watcher(services, run)
    layout = read_layout(config_of(services, run, saves, *SMALL).environment, on_policy=True)
    with LogReader(watcher.settings, watcher.topics.samples) as reader:
        records = reader.read_to_end(60.0)
    watcher.close()
    seen: set[tuple[str, int]] = set()
    for record in records:
        headers = RecordHeaders.from_kafka(record.headers)
        if (headers.session, headers.sequence) not in seen:
            seen.add((headers.session, headers.sequence))
            yield headers, decode_chunk(record.value or b"", layout)


def check_rollouts(services: Services, run: str, saves: Path) -> int:
    """Every rollout on the log ends with its one final chunk, or is its session's last; how many were complete."""
    rollouts: dict[tuple[str, int], list[bool]] = {}
    last: dict[str, tuple[str, int]] = {}
    for headers, chunk in chunks_of(services, run, saves):
        assert chunk.version == headers.version
        key = headers.session, headers.version.number
        rollouts.setdefault(key, []).append(chunk.final)
        last[headers.session] = max(last.get(headers.session, key), key)
    for key, finals in rollouts.items():
        assert not any(finals[:-1]), "a chunk follows the last one of its rollout"
        assert finals[-1] or key == last[key[0]], "a rollout was left without an end"
    return sum(finals[-1] for finals in rollouts.values())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["embedded", "local"])
def test_two_clients_train_in_step(kind: str, request: pytest.FixtureRequest, tmp_path: Path):
    """Some versions, none of whose samples is refused; the clients end with the run."""
    services: Services = request.getfixturevalue(f"{kind}_services")
    run, saves = "in-step", tmp_path / "saves"
    common = overrides(services, run, saves)
    words = [*common, *SMALL, "algorithm.sync.clients=2", "learner.max_transitions=600"]
    logs = {name: tmp_path / f"{name}.log" for name in "lab"}
    with (
        role("learner", logs["l"], *words) as learner,
        role("client", logs["a"], *common, "client.actor=a", "kafka.timeout_s=60") as a,
        role("client", logs["b"], *common, "client.actor=b", "kafka.timeout_s=60") as b,
    ):
        assert learner.wait(150) == 0, logs["l"].read_text()
        for client, log in ((a, logs["a"]), (b, logs["b"])):
            assert client.wait(60) == 0, log.read_text()
            assert "ends after" in log.read_text()  # whether sync() or the loop noticed the end first
    accounting = last_state(saves, run)["accounting"]
    assert accounting["accepted_transitions"] >= 600 and not accounting["rejected"]
    assert check_rollouts(services, run, saves) >= 2 * 4


@pytest.mark.skipif(not SOAK, reason="runs under `make soak`; test_ppo_trouble.py has the same on fewer steps")
@pytest.mark.timeout(400)
def test_clients_that_go_are_not_waited_for(local_services: Services, tmp_path: Path):
    """One is paused and comes back, one ends in order, one is killed, one comes late; training goes on throughout.

    The time-out is far longer than the test where clients leave: they say so, or their uplink does.
    """
    run, saves = "they-go", tmp_path / "saves"
    common = overrides(local_services, run, saves)
    watcher = Watcher(local_services, run)
    words = [*common, *SMALL, "algorithm.sync.clients=3", "algorithm.sync.client_timeout_s=4"]

    def client(name: str):
        return role("client", tmp_path / f"{name}.log", *common, f"client.actor={name}", "kafka.timeout_s=60")

    def goes_on(what: str) -> None:
        before = watcher.version
        watcher.wait(lambda: watcher.version >= before + 2, what)

    with role("learner", tmp_path / "l.log", *words) as learner, client("a") as a, client("b") as b, client("c") as c:
        watcher.wait(lambda: watcher.version >= 3, "version 3")
        b.send_signal(signal.SIGSTOP)
        try:
            watcher.wait(lambda: state_of(watcher, "b").startswith("lost"), "the paused one is lost")
            goes_on("training goes on without it")
        finally:
            b.send_signal(signal.SIGCONT)
        watcher.wait(lambda: state_of(watcher, "b") == "member", "it is taken in again")
        goes_on("training goes on with it")
        c.terminate()
        assert c.wait(60) == 0, (tmp_path / "c.log").read_text()
        watcher.wait(lambda: state_of(watcher, "c") == f"lost {LEFT}", "the one that ended has left")
        goes_on("training goes on without it")
        a.kill()
        a.wait()
        watcher.wait(lambda: state_of(watcher, "a") == f"lost {LEFT}", "the killed one's uplink says so")
        with client("d"):
            watcher.wait(lambda: state_of(watcher, "d") == "member", "a late one is taken in")
            goes_on("training goes on with it")
            assert b.poll() is None, (tmp_path / "b.log").read_text()
            assert learner.poll() is None, (tmp_path / "l.log").read_text()
    watcher.close()
    assert f"has lost client c: {LEFT}" in (tmp_path / "b.log").read_text()
    assert check_rollouts(local_services, run, saves) > 10


@pytest.mark.timeout(300)
def test_the_uplink_is_killed_in_mid_rollout(local_services: Services, tmp_path: Path):
    """Nothing is lost, nothing counts twice, and sync returns with the next version."""
    run, saves = "uplink-dies", tmp_path / "saves"
    common = overrides(local_services, run, saves)
    with role("learner", tmp_path / "l.log", *common, *SMALL):
        connector = PPOConnector(
            config_of(local_services, run, saves, "client.actor=a", "client.chunk_steps=8", "kafka.timeout_s=120")
        )
        number, observation = 0, np.zeros(4, np.float32)
        for rollout in range(3):
            before = connector.model_id
            for step in range(32):
                with connector:
                    action, log_prob = connector.agent.act(observation)
                number += 1
                following = np.array([number, 0, 0, 0], np.float32)
                connector.push_sample(
                    Transition(observation, action, 1.0, following, False, False, extras={"log_prob": log_prob})
                )
                observation = following
                if step == 16 and rollout:
                    connector._uplink.process.kill()
            connector.sync()
            assert connector.model_id > before
        assert connector.uplink_restarts == 2
        members = connector.members
        connector.close()
    assert [(member.actor, member.state) for member in members] == [("a", "member")]
    numbers: Counter[int] = Counter()
    for _, chunk in chunks_of(local_services, run, saves):
        (length,) = chunk.segments.length
        numbers.update(chunk.columns["observation"][:length, 0].astype(int).tolist())
    assert numbers == Counter(range(number))
    assert check_rollouts(local_services, run, saves) == 3
    watcher = Watcher(local_services, run)
    watcher.wait(lambda: watcher.accepted == number, "the learner has accepted every one")
    watcher.close()
