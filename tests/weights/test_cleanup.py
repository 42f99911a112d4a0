"""What clean-ups remove, and what they never do."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pipeline.broker import BrokerSettings, Producer, Topics
from pipeline.errors import StoreUnreachableError
from pipeline.experience import Version
from pipeline.services import Services
from pipeline.weights import (
    Lineage,
    ObjectStore,
    Publisher,
    clean_up,
    removable,
    run_clean_up,
    sha256,
    version_of,
    weights_key,
)
from tests.weights.made import FlakyStore, tensors, version


def lineage(epochs: list[int], pins: list[Version] | None = None) -> Lineage:
    """One version per entry, numbered from 0."""
    made = Lineage("run")
    for number, epoch in enumerate(epochs):
        key = weights_key("run", Version(epoch, number))
        made.note(version(number, epoch, key=key, size=1, sha256=sha256(b"x")))
    for pin in pins or []:
        made.note(version(pin.number, pin.epoch, kind="pin"))
    return made


def put(store: ObjectStore, *versions: Version, run: str = "run") -> None:
    for one in versions:
        store.put_once(weights_key(run, one), b"x")


def there(store: ObjectStore) -> list[Version]:
    return [found for key in store.list("run/weights/") if (found := version_of("run", key)) is not None]


def test_the_policy():
    made = lineage([1] * 10, pins=[Version(1, 4)])
    assert [record.number for record in removable(made, 3, 0)] == [0, 1, 2, 3, 5, 6]
    assert [record.number for record in removable(made, 3, 5)] == [1, 2, 3, 6]
    assert [record.number for record in removable(made, 3, 5, {Version(1, 2), Version(1, 9)})] == [1, 3, 6]
    assert [record.number for record in removable(made, 0, 0)] == [0, 1, 2, 3, 5, 6, 7, 8]  # the newest stays
    assert removable(made, 50, 0) == removable(Lineage("run"), 1, 0) == []


@hypothesis_settings(deadline=None)
@given(
    st.lists(st.integers(0, 2), max_size=30),
    st.integers(0, 35),
    st.integers(0, 7),
    st.sets(st.integers(0, 35)),
    st.sets(st.integers(0, 35)),
)
def test_what_is_kept_for_a_reason_is_kept(
    steps: list[int], keep_last: int, keep_every: int, pinned: set[int], needed: set[int]
):
    epochs = [1 + sum(steps[:at]) for at in range(len(steps))]
    made = lineage(epochs)
    versions = [record.version for record in made.versions]
    pins = {one for one in versions if one.number in pinned}
    for one in pins:
        made.note(version(one.number, one.epoch, kind="pin"))
    wanted = {one for one in versions if one.number in needed}
    going = [record.version for record in removable(made, keep_last, keep_every, wanted)]
    assert going == sorted(going)
    for one in versions:
        newest = one.number >= len(versions) - max(1, keep_last)
        kept = newest or one in pins or one in wanted or (keep_every > 0 and one.number % keep_every == 0)
        assert (one in going) == (not kept)


def test_keys_are_read_back():
    for one in (Version(0, 0), Version(1, 42), Version(1_000_000, 10**11)):
        assert version_of("run", weights_key("run", one)) == one
    for key in (
        "run/weights/000001-000000001.safetensors.part",
        "run/weights/1-1.safetensors",
        "run/weights/0000001-000000001.safetensors",
        "other/weights/000001-000000001.safetensors",
        "run/other",
    ):
        assert version_of("run", key) is None


def test_old_weights_and_leftovers_go(store: ObjectStore):
    made = lineage([1, 1, 1, 3, 3, 3, 3], pins=[Version(1, 1)])
    put(store, *[record.version for record in made.versions])
    put(store, Version(2, 1), Version(1, 4), Version(1, 6), Version(3, 7), Version(2, 9))
    put(store, Version(1, 0), run="other")
    store.put_once("run/weights/notes", b"x")
    told: list[tuple[int, int]] = []
    removed = clean_up(store, made, 2, 3, {Version(3, 4)}, lambda done, of: told.append((done, of)))
    # Kept: the pinned, every third, the needed, the newest two; of the unannounced those not below the newest.
    assert removed == [Version(1, 2), Version(1, 4), Version(2, 1)]
    assert told == [(1, 3), (2, 3), (3, 3)]
    kept = [(1, 0), (1, 1), (1, 6), (2, 9), (3, 3), (3, 4), (3, 5), (3, 6), (3, 7)]
    assert there(store) == [Version(*one) for one in kept]
    assert clean_up(store, made, 2, 3, {Version(3, 4)}) == []
    assert store.list("other/") == [weights_key("other", Version(1, 0))]
    assert "run/weights/notes" in store.list("run/")


def test_an_interrupted_one_is_finished_by_the_next(store: ObjectStore, flaky: FlakyStore):
    made = lineage([1] * 6)
    put(store, *[record.version for record in made.versions])
    with pytest.raises(StoreUnreachableError):
        clean_up(flaky, made, 2, 0, (), lambda done, _: flaky.away(done == 2))
    assert there(store) == [Version(1, number) for number in (2, 3, 4, 5)]
    assert clean_up(store, made, 2, 0) == [Version(1, 2), Version(1, 3)]


def test_an_object_that_is_gone_is_as_good_as_removed(store: ObjectStore):
    store.remove("nothing")
    store.put_once("key", b"x")
    store.remove("key")
    store.remove("key")
    assert store.list("") == []


def test_many_objects_are_listed(store: ObjectStore, services: Services):
    count = 1100 if services.addresses.kind == "local" else 20  # a page holds a thousand
    for number in range(count):
        store.put_once(f"many/{number:05d}", b"")
    assert store.list("many/") == [f"many/{number:05d}" for number in range(count)]


def test_a_run_is_cleaned_up(settings: BrokerSettings, topics: Topics, store: ObjectStore):
    with Producer(settings) as producer:
        publisher = Publisher(store, producer, topics)
        for number in range(6):
            publisher.publish(version(number), tensors(number))
        publisher.pin(Version(1, 1), "best")
    removed = run_clean_up(store, settings, topics, keep_last=2, keep_every=0, needed={Version(1, 2)})
    assert removed == [Version(1, 0), Version(1, 3)]
    assert there(store) == [Version(1, number) for number in (1, 2, 4, 5)]
