"""What docker-compose.yml promises, read from the file itself: no Docker is needed."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.config import load_config
from pipeline.secrets.folder import ROLES
from pipeline.services.kafka import MAX_MESSAGE_BYTES
from pipeline.services.minio import VERSION
from tests.compose.monitoring import asked, panels, rules, shown

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONE_SHOTS = {"folders", "secrets", "setup", "actors-setup", "admin", "operator", "offline"}
WITHOUT_SERVER = {"actors", "cleanup"}
"""They serve nobody, and nobody waits for them."""
METRICS = re.compile(r"(?:Counter|Gauge|Histogram)\(\s*\"(pipeline_\w+)\"")


def of(name: str) -> dict[str, Any]:
    return SERVICES[name]


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_hardened(name: str):
    service = of(name)
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"] and service["pids_limit"]
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert "privileged" not in service and service.get("network_mode", "none") == "none"


@pytest.mark.parametrize("name", SERVICES)
def test_nobody_is_root_but_who_makes_folders(name: str):
    service = of(name)
    if name == "folders":
        assert service["network_mode"] == "none"
        assert set(service["cap_add"]) <= {"CHOWN", "DAC_OVERRIDE", "FOWNER"}
        return
    assert "cap_add" not in service
    user = service["user"]
    assert user == "${PIPELINE_UID:-1000}:${PIPELINE_GID:-1000}" or int(user.partition(":")[0]) > 0


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - ONE_SHOTS))
def test_what_runs_on_is_asked_restarted_and_given_time_to_end(name: str):
    service = of(name)
    assert service["restart"] in ("unless-stopped", "on-failure:5")
    assert int(service["stop_grace_period"].rstrip("s")) >= 15
    assert ("healthcheck" in service) == (name not in WITHOUT_SERVER)


def test_the_learner_is_given_time_for_its_checkpoint():
    """More than it waits for the store, twice, and for the writer."""
    assert int(of("learner")["stop_grace_period"].rstrip("s")) >= 60


@pytest.mark.parametrize("name", SERVICES)
def test_services_wait_for_what_they_need(name: str):
    """Until one-shots are done, and until the others answer."""
    for needed, how in of(name).get("depends_on", {}).items():
        done = needed in ONE_SHOTS
        assert how["condition"] == ("service_completed_successfully" if done else "service_healthy")
        assert done or "healthcheck" in of(needed)


def test_only_broker_and_store_are_reached_from_other_machines():
    for name, service in SERVICES.items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:") != (name in ("kafka", "minio")), (name, port)


def test_roles_have_no_way_out():
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    for name in ("setup", "actors-setup", "actors", "cleanup", "operator", "offline", "admin"):
        assert of(name)["networks"] == ["inside"]
    assert "inside" not in of("prometheus")["networks"] + of("grafana")["networks"]


def test_each_is_given_its_own_secrets():
    """The authority's key is for those who make secrets only, and a role cannot write its file."""
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            if not volume.startswith("./deploy/secrets"):
                continue
            folder, _, mode = volume.partition(":")
            if folder == "./deploy/secrets":
                assert name in ("folders", "secrets", "setup", "actors-setup", "admin")
            else:
                assert folder.rpartition("/")[2] == name.removesuffix("-gpu") and mode.endswith(":ro"), (name, volume)


def test_no_secret_is_in_the_file():
    text = (ROOT / "docker-compose.yml").read_text()
    assert not re.search(r"(?i)(password|secret_key|token)\s*[:=]\s*[^\s/]", text)
    for service in SERVICES.values():
        for name in service.get("environment", {}):
            assert not re.search("PASSWORD|SECRET|KEY|TOKEN", name) or name.endswith("_FILE")


def test_secrets_do_not_reach_an_image():
    """The builder is sent what is listed, and neither secrets nor runs are."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert allowed == {
        "requirements/runtime.txt", "schemas", "conf", "deploy/local", "deploy/healthy.py", "pipeline",
    }  # fmt: skip


def test_the_folders_of_roles_are_made():
    script = of("folders")["entrypoint"][-1]
    made = re.search(r"mkdir -p (.*)", script)
    assert made is not None and set(made[1].split()) >= {*ROLES, "ca", "kafka", "minio", "clients", "actors"}


@pytest.mark.parametrize("name", [name for name in SERVICES if "pipeline.cli" in str(SERVICES[name].get("entrypoint"))])
def test_commands_are_ones_that_the_pipeline_has(name: str):
    """Every setting exists, with what PIPELINE_… is by default."""
    service = of(name)
    words = f"{' '.join(service['entrypoint'])} {service.get('command') or ''}"
    plain = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", words)
    settings = [word for word in re.findall(r"[a-z_.]+=[^\s\"]+", plain) if not word.startswith(("http", "url="))]
    assert settings
    load_config(settings)


def test_the_dockerfiles_need_no_buildkit():
    for path in (ROOT / "deploy" / "Dockerfile", ROOT / "deploy" / "minio" / "Dockerfile"):
        text = path.read_text()
        assert not re.search(r"--mount|--chmod|--link|<<|^# syntax", text, re.MULTILINE)
        assert "\nUSER 1000" in text


def test_a_change_of_the_code_does_not_install_torch_again():
    steps = [line for line in (ROOT / "deploy" / "Dockerfile").read_text().splitlines() if re.match("COPY|RUN", line)]
    installs = next(index for index, step in enumerate(steps) if "pip install" in step)
    assert [step for step in steps[:installs] if step.startswith("COPY")] == [
        "COPY requirements/runtime.txt /tmp/requirements.txt"
    ]


def test_minio_is_the_one_that_tests_run_on():
    assert f"ARG MINIO_VERSION={VERSION}\n" in (ROOT / "deploy" / "minio" / "Dockerfile").read_text()


def properties() -> dict[str, str]:
    lines = (ROOT / "deploy" / "kafka" / "server.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_broker_lets_in_whom_rights_were_given():
    found = properties()
    protocols = dict(item.split(":") for item in found["listener.security.protocol.map"].split(","))
    listeners = dict(item.split("://") for item in found["listeners"].split(","))
    assert protocols.keys() == listeners.keys()
    for name, where in listeners.items():
        inside = where.startswith("127.0.0.1:")
        assert protocols[name] == "SASL_SSL" or inside, name
    assert found["allow.everyone.if.no.acl.found"] == "false" and "ANONYMOUS" not in found["super.users"]
    assert found["auto.create.topics.enable"] == "false"
    assert int(found["message.max.bytes"]) == MAX_MESSAGE_BYTES


# -- monitoring -------------------------------------------------------------------------------------------------------


def metrics() -> set[str]:
    """Names as Prometheus shows them."""
    names: set[str] = {"up", "ALERTS"}
    for path in (ROOT / "pipeline").rglob("*.py"):
        for name in METRICS.findall(path.read_text()):
            names |= {name, f"{name}_total", f"{name}_bucket", f"{name}_count", f"{name}_sum"}
    return names


def test_the_dashboard_asks_for_metrics_that_exist():
    found = panels()
    assert len({panel["id"] for panel in found}) == len(found) > 10
    for expression in shown():
        assert asked(expression) and asked(expression) <= metrics(), expression
    source = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text())
    assert {source["datasources"][0]["uid"]} == {
        panel["datasource"]["uid"] for panel in found if panel["type"] != "row"
    }
    rows = [(p["gridPos"]["x"], p["gridPos"]["y"], p["gridPos"]["w"], p["gridPos"]["h"]) for p in found]
    assert all(x + w <= 24 for x, _, w, _ in rows)


def test_every_alarm_asks_for_metrics_that_exist_and_is_explained():
    manual = (ROOT / "docs" / "operations.md").read_text()
    for rule in rules():
        assert asked(rule["expr"]) <= metrics() and asked(rule["expr"]), rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket") and rule["annotations"]["summary"].endswith(".")
        assert f"\n| `{rule['alert']}` ({rule['labels']['severity']}) |" in manual, rule["alert"]


def test_what_is_scraped_is_what_is_served():
    jobs = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    for job in jobs:
        where = job["dns_sd_configs"][0]
        for name in where["names"]:
            assert str(where["port"]) in str(of(name)["command"]) and "monitoring" in of(name)["networks"]


def test_settings_of_the_compose_file_are_explained():
    text = (ROOT / "docker-compose.yml").read_text()
    named = set(re.findall(r"\$\{((?:PIPELINE|MINIO|PROMETHEUS|GRAFANA)_\w+)", text))
    manual = (ROOT / "docs" / "operations.md").read_text()
    assert [name for name in sorted(named) if f"`{name}`" not in manual] == []
