"""The connector's end of its uplink: feeds the process from the outbox, and replaces it when it dies."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from pipeline.client.counters import DROPPED
from pipeline.client.mailbox import Mailbox
from pipeline.client.outbox import Outbox
from pipeline.client.processes import Processes
from pipeline.client.uplink import UplinkSettings, run_uplink

log = logging.getLogger(__name__)

_TICK_S = 0.05


class UplinkHandle:
    """One uplink process at a time, each with a fresh pipe and mailbox: those of a dead one may be left half-used.

    What the broker had not acknowledged when an uplink died is handed to the next one, in the same order and with the
    same identity, so that the learner counts it once.

    Attributes:
        mailbox: where the present uplink puts weights.
        process: the present uplink.
        restarts: how often it was replaced.

    Args:
        context: starts processes.
        settings: of the uplink.
        counters: shared with it.
        outbox: what is to be sent; closed with the handle.
        tensors: the agent's, for the mailbox's shape.
        on_news: told, in the supervising thread, what the uplink says of versions and members.
        on_tick: called in the supervising thread some twenty times a second, and sooner where it asks for that: it
            returns after how many seconds.
    """

    def __init__(
        self,
        context: Processes,
        settings: UplinkSettings,
        counters: Any,
        outbox: Outbox,
        tensors: Mapping[str, NDArray[Any]],
        on_news: Callable[[str, Any], None],
        on_tick: Callable[[], float],
    ) -> None:
        self._context = context
        self._settings = settings
        self._counters = counters
        self._outbox = outbox
        self._tensors = tensors
        self._on_news = on_news
        self._on_tick = on_tick
        self._closed = threading.Event()
        self._replacing = False
        self._feeding = threading.Lock()
        self.restarts = 0
        self._start()
        self._threads = [
            threading.Thread(target=task, name=name, daemon=True)
            for task, name in ((self._supervise, "supervise"), (self._feed, "feed"))
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the process; what the outbox still holds is not sent any more."""
        self._closed.set()
        self._outbox.close()
        self._pipe.close()
        for thread in self._threads:
            thread.join(2.0)
        self.process.join(10.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(5.0)

    def _start(self) -> None:
        mailbox = Mailbox(self._context, self._tensors)
        pipe, theirs = self._context.Pipe()
        process = self._context.Process(
            target=run_uplink,
            args=(self._settings, theirs, mailbox, self._counters),
            name=f"uplink-{self._settings.actor}",
            daemon=True,
        )
        process.start()
        theirs.close()
        self.mailbox, self.process, self._pipe = mailbox, process, pipe

    def _feed(self) -> None:
        """Thread: hand queued items to whatever uplink there is."""
        while not self._closed.is_set():
            if self._replacing:
                self._closed.wait(0.005)
                continue
            with self._feeding:
                if not self._replacing:
                    self._feed_one()

    def _feed_one(self) -> None:
        taken = self._outbox.take(0.2)
        if taken is None:
            return
        index, item = taken
        try:
            self._pipe.send((index, item.topic, item.value, item.headers))
        except (BrokenPipeError, OSError):
            # The supervisor sees the same, or will; rewind() gives this item out again.
            self._replacing = True

    def _supervise(self) -> None:
        """Thread: take the uplink's reports, and replace it when it dies."""
        pause = _TICK_S
        while not self._closed.is_set():
            try:
                if self._pipe.poll(pause):
                    self._note(*self._pipe.recv())
            except (EOFError, OSError):
                if self._closed.is_set():
                    return
                self._replacing = True
                self._replace()
                self._replacing = False
            pause = min(_TICK_S, self._on_tick())

    def _note(self, kind: str, *rest: Any) -> None:
        if kind == "acknowledged":
            self._outbox.acknowledge(rest[0])
        elif kind == "refused":
            self._outbox.refuse(rest[0])
            self._counters[DROPPED] = self._outbox.dropped_transitions
            log.error("A record cannot be sent and is dropped: %s", rest[1])
        elif kind != "link":
            self._on_news(kind, rest[0])
        elif rest[0]:
            log.info("%s", rest[1])
        else:
            log.warning("%s Acting goes on; what is queued is sent when the broker is back.", rest[1])

    def _replace(self) -> None:
        self.process.join(1.0)
        log.warning("The uplink process ended (exit code %s); another one is started.", self.process.exitcode)
        self.restarts += 1
        self._closed.wait(min(5.0, 0.1 * 2 ** min(self.restarts, 6)))
        if self._closed.is_set():
            return
        old = self._pipe
        # What is taken out of the outbox between the rewind and the new pipe would go to neither uplink.
        with self._feeding:
            self._outbox.rewind()
            self._start()
        old.close()
