"""The store: small, never back in time, own writes visible at once, indexes, selectors."""

import gc
import tracemalloc
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from kapsa.runtime.cache.object_parser import ObjectParser
from kapsa.runtime.cache.store import Store, by_label
from kapsa.runtime.resources.stored_object import Change, Key, StoredObject

parse = ObjectParser("example.com/v1", "MyApp", follow_manager="my-operator")


def wire(name: str = "web", version: int = 1, **more: Any) -> bytes:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)}
    metadata |= more.pop("metadata", {})
    return msgspec.json.encode({"metadata": metadata, "spec": {"image": "nginx"}, **more})


def stored(name: str = "web", version: int = 1, **more: Any) -> StoredObject:
    return parse(wire(name, version, **more))


def events(changes: list[Change]) -> list[tuple[str, str]]:
    return [(change.event, change.object.name) for change in changes]


WEB = Key("default", "web")


def test_managed_fields_are_not_stored_except_our_own() -> None:
    fields: dict[str, Any] = {"f:spec": {"f:image": {}}}
    managed = [
        {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}},
        {"manager": "my-operator", "operation": "Apply", "subresource": "status", "fieldsV1": {}},
        {"manager": "my-operator", "operation": "Apply", "fieldsV1": fields},
    ]
    kept = stored(metadata={"managedFields": managed})
    assert "managedFields" not in kept.to_dict()["metadata"]
    assert msgspec.json.decode(kept.owned_fields) == fields


def test_an_item_of_a_list_gets_the_kind_of_the_list() -> None:
    assert stored().to_dict() | {"metadata": None} == {
        "apiVersion": "example.com/v1",
        "kind": "MyApp",
        "metadata": None,
        "spec": {"image": "nginx"},
    }


def test_a_transform_removes_parts_of_an_object() -> None:
    def without_spec(each: dict[str, Any]) -> dict[str, Any]:
        del each["spec"]
        return each

    small = ObjectParser("v1", "Secret", transform=without_spec)(wire())
    assert "spec" not in small.to_dict()


def test_an_object_whose_transform_fails_is_stored_whole_and_not_reported_as_deleted() -> None:
    def without_status(each: dict[str, Any]) -> dict[str, Any] | None:
        del each["spec"]
        del each["status"]
        return each if each.get("returned") else None

    parse = ObjectParser("v1", "Secret", transform=without_status)  # type: ignore[arg-type]
    store = Store()
    with capture_logs() as logs:
        store.upsert(parse(wire("a", 1)))
        store.upsert(parse(wire("b", 2)))
        store.upsert(parse(wire("c", 3, status={})))
        store.upsert(parse(wire("d", 4, status={}, returned=True)))
        assert [each.to_dict().get("spec") for each in store] == [{"image": "nginx"}] * 3 + [None]
        assert store.replace([parse(wire("a", 1)), *list(store)[1:]], "5") == []
        assert events(store.remove(parse(wire("a", 6)))) == [("Deleted", "a")]
    logged = [(line["event"], line["kind"], line["object"], line["error"]) for line in logs]
    assert logged == [
        ("transform failed; the whole object is stored", "Secret", "default/a", "'status'"),
        (
            "transform failed; the whole object is stored",
            "Secret",
            "default/c",
            "the transform must return an object, got null",
        ),
    ]


def test_the_cache_never_goes_back_in_time() -> None:
    store = Store()
    store.upsert(stored(version=5))
    assert store.upsert(stored(version=4)) == []
    assert store.upsert(stored(version=5)) == [], "a duplicate is not a change"
    assert store.get(WEB) == stored(version=5)
    assert events(store.upsert(stored(version=6))) == [("Updated", "web")]


def test_a_late_repetition_does_not_bring_a_deleted_object_back() -> None:
    store = Store()
    store.upsert(stored(version=5))
    store.remove(stored(version=7))
    assert store.upsert(stored(version=6)) == []
    assert store.get(WEB) is None


def test_a_response_that_arrives_after_its_event_is_not_stored() -> None:
    store = Store()
    store.upsert(stored(version=5))
    store.remove(stored(version=7))
    store.note_write(stored(version=6))
    assert store.get(WEB) is None


def test_a_relist_replaces_all_objects_and_derives_the_deletes() -> None:
    store = Store()
    for version, name in enumerate(("gone", "changed", "kept", "remade"), start=3):
        store.upsert(stored(name, version))
    remade = stored("remade", 9, metadata={"uid": "another"})
    changes = store.replace([stored("kept", 5), stored("changed", 8), remade, stored("new", 7)], "10")
    assert sorted(events(changes)) == [
        ("Added", "new"),
        ("Added", "remade"),
        ("Deleted", "gone"),
        ("Deleted", "remade"),
        ("Updated", "changed"),
    ]
    assert all(change.initial for change in changes)
    assert store.get(Key("default", "gone")) is None


def test_a_name_that_was_deleted_and_created_again_is_a_delete_and_an_add() -> None:
    store = Store()
    store.upsert(stored(version=5))
    assert events(store.upsert(stored(version=9, metadata={"uid": "another"}))) == [
        ("Deleted", "web"),
        ("Added", "web"),
    ]


def test_a_late_delete_of_the_old_object_does_not_remove_the_new_one() -> None:
    store = Store()
    store.upsert(stored(version=9, metadata={"uid": "another"}))
    assert store.remove(stored(version=7)) == []
    assert store.get(WEB) is not None


def test_a_written_object_is_read_back_until_the_watch_has_caught_up() -> None:
    store = Store()
    store.upsert(stored(version=5))
    store.note_write(stored(version=8))
    assert store.get(WEB) == stored(version=8)
    store.upsert(stored(version=6))
    assert store.get(WEB) == stored(version=8), "the watch is still behind our write"
    store.upsert(stored(version=8))
    assert store.get(WEB) == stored(version=8)
    assert store.ahead == 0


def test_a_created_object_is_listed_before_the_watch_delivers_it() -> None:
    store = Store()
    store.note_write(
        stored(
            version=8,
            metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "owner"}]},
        )
    )
    assert [each.name for each in store] == ["web"]
    assert [each.name for each in store.owned_by("owner")] == ["web"]
    assert [each.name for each in store.select(namespace="default")] == ["web"]


def test_a_deleted_object_is_gone_at_once_and_stays_gone_until_a_new_one_is_created() -> None:
    store = Store()
    store.upsert(stored(version=5))
    store.note_delete(WEB, "uid-web")
    assert store.get(WEB) is None
    assert list(store) == []
    store.upsert(stored(version=6))
    assert store.get(WEB) is None, "a late event of the deleted object does not bring it back"
    store.remove(stored(version=7))
    assert store.ahead == 0
    store.upsert(stored(version=9, metadata={"uid": "another"}))
    assert store.get(WEB) is not None


def test_progress_of_the_watch_drops_our_writes_even_without_their_event() -> None:
    store = Store()
    store.note_write(stored("a", 8))
    store.note_write(stored("b", 9))
    store.caught_up("8")
    assert store.ahead == 1
    store.upsert(stored("other", 12))
    assert store.ahead == 0


def test_our_own_write_is_not_parsed_again_when_the_watch_delivers_it() -> None:
    store = Store()
    store.upsert(stored(version=1))
    assert store.echo(wire(version=3)) is None
    store.note_write(written := stored(version=3))
    assert store.echo(wire(version=2)) is None
    assert store.echo(wire("db", version=3)) is None
    assert store.echo(wire(version=3)) is written
    store.upsert(written)
    assert store.ahead == 0
    assert store.get(WEB) is written
    assert store.echo(wire(version=3)) is None


def test_a_write_that_changed_nothing_is_not_stored() -> None:
    store = Store()
    store.upsert(stored(version=5))
    store.note_write(stored(version=5))
    assert store.ahead == 0


def test_indexes_follow_every_change() -> None:
    store = Store()
    store.add_index("team", by_label("team"))
    store.upsert(stored("a", 1, metadata={"labels": {"team": "red"}}))
    store.upsert(stored("b", 2, metadata={"labels": {"team": "red"}}))
    store.upsert(stored("a", 3, metadata={"labels": {"team": "blue"}}))
    store.remove(stored("b", 4))
    assert store.by_index("team", "red") == []
    assert [each.name for each in store.by_index("team", "blue")] == ["a"]
    with pytest.raises(KeyError, match="index 'owners' is not declared; there are namespace, owner, team"):
        store.by_index("owners", "x")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=web", ["a"]),
        ("app==web,tier=front", ["a"]),
        ("app!=web", ["b", "c"]),
        ("app in (web, db)", ["a", "b"]),
        ("app notin (web)", ["b", "c"]),
        ("!app", ["c"]),
        ("app", ["a", "b"]),
        ({"app": "db"}, ["b"]),
        (None, ["a", "b", "c"]),
    ],
)
def test_labels_select_as_on_the_server(selector: Any, names: list[str]) -> None:
    store = Store()
    store.upsert(stored("a", 1, metadata={"labels": {"app": "web", "tier": "front"}}))
    store.upsert(stored("b", 2, metadata={"labels": {"app": "db"}}))
    store.upsert(stored("c", 3))
    assert [each.name for each in store.select(labels=selector)] == names


def test_an_invalid_selector_is_reported() -> None:
    with pytest.raises(ValueError, match="label selector 'app=web,=x' is invalid at '=x'"):
        Store().select(labels="app=web,=x")


@pytest.mark.long
def test_an_object_costs_about_1_kilobyte_over_its_own_json() -> None:
    count = 2000
    managed = [{"manager": "my-operator", "operation": "Apply", "fieldsV1": {"f:spec": {"f:image": {}}}}]
    owner = {"apiVersion": "v1", "kind": "MyApp", "name": "web", "controller": True}
    gc.collect()
    tracemalloc.start()
    store = Store()
    for number in range(count):
        uid = f"5f0e1c7a-1b1b-4a3c-9f00-{number:012d}"
        metadata = {
            "uid": uid,
            "labels": {"app": f"web-{number}", "tier": "front"},
            "ownerReferences": [owner | {"uid": f"owner-{number}"}],
            "managedFields": managed,
        }
        store.upsert(parse(wire(f"web-{number}", number + 1, metadata=metadata)))
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    text = sum(len(each.raw) for each in store)
    assert (used - text) / count < 1100, (
        f"{(used - text) / count:.0f} bytes each over {text / count:.0f} of JSON"
    )


def test_a_write_that_a_restore_of_the_server_lost_is_not_read_after_the_relist() -> None:
    store = Store()
    store.replace([stored(version=10)], "10")
    store.upsert(stored(version=20))
    store.note_write(stored(version=30))
    assert store.get(WEB) == stored(version=30)
    store.replace([stored(version=10)], "15")
    assert store.get(WEB) == stored(version=10)


def test_an_object_whose_delete_a_restore_of_the_server_lost_is_read_after_the_relist() -> None:
    store = Store()
    store.replace([stored(version=10)], "10")
    store.upsert(stored("other", version=20))
    store.note_delete(WEB, "uid-web")
    assert store.get(WEB) is None
    store.replace([stored(version=10)], "15")
    assert store.get(WEB) == stored(version=10)


def test_an_object_deleted_while_a_relist_was_under_way_is_not_read() -> None:
    store = Store()
    store.replace([stored(version=10)], "10")
    store.note_delete(WEB, "uid-web")
    store.replace([stored(version=10)], "20")
    assert store.get(WEB) is None


def test_a_write_made_while_a_relist_was_under_way_is_still_read() -> None:
    store = Store()
    store.replace([stored(version=10)], "10")
    store.note_write(stored(version=30))
    store.replace([stored(version=10)], "20")
    assert store.get(WEB) == stored(version=30)
