"""docker-compose.yml for real: `make compose-test`, where a Docker daemon answers. Minutes; the first time many."""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from pipeline.config import load_config
from pipeline.demo.evaluation import EvaluationThread
from pipeline.secret import Secret
from pipeline.secrets.folder import SecretsFolder
from pipeline.secrets.secret_file import KafkaAccess, SecretFile
from tests.compose.monitoring import asked, family, rules, shown
from tests.security.hidden import secrets_of

ROOT = Path(__file__).parents[2]
PROMETHEUS = "prom/prometheus:v2.42.0"
RUN = "compose"
IMAGE = "rl-pipeline-test"
CANARY = f"canary-{secrets.token_hex(16)}"
_SOLVED_S = 1800.0
_STARTED_S = 1800.0


def docker_answers() -> bool:
    return bool(
        os.environ.get("COMPOSE")
        and shutil.which("docker")
        and subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
        and subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
    )


pytestmark = [
    pytest.mark.skipif(not docker_answers(), reason="`make compose-test` with a Docker daemon and Compose runs this"),
    pytest.mark.timeout(7200),
]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def eventually(what: str, seconds: float, look: Callable[[], Any]) -> Any:
    """What ``look`` gives once that is something."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(1.0)
    return found


def docker(*arguments: str, expected: int = 0) -> str:
    """What a command prints, which ends with the expected status."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == expected, f"{arguments}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


class Stack:
    """The compose file in a copy of the tree, under a project name and ports of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = f"pipeline-test-{os.getpid()}"
        names = ("KAFKA", "STORE", "LEARNER_METRICS", "TELEMETRY_METRICS", "PROMETHEUS", "GRAFANA")
        self.ports = {name: free_port() for name in names}
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PIPELINE_")},
            **{f"PIPELINE_{name}_PORT": str(port) for name, port in self.ports.items()},
            "PIPELINE_IMAGE": IMAGE,
            # So that there is something to remove, again and again, while the test looks.
            "PIPELINE_CLEANUP": "cleanup.every_s=5 cleanup.keep_last=10 cleanup.keep_every=0",
        }

    def compose(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            ["docker", "compose", "-p", self.project, "--project-directory", str(self.folder), *arguments],
            env=self._environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, f"{arguments}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout

    def containers(self) -> dict[str, dict[str, Any]]:
        """What Docker says of each container, by service; of several, one."""
        ids = self.compose("--profile", "*", "ps", "-aq").split()
        return {
            one["Config"]["Labels"]["com.docker.compose.service"]: one for one in json.loads(docker("inspect", *ids))
        }

    def metrics(self, role: str) -> dict[str, float]:
        try:
            url = f"http://127.0.0.1:{self.ports[f'{role}_METRICS']}/metrics"
            with urllib.request.urlopen(url, timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return {}
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}

    def version(self) -> int:
        return int(self.metrics("LEARNER").get("pipeline_version", -1))

    def secret(self, name: str) -> Path:
        return self.folder / "deploy" / "secrets" / "clients" / f"{name}.yaml"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A fresh clone: nothing that git does not have, and nothing made by hand."""
    folder = tmp_path_factory.mktemp("clone")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    _plant(folder)
    stack = Stack(folder)
    try:
        yield stack
    finally:
        stack.compose("--profile", "*", "down", "-v", "--timeout", "20", check=False)


def _plant(folder: Path) -> None:
    """Secrets that lie about before the images are built: in a client's file, and where settings are kept."""
    planted = SecretFile(kafka=KafkaAccess("nowhere:9092", "planted", Secret(CANARY)))
    planted.write(folder / "deploy" / "secrets" / "clients" / "planted.yaml", "Nobody's")
    for name in (".env", "saves/planted", "pipeline/.env"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"PLANTED={CANARY}\n")


def test_the_pipeline_in_containers(stack: Stack, tmp_path: Path):
    """It learns; killed, ended and started again it goes on; a client elsewhere needs one file."""
    stack.compose("--profile", "actors", "up", "-d", "--build")
    eventually("the first version", _STARTED_S, lambda: stack.version() >= 0)
    _check_containers(stack)

    # -- a client outside of Docker: one file, nothing else ---------------------------------------------------------
    stack.compose("run", "--rm", "admin", "secrets", "client", "outside")
    secret = tmp_path / "outside.yaml"
    shutil.copy(stack.secret("outside"), secret)
    client = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pipeline.client",
                f"secret={secret}",
                "client.actor=far",
                "client.max_episodes=20",
            ),
            # Only so that a busy machine is no failure.
            *("kafka.timeout_s=60", "client.first_weights_timeout_s=120"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert client.returncode == 0, client.stderr
    results = stack.folder / "saves" / RUN / "results.csv"
    eventually("its episodes in the results", 60.0, lambda: results.exists() and "outside/far" in results.read_text())

    # -- it solves CartPole: the published weights do, judged with that client's rights -------------------------------
    evaluation = EvaluationThread(load_config([f"secret={secret}", f"run={RUN}"]), RUN)
    evaluation.start()
    eventually("an average of 475", _SOLVED_S, lambda: evaluation.solved or evaluation.error)
    assert evaluation.error is None and evaluation.solved is not None
    assert evaluation.solved[0].mean_return >= 475.0

    _check_secrets(stack)

    # -- old weights go, again and again ------------------------------------------------------------------------------
    def removals() -> int:
        return stack.compose("logs", "--no-log-prefix", "cleanup").count("removed ")

    eventually("weights removed more than once", 300.0, lambda: removals() > 1)

    # -- killed, and up again -----------------------------------------------------------------------------------------
    before = stack.version()
    stack.compose("kill", "learner")
    stack.compose("--profile", "actors", "up", "-d")
    eventually("further versions", _STARTED_S, lambda: stack.version() > before)
    assert f"Run {RUN} goes on after version" in stack.compose("logs", "--no-log-prefix", "learner")

    # -- down, and up again -------------------------------------------------------------------------------------------
    stack.compose("--profile", "actors", "stop")
    learner = stack.containers()["learner"]["State"]
    assert learner["ExitCode"] == 0 and not learner["OOMKilled"], "it ended in good order, with a checkpoint"
    saved = sorted(path.name for path in (stack.folder / "saves" / RUN / "checkpoints").iterdir())[-1]
    before = int(saved.split("-")[1])
    stack.compose("--profile", "actors", "down")
    stack.compose("--profile", "actors", "up", "-d")
    eventually("further versions", _STARTED_S, lambda: stack.version() > before)
    said = stack.compose("logs", "--no-log-prefix", "learner")
    assert re.search(rf"goes on after version \d+\.{before}: .* 0 versions computed again", said), said

    # -- tools --------------------------------------------------------------------------------------------------------
    assert f"/data/saves/{RUN}/manual_save/" in stack.compose("run", "--rm", "operator", "quicksave")
    assert "offsets advanced" in stack.compose("run", "--rm", "offline", "replay", "ls")
    assert (stack.folder / "saves" / RUN / "telemetry.png").stat().st_size > 0
    _check_secrets(stack)


def _check_containers(stack: Stack) -> None:
    """What the compose file promises, of the containers that run."""
    containers = stack.containers()
    for name, container in containers.items():
        host, config = container["HostConfig"], container["Config"]
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"], name
        assert host["Memory"] > 0 and host["PidsLimit"] > 0, name
        assert not host["Privileged"] and "no-new-privileges:true" in host["SecurityOpt"], name
        assert not config["User"].startswith("0") or name == "folders", name
        for bindings in (host["PortBindings"] or {}).values():
            for binding in bindings:
                assert binding["HostIp"] == "127.0.0.1" or name in ("kafka", "minio"), name
    for name in ("folders", "secrets", "setup", "actors-setup"):
        assert containers[name]["State"]["ExitCode"] == 0, name
    for name in ("kafka", "minio", "learner"):
        assert containers[name]["State"]["Health"]["Status"] == "healthy", name


def _check_secrets(stack: Stack) -> None:
    """None is in the logs, the settings, or the command lines of the containers; those planted are in no image."""
    hidden = secrets_of(SecretsFolder(stack.folder / "deploy" / "secrets"))
    assert CANARY in hidden and len(hidden) > 20
    ids = stack.compose("--profile", "*", "ps", "-aq").split()
    seen = {
        "logs": stack.compose("--profile", "*", "logs", "--no-log-prefix"),
        "processes": stack.compose("--profile", "*", "top"),
        "settings": docker("inspect", *ids),
        "layers": docker("history", "--no-trunc", IMAGE),
    }
    for place, text in seen.items():
        assert text and not [secret for secret in hidden if secret in text], place
    # What pip installed came before anything of this tree.
    grep = [*("--entrypoint", "grep", IMAGE, "-rlF", CANARY, "/")]
    without = [f"--exclude-dir={name}" for name in ("proc", "sys", "dev", "site-packages", "dist-packages")]
    assert docker("run", "--rm", "--network", "none", "--user", "0", *grep, *without, expected=1) == ""


def test_prometheus_scrapes_and_its_alarms_are_quiet(stack: Stack):
    """After the test above: the learner is there. Grafana's image is not everywhere, so it is not started here."""
    stack.compose("--profile", "monitoring", "up", "-d", "prometheus")

    def ask(path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{stack.ports['PROMETHEUS']}/api/v1/{path}", timeout=5) as answer:
            return json.load(answer)["data"]

    def healthy() -> bool:
        state = stack.containers()["prometheus"]["State"]
        return state["Health"]["Status"] == "healthy"

    eventually("Prometheus answers", 300.0, healthy)

    def scraped() -> set[str]:
        return {target["labels"]["job"] for target in ask("targets")["activeTargets"] if target["health"] == "up"}

    eventually("both roles are scraped", 120.0, lambda: scraped() == {"learner", "telemetry"})
    assert len(ask("rules")["groups"][0]["rules"]) == len(rules()) >= 10

    # What dashboard and alarms ask for is said by the roles, and Prometheus understands the question.
    expressions = shown() + [rule["expr"] for rule in rules()]
    said = {family(name) for name in ask("metadata")} | {"ALERTS", "up"}
    for expression in expressions:
        ask(f"query?{urlencode({'query': expression})}")
        assert {family(name) for name in asked(expression)} <= said, expression

    def away() -> set[str]:
        return {alarm["labels"]["alertname"] for alarm in ask("alerts")["alerts"]} & {"LearnerAway", "TelemetryAway"}

    eventually("no alarm about the roles", 120.0, lambda: not away())


def test_alarms_fire_when_they_should():
    docker(
        *("run", "--rm", "--network", "none", "--entrypoint", "promtool"),
        *("-v", f"{ROOT / 'deploy' / 'prometheus'}:/etc/prometheus:ro"),
        *("-v", f"{ROOT / 'tests' / 'compose'}:/tests:ro"),
        os.environ.get("PROMETHEUS_IMAGE", PROMETHEUS),
        *("test", "rules", "/tests/alarms.yml"),
    )
