"""Brokers and stores on loopback, for a quick start, for tests and for a machine without Docker."""

from pipeline.services.commands import (
    missing_for_local,
    services_down,
    services_fetch,
    services_status,
    services_up,
)
from pipeline.services.process import Service
from pipeline.services.supervisor import (
    Addresses,
    Services,
    down,
    running_services,
    start_detached,
    status,
)

__all__ = [
    "Addresses",
    "Service",
    "Services",
    "down",
    "missing_for_local",
    "running_services",
    "services_down",
    "services_fetch",
    "services_status",
    "services_up",
    "start_detached",
    "status",
]
