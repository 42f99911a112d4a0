"""The uplink's own decisions."""

from pipeline.client.uplink import _Loop


def test_a_loop_lives_while_its_counter_moves():
    """And is back as soon as it moves again, however long it stood still."""
    loop = _Loop(timeout=15.0)
    assert loop.lives(0, now=1000.0)
    assert loop.lives(0, now=1014.9)
    assert not loop.lives(0, now=1015.0)
    assert not loop.lives(0, now=1100.0)
    assert loop.lives(1, now=1100.1)
    assert loop.lives(1, now=1115.0)
    assert not loop.lives(1, now=1115.2)
