"""What dashboard and alarms ask Prometheus for."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"


def panels() -> list[dict[str, Any]]:
    """The dashboard's."""
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "pipeline.json").read_text())
    return dashboard["panels"]


def shown() -> list[str]:
    """The expressions of the dashboard."""
    return [target["expr"] for panel in panels() for target in panel.get("targets", [])]


def rules() -> list[dict[str, Any]]:
    """The alarms."""
    return yaml.safe_load((DEPLOY / "prometheus" / "alarms.yml").read_text())["groups"][0]["rules"]


def asked(expression: str) -> set[str]:
    """The metrics in an expression."""
    return set(re.findall(r"pipeline_\w+|ALERTS|\bup\b", expression))


def family(metric: str) -> str:
    """What a metric's description is kept under: formats differ in whether a counter's has its ending."""
    return re.sub("_(total|bucket)$", "", metric)
