"""The object store: revisions, windows, compaction, and readers that fall behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kapsa.devcluster.embedded.storage.store import CompactedError, FutureRevisionError, ObjectStore, Stored


def stored(store: ObjectStore, key: str, body: bytes = b"{}") -> Stored:
    namespace, _, name = key.rpartition("/")
    return Stored(key, namespace, name, "uid", store.next_revision, {}, body)


def put(store: ObjectStore, key: str, body: bytes = b"{}") -> Stored:
    new = stored(store, key, body)
    store.collection("", "things").put(new)
    return new


def remove(store: ObjectStore, key: str) -> None:
    store.collection("", "things").remove(stored(store, key))


def keys(objects: list[Stored]) -> list[str]:
    return [each.key for each in objects]


def test_each_change_of_the_store_has_its_own_revision():
    store = ObjectStore()
    first = put(store, "a/x")
    second = stored(store, "y")
    store.collection("apps", "others").put(second)
    assert second.revision == first.revision + 1 == store.revision


def test_a_change_that_does_not_have_the_next_revision_is_rejected():
    store = ObjectStore()
    with pytest.raises(RuntimeError, match="the next one is"):
        store.collection("", "things").put(Stored("a/x", "a", "x", "uid", 99, {}, b""))


def test_objects_are_listed_in_the_order_of_their_keys():
    store = ObjectStore()
    for key in ("b/x", "a/y", "a-b/z", "a/x"):
        put(store, key)
    things = store.collection("", "things")
    assert keys(things.current()) == ["a-b/z", "a/x", "a/y", "b/x"]
    assert keys(things.current("a/")) == ["a/x", "a/y"]
    assert keys(things.current("a/", after="a/x\0")) == ["a/y"]


def test_the_past_is_restored_by_undoing_changes():
    store = ObjectStore()
    put(store, "a/x", b"1")
    put(store, "a/y", b"1")
    then = store.revision
    put(store, "a/x", b"2")
    remove(store, "a/y")
    put(store, "a/z", b"1")
    things = store.collection("", "things")
    assert [(each.key, each.body) for each in things.at(then)] == [("a/x", b"1"), ("a/y", b"1")]
    assert things.get_at(then, "a/x").body == b"1"
    assert things.get_at(then, "a/z") is None
    assert keys(things.current()) == ["a/x", "a/z"]


def test_a_compacted_revision_cannot_be_read_or_watched():
    store = ObjectStore()
    put(store, "a/x")
    then = store.revision
    put(store, "a/x")
    put(store, "a/x")
    things = store.collection("", "things")
    store.compact(then + 1)
    with pytest.raises(CompactedError):
        things.at(then)
    with pytest.raises(CompactedError):
        things.position_after(then)
    assert keys(things.at(then + 1)) == ["a/x"]
    assert len(things.read(things.position_after(then + 1))) == 1


def test_a_future_revision_cannot_be_read():
    store = ObjectStore()
    with pytest.raises(FutureRevisionError):
        store.collection("", "things").at(store.revision + 1)


def test_a_window_is_bounded_and_a_slow_reader_falls_out_of_it():
    store = ObjectStore(window_changes=8)
    things = store.collection("", "things")
    position = things.end
    for _ in range(20):
        put(store, "a/x")
    with pytest.raises(CompactedError):
        things.read(position)
    assert len(things.read(things.position_after(store.revision - 3))) == 3


def test_a_window_is_bounded_by_its_bytes_too():
    store = ObjectStore(window_bytes=1000)
    for _ in range(20):
        put(store, "a/x", b"x" * 200)
    assert store.collection("", "things").compacted_revision > 0


async def test_a_waiting_reader_is_woken_by_the_next_change():
    store = ObjectStore()
    things = store.collection("", "things")
    waiter = things.changed()
    put(store, "a/x")
    await waiter


async def test_a_forgotten_waiter_is_not_notified():
    store = ObjectStore()
    things = store.collection("", "things")
    waiter = things.changed()
    things.forget(waiter)
    put(store, "a/x")
    assert not waiter.done()


@given(
    st.lists(st.tuples(st.sampled_from(["a/x", "a/y", "b/x", "b/z"]), st.booleans()), min_size=1, max_size=40)
)
def test_every_revision_of_the_window_can_be_restored_exactly(steps: list[tuple[str, bool]]):
    store = ObjectStore()
    things = store.collection("", "things")
    history = {store.revision: {}}
    for number, (key, deletes) in enumerate(steps):
        if deletes and things.get(key) is not None:
            remove(store, key)
        else:
            put(store, key, b"%d" % number)
        history[store.revision] = {each.key: each.body for each in things.current()}
    for revision, expected in history.items():
        assert {each.key: each.body for each in things.at(revision)} == expected
