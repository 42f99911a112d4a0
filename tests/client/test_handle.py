"""An uplink that dies at any moment: everything arrives, in order, under the index that it had."""

import os
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.client.counters import COUNTERS
from pipeline.client.handle import UplinkHandle
from pipeline.client.outbox import Item, Outbox, QueuePolicy
from tests.waiting import wait_until

SPAWN = get_context("spawn")


class ThreadUplink:
    """A process of the uplink, played by a thread: it takes items, and acknowledges them unless it is ``deaf``."""

    taken: list[bytes]
    deaf: bool

    def __init__(self, args: tuple[Any, ...], **_: Any) -> None:
        self._pipe = Connection(os.dup(args[1].fileno()))
        self._killed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.exitcode: int | None = None

    def start(self) -> None:
        self._thread.start()

    def kill(self) -> None:
        self._killed.set()
        self._thread.join()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._killed.is_set():
                if self._pipe.poll(0.001):
                    index, _, value, _ = self._pipe.recv()
                    self.taken.append(value)
                    if not self.deaf:
                        self._pipe.send(("acknowledged", [index]))
        except (EOFError, OSError):
            pass
        self.exitcode = -9
        self._pipe.close()


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(1 << 20, QueuePolicy.BLOCK)


@pytest.fixture
def handle(outbox: Outbox):
    ThreadUplink.taken, ThreadUplink.deaf = [], False
    context = SimpleNamespace(Process=ThreadUplink, Pipe=SPAWN.Pipe, RawArray=SPAWN.RawArray, Lock=SPAWN.Lock)
    settings = SimpleNamespace(actor="a")
    made = UplinkHandle(
        context,  # type: ignore[arg-type]
        settings,  # type: ignore[arg-type]
        SPAWN.RawArray("q", COUNTERS),
        outbox,
        {"w": np.zeros(3, np.float32)},
        lambda kind, news: None,
        lambda: 0.01,
    )
    yield made
    made.close()


def item(number: int) -> Item:
    return Item("samples", str(number).encode(), [], 1)


def numbers() -> list[int]:
    return [int(value) for value in ThreadUplink.taken]


def replaced(handle: UplinkHandle, times: int) -> Callable[[], bool]:
    return lambda: handle.restarts == times and handle.process.is_alive()


def test_what_was_in_flight_goes_to_the_next_uplink_first(handle: UplinkHandle, outbox: Outbox):
    """In its order, before what was queued later."""
    ThreadUplink.deaf = True
    for number in range(5):
        outbox.put(item(number))
    wait_until(lambda: numbers() == list(range(5)), "the first uplink has all of them")
    mailbox = handle.mailbox
    handle.process.kill()
    outbox.put(item(5))
    ThreadUplink.deaf = False
    assert outbox.wait_empty(10.0)
    assert numbers() == [*range(5), *range(6)]
    assert handle.restarts == 1 and handle.mailbox is not mailbox


def test_what_is_queued_while_an_uplink_is_replaced_is_not_forgotten(
    handle: UplinkHandle, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
):
    """Between the rewind and the new pipe nothing is taken out: the dead pipe would swallow it."""
    start = handle._start

    def slow_start() -> None:
        outbox.put(item(1))
        deadline = time.monotonic() + 0.2
        while len(outbox._unsent) and time.monotonic() < deadline:  # the time that it would take to lose it
            time.sleep(0.005)
        start()

    monkeypatch.setattr(handle, "_start", slow_start)
    outbox.put(item(0))
    assert outbox.wait_empty(10.0)
    handle.process.kill()
    wait_until(replaced(handle, 1), "the uplink is replaced")
    assert outbox.wait_empty(10.0)
    assert numbers() == [0, 1]


def test_kills_while_items_come(handle: UplinkHandle, outbox: Outbox):
    """Each is acknowledged in the end; those sent again keep the order in which they were put."""
    for kill in range(3):
        for number in range(40):
            outbox.put(item(40 * kill + number))
            if number == 20:
                handle.process.kill()
        wait_until(replaced(handle, kill + 1), "the uplink is replaced")
    assert outbox.wait_empty(10.0)
    first_seen = list(dict.fromkeys(numbers()))
    assert first_seen == list(range(120))
