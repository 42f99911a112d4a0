"""The queue is bounded, in order, and counts what it drops."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from pipeline.client.outbox import Item, Outbox, QueuePolicy


def item(number: int, size: int = 10) -> Item:
    return Item("samples", bytes([number % 256]) * size, [], transitions=size)


def test_what_is_acknowledged_leaves_and_the_rest_is_sent_again_in_order():
    """rewind() is what makes the uplink's death harmless."""
    outbox = Outbox(1000, QueuePolicy.BLOCK)
    for number in range(5):
        outbox.put(item(number))
    taken = [outbox.take(0.0) for _ in range(3)]
    assert [t[0] for t in taken if t] == [0, 1, 2]
    assert outbox.acknowledge([1]) == 10
    outbox.rewind()
    again = []
    while (t := outbox.take(0.0)) is not None:
        again.append(t[0])
    assert again == [0, 2, 3, 4]


@given(
    sizes=st.lists(st.integers(1, 60), max_size=60),
    policy=st.sampled_from([QueuePolicy.DROP_NEWEST, QueuePolicy.DROP_OLDEST]),
    takes=st.lists(st.booleans(), min_size=60, max_size=60),
)
def test_bytes_stay_bounded_and_every_transition_is_kept_or_counted(sizes, policy, takes):
    """pushed = still queued + acknowledged + dropped, exactly."""
    outbox = Outbox(100, policy)
    acknowledged = 0
    in_flight: list[int] = []
    for number, size in enumerate(sizes):
        outbox.put(item(number, size))
        assert outbox.bytes <= 100
        if takes[number] and (taken := outbox.take(0.0)) is not None:
            in_flight.append(taken[0])
        if len(in_flight) > 2:
            acknowledged += outbox.acknowledge([in_flight.pop(0)])
    outbox.rewind()
    left = 0
    while (taken := outbox.take(0.0)) is not None:
        left += taken[1].transitions
        acknowledged_now = outbox.acknowledge([taken[0]])
        assert acknowledged_now == taken[1].transitions
    assert sum(sizes) == left + acknowledged + outbox.dropped_transitions


def test_drop_oldest_keeps_the_newest():
    """What was not handed out yet makes room, oldest first."""
    outbox = Outbox(30, QueuePolicy.DROP_OLDEST)
    for number in range(5):
        assert outbox.put(item(number))
    assert outbox.dropped_items == 2
    first = outbox.take(0.0)
    assert first is not None and first[1].value[0] == 2


def test_drop_newest_keeps_the_oldest():
    """The new item is refused."""
    outbox = Outbox(30, QueuePolicy.DROP_NEWEST)
    assert [outbox.put(item(number)) for number in range(5)] == [True, True, True, False, False]


def test_block_waits_for_room_and_close_lets_go():
    """A blocked put() ends when something is acknowledged, or when the outbox is closed."""
    outbox = Outbox(10, QueuePolicy.BLOCK)
    outbox.put(item(0))
    taken = outbox.take(0.0)
    assert taken is not None
    done = threading.Event()

    def put_two() -> None:
        outbox.put(item(1))
        done.set()

    thread = threading.Thread(target=put_two)
    thread.start()
    assert not done.wait(0.05)
    outbox.acknowledge([taken[0]])
    assert done.wait(5.0)
    thread.join()
    blocked = threading.Thread(target=outbox.put, args=(item(2),))
    blocked.start()
    outbox.close()
    blocked.join(5.0)
    assert not blocked.is_alive()
