"""Weights and their version belong together, whatever the other process does."""

import multiprocessing
import os
import signal

import numpy as np
import pytest

from pipeline.client.mailbox import Mailbox
from pipeline.experience import Version
from tests.waiting import wait_until

SHAPES = {"a": (64, 64), "b": (7,)}


def tensors(value: float) -> dict[str, np.ndarray]:
    return {name: np.full(shape, value, np.float32) for name, shape in SHAPES.items()}


def write_for_ever(mailbox: Mailbox) -> None:
    number = 0
    while True:
        number += 1
        mailbox.write(tensors(number), Version(1, number), 1 / number)


def test_a_reader_never_sees_a_torn_version():
    """Every tensor of a letter holds the value that its version number says."""
    context = multiprocessing.get_context("spawn")
    mailbox = Mailbox(context, tensors(0))
    writer = context.Process(target=write_for_ever, args=(mailbox,), daemon=True)
    writer.start()
    try:
        wait_until(lambda: mailbox.stamp > 0, "the first write")
        seen: set[int] = set()
        while len(seen) < 200:
            letter = mailbox.try_read()
            if letter is None:
                continue
            with letter:
                number = letter.version.number
                assert letter.exploration == 1 / number
                for tensor in letter.tensors.values():
                    assert (tensor == number).all()
            seen.add(number)
    finally:
        writer.kill()
        writer.join()


def test_a_writer_killed_while_it_writes_does_not_hold_the_reader():
    """try_read answers at once, with or without a letter."""
    context = multiprocessing.get_context("spawn")
    mailbox = Mailbox(context, tensors(0))
    writer = context.Process(target=write_for_ever, args=(mailbox,), daemon=True)
    writer.start()
    wait_until(lambda: mailbox.stamp > 0, "the first write")
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    letter = mailbox.try_read()
    if letter is not None:
        letter.mailbox.release()


def test_tensors_of_another_network_are_refused():
    """Missing, other dtype, other shape."""
    mailbox = Mailbox(multiprocessing.get_context("spawn"), tensors(0))
    for wrong in (
        {"a": tensors(1)["a"]},
        {**tensors(1), "a": np.zeros((64, 64), np.float64)},
        {**tensors(1), "b": np.zeros(8, np.float32)},
    ):
        with pytest.raises(ValueError, match="tensor"):
            mailbox.write(wrong, Version(1, 1), 0)
    assert mailbox.stamp == 0
