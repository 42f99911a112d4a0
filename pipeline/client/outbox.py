"""What waits for the broker's acknowledgement: bounded in bytes, in order, sent again when the uplink is replaced."""

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from enum import Enum


class QueuePolicy(Enum):
    """What happens to an item that does not fit."""

    BLOCK = "block"
    """put() waits until there is room."""
    DROP_OLDEST = "drop_oldest"
    """The oldest items that have not been handed to the uplink make room."""
    DROP_NEWEST = "drop_newest"
    """The new item is dropped."""


@dataclass(frozen=True, slots=True)
class Item:
    """One record on its way out.

    Attributes:
        topic: ``samples`` or ``episodes``.
        value: the encoded record.
        headers: its Kafka headers.
        transitions: how many transitions it carries.
    """

    topic: str
    value: bytes
    headers: list[tuple[str, bytes]]
    transitions: int


class Outbox:
    """A queue with two parts: unsent, and sent but not yet acknowledged.

    An item leaves only when the broker has acknowledged it, so the death of the uplink process loses nothing; what it
    had in flight is handed out again, in the same order, with the same identity.

    Args:
        max_bytes: bound on both parts together, in bytes of encoded records.
        policy: what happens beyond it.
    """

    def __init__(self, max_bytes: int, policy: QueuePolicy) -> None:
        self._max_bytes = max_bytes
        self._policy = policy
        self._changed = threading.Condition()
        self._unsent: deque[tuple[int, Item]] = deque()
        self._in_flight: OrderedDict[int, Item] = OrderedDict()
        self._in_flight_bytes = 0
        self._next_index = 0
        self._closed = False
        self.bytes = 0
        self.dropped_items = 0
        self.dropped_transitions = 0

    def put(self, item: Item) -> bool:
        """Queue an item by the policy; False if it was dropped."""
        size = len(item.value)
        with self._changed:
            while self.bytes + size > self._max_bytes and not self._closed:
                if self._policy is QueuePolicy.BLOCK and size <= self._max_bytes:
                    self._changed.wait()
                elif self._policy is QueuePolicy.DROP_OLDEST and self._unsent:
                    _, oldest = self._unsent.popleft()
                    self.bytes -= len(oldest.value)
                    self._count_drop(oldest)
                else:
                    self._count_drop(item)
                    return False
            self._unsent.append((self._next_index, item))
            self._next_index += 1
            self.bytes += size
            self._changed.notify_all()
            return True

    def take(self, timeout: float) -> tuple[int, Item] | None:
        """The next unsent item, which is in flight from now on; None after ``timeout`` seconds.

        At most half of the bound is in flight, so that there is something left to drop.
        """
        with self._changed:
            if not self._changed.wait_for(self._ready, timeout) or not self._unsent:
                return None
            index, item = self._unsent.popleft()
            self._in_flight[index] = item
            self._in_flight_bytes += len(item.value)
            return index, item

    def acknowledge(self, indices: list[int]) -> int:
        """The broker has these; returns how many transitions they carried. Unknown indices are ignored."""
        transitions = 0
        with self._changed:
            for index in indices:
                item = self._in_flight.pop(index, None)
                if item is not None:
                    self.bytes -= len(item.value)
                    self._in_flight_bytes -= len(item.value)
                    transitions += item.transitions
            self._changed.notify_all()
        return transitions

    def refuse(self, index: int) -> None:
        """The broker will never take this one: it leaves, and counts as dropped."""
        with self._changed:
            item = self._in_flight.get(index)
            if item is not None:
                self._count_drop(item)
        self.acknowledge([index])

    def rewind(self) -> None:
        """Everything in flight is unsent again, before what was not sent yet."""
        with self._changed:
            self._unsent.extendleft(reversed(self._in_flight.items()))
            self._in_flight.clear()
            self._in_flight_bytes = 0
            self._changed.notify_all()

    def wait_empty(self, timeout: float) -> bool:
        """Wait until everything is acknowledged; False after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unsent and not self._in_flight, timeout)

    def close(self) -> None:
        """Let a blocked put() go; nothing is waited for any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return len(self._unsent) + len(self._in_flight)

    def _ready(self) -> bool:
        if self._closed:
            return True
        return bool(self._unsent) and self._in_flight_bytes <= self._max_bytes // 2

    def _count_drop(self, item: Item) -> None:
        self.dropped_items += 1
        self.dropped_transitions += item.transitions
