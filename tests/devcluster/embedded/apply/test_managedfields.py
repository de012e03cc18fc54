"""The entries of metadata.managedFields."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.devcluster.embedded.apply.managedfields import (
    MAX_UPDATE_ENTRIES,
    Entry,
    Managed,
    ManagedFieldsError,
    Manager,
    capped,
    decode,
    encode,
    is_reset,
    keep_times_of_unchanged,
)


def entry(manager: str, operation: str = "Update", **more: Any) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}}},
        **more,
    }


def updater(name: str, second: int, fields: dict[str, Any]) -> tuple[Manager, Entry]:
    return Manager(name, "Update", "v1"), Entry(fields, "v1", f"2026-01-01T00:00:{second:02}Z")


def test_entries_survive_a_round_trip_with_their_fields_in_place() -> None:
    entries = [entry("a", "Apply"), entry("b", subresource="status")]
    encoded = encode(decode(entries, trusted=False))
    assert encoded == entries
    assert list(encoded[1]) == list(entries[1])


def test_appliers_come_first_then_the_order_is_time_name_version_subresource() -> None:
    entries = [
        entry("z", "Apply"),
        entry("m", time="2025-01-01T00:00:00Z"),
        entry("a"),
        entry("a", subresource="status"),
        entry("a", apiVersion="v2"),
        entry("b"),
    ]
    assert encode(decode(list(reversed(entries)), trusted=False)) == [
        entries[index] for index in (0, 1, 2, 3, 4, 5)
    ]


def test_an_applier_is_one_manager_in_all_versions() -> None:
    managed = decode([entry("a", "Apply"), entry("a", "Apply", apiVersion="v2")], trusted=False)
    assert [owner.api_version for owner in managed.values()] == ["v2"]


def test_an_updater_is_another_manager_in_another_version_or_subresource() -> None:
    entries = [entry("a"), entry("a", apiVersion="v2"), entry("a", subresource="status")]
    assert len(decode(entries, trusted=False)) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"operation": "Delete"}, "operation must be `Apply` or `Update`"),
        ({"apiVersion": ""}, "apiVersion must not be empty"),
        ({"fieldsType": ""}, "missing fieldsType in managed fields entry 0"),
        ({"fieldsType": "FieldsV2"}, 'invalid fieldsType "FieldsV2" in managed fields entry 0'),
        ({"fieldsV1": {"data": {}}}, "missing colon: data"),
    ],
)
def test_an_invalid_entry_is_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ManagedFieldsError, match=message):
        decode([entry("a", **change)], trusted=False)


@pytest.mark.parametrize(("entries", "reset"), [([], True), ([{}], True), (None, False), ([{}, {}], False)])
def test_an_empty_list_or_one_empty_entry_resets(entries: Any, reset: bool) -> None:
    assert is_reset(entries) is reset


def test_the_oldest_updaters_of_a_version_become_ancient_changes() -> None:
    managed: Managed = dict(
        updater(f"m{number:02}", number, {f"f:{number}": {}}) for number in range(MAX_UPDATE_ENTRIES + 2)
    )
    after = capped(managed)
    bucket = after[Manager("ancient-changes", "Update", "v1")]
    assert len(after) == MAX_UPDATE_ENTRIES
    assert bucket == Entry({"f:0": {}, "f:1": {}, "f:2": {}}, "v1", "2026-01-01T00:00:02Z")


def test_an_existing_bucket_takes_the_next_entry() -> None:
    managed: Managed = dict(
        updater(f"m{number:02}", number, {f"f:{number}": {}}) for number in range(MAX_UPDATE_ENTRIES + 1)
    )
    first = capped(managed)
    again = capped({**first, **dict([updater("new", 59, {"f:new": {}})])})
    bucket = again[Manager("ancient-changes", "Update", "v1")]
    assert sorted(bucket.fields) == ["f:0", "f:1", "f:2"]
    assert len(again) == MAX_UPDATE_ENTRIES


def test_appliers_are_never_merged() -> None:
    managed = {Manager(f"a{number}", "Apply"): Entry({f"f:{number}": {}}, "v1", None) for number in range(30)}
    assert capped(managed) is managed


def test_versions_have_buckets_of_their_own() -> None:
    managed: Managed = {}
    for number in range(12):
        version = "v1" if number % 2 else "v2"
        managed[Manager(f"m{number:02}", "Update", version)] = Entry(
            {f"f:{number}": {}}, version, f"2026-01-01T00:00:{number:02}Z"
        )
    after = capped(managed)
    assert {manager.api_version for manager in after if manager.name == "ancient-changes"} == {"v1", "v2"}
    assert len(after) == MAX_UPDATE_ENTRIES


def obj(time: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "managedFields": [entry("a", time=time)]}, **more}


def test_a_write_that_changes_only_times_keeps_the_old_ones() -> None:
    old = obj("2026-01-01T00:00:00Z", data={"a": "1"})
    new = obj("2026-01-01T00:00:09Z", data={"a": "1"})
    assert keep_times_of_unchanged(new, old) == old


def test_a_write_that_changes_something_keeps_its_times() -> None:
    old = obj("2026-01-01T00:00:00Z", data={"a": "1"})
    new = obj("2026-01-01T00:00:09Z", data={"a": "2"})
    assert keep_times_of_unchanged(new, old) is new
