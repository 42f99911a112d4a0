"""Brokers and stores on loopback, for a quick start, for tests and for a machine without Docker.

Names are loaded when they are asked for: who only wants to know where the services are, which every process does,
needs nothing of what starts them.
"""

from typing import TYPE_CHECKING

from pipeline.lazy import lazily

if TYPE_CHECKING:
    from pipeline.services.addresses import Addresses, status
    from pipeline.services.commands import (
        missing_for_local,
        services_down,
        services_fetch,
        services_status,
        services_up,
    )
    from pipeline.services.process import Service
    from pipeline.services.supervisor import Services, down, running_services, start_detached

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

__getattr__ = lazily(
    __name__,
    {
        "Addresses": "addresses",
        "Service": "process",
        "Services": "supervisor",
        "down": "supervisor",
        "missing_for_local": "commands",
        "running_services": "supervisor",
        "services_down": "commands",
        "services_fetch": "commands",
        "services_status": "commands",
        "services_up": "commands",
        "start_detached": "supervisor",
        "status": "addresses",
    },
)
