"""What uplink processes are started from."""

import sys
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import TypeAlias

Processes: TypeAlias = ForkServerContext | SpawnContext
"""What starts them, and makes what they share."""

_NEEDED = ["pipeline.cli", "pipeline.client.uplink"]


def uplink_processes() -> Processes:
    """A context that starts uplinks.

    On Linux they are forked from a server without threads of its own, which begins here and now, beside whatever the
    caller does next, to import what they need: an uplink that is started a second later is there at once. Elsewhere
    each is started anew, since not every system library survives a fork.
    """
    if sys.platform != "linux":
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(_NEEDED)
    forkserver.ensure_running()
    return context
