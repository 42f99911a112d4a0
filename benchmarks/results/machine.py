"""What the figures were taken on."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("pipeline", "torch", "numpy", "gymnasium", "confluent-kafka", "stable-baselines3", "minatar")


def machine() -> str:
    """Cores, processor, memory and system, as one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores of {_processor()}, {memory:.0f} GiB, {platform.system()}"


def versions() -> dict[str, str]:
    """Python and the packages that matter, by name."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def load() -> float:
    """Processes that wanted a core over the last minute, on average: near 0 before a run on an idle machine."""
    return round(os.getloadavg()[0], 2) if sys.platform != "win32" else 0.0


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
