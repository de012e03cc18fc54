"""Apply and field ownership as functions. The behaviour of a real server is recorded in the apply table."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kapsa.devcluster.embedded.apply.field_manager import ApplyConflict, apply, track_update
from kapsa.devcluster.embedded.apply.fieldset import contains, from_paths
from kapsa.devcluster.wire.status_errors import StatusError
from kapsa.schemas.schema import Schema

VERSION = "example.com/v1"
SCHEMA = Schema.from_crd(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer"},
                    "color": {"type": "string"},
                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "parts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
                        },
                    },
                },
            },
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    }
)
NAMES = st.sampled_from(["a", "b", "c"])
# A list or map that loses its last item becomes null, as on the real server, so one item always stays.
SPECS = st.fixed_dictionaries(
    {"color": NAMES},
    optional={
        "size": st.integers(0, 2),
        "tags": st.lists(NAMES, unique=True, min_size=1, max_size=3),
        "labels": st.dictionaries(NAMES, NAMES, min_size=1, max_size=3),
        "parts": st.lists(
            st.fixed_dictionaries({"name": NAMES}, optional={"count": st.integers(0, 2)}),
            unique_by=lambda part: part["name"],
            min_size=1,
            max_size=3,
        ),
    },
)


def widget(spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    obj = {"apiVersion": VERSION, "kind": "Widget", "metadata": {"name": "x"}, **more}
    return obj if spec is None else {**obj, "spec": spec}


def applied(
    live: dict[str, Any] | None, config: dict[str, Any], manager: str = "alice", **more: Any
) -> dict[str, Any]:
    options: dict[str, Any] = {"force": False, "now": "2026-01-01T00:00:00Z", **more}
    return apply(live, config, manager=manager, schema=SCHEMA, api_version=VERSION, **options)


def updated(
    old: dict[str, Any] | None, new: dict[str, Any], manager: str = "bob", **more: Any
) -> dict[str, Any]:
    options: dict[str, Any] = {"now": "2026-01-01T00:00:00Z", **more}
    return track_update(old, new, manager=manager, schema=SCHEMA, api_version=VERSION, **options)


def owned(obj: dict[str, Any], manager: str) -> dict[str, Any]:
    for entry in obj["metadata"].get("managedFields", ()):
        if entry["manager"] == manager:
            fields: dict[str, Any] = entry["fieldsV1"]
            return fields
    return {}


@given(SPECS, SPECS)
def test_applied_fields_are_in_the_object_and_applying_again_changes_nothing(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    live = applied(None, widget(first))
    config = widget(second)
    before = copy.deepcopy((live, config))
    after = applied(live, config, force=True)
    again = applied(after, config, now="2026-01-01T00:00:09Z")
    assert (live, config) == before
    assert again == after
    spec = after["spec"]
    for name, value in second.items():
        if name in ("size", "color"):
            assert spec[name] == value
        elif name != "parts":
            assert sorted(spec[name]) == sorted(value)


@given(SPECS, SPECS)
def test_an_object_of_one_applier_is_its_configuration(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert applied(applied(None, widget(first)), widget(second))["spec"] == second


@given(SPECS, SPECS)
def test_an_updater_owns_each_scalar_it_changed_and_its_applier_no_longer_does(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    live = applied(None, widget(first))
    after = updated(live, {**live, "spec": second})
    for name in ("size", "color"):
        path = ("f:spec", f"f:{name}")
        if name in second and first.get(name) != second[name]:
            assert contains(owned(after, "bob"), path)
            assert not contains(owned(after, "alice"), path)
        elif name in second:
            assert contains(owned(after, "alice"), path)


@given(SPECS, SPECS, SPECS)
def test_a_forced_apply_never_conflicts_and_an_unforced_one_lists_the_conflicts(
    first: dict[str, Any], second: dict[str, Any], third: dict[str, Any]
) -> None:
    live = applied(None, {**widget(first), "metadata": {"name": "x", "labels": {"a": "b"}}})
    live = updated(live, {**live, "spec": second})
    try:
        applied(live, widget(third), "carol")
    except ApplyConflict as conflict:
        for manager, path in conflict.conflicts:
            assert contains(owned(live, manager.name), path)
        forced = applied(live, widget(third), "carol", force=True)
        for manager, path in conflict.conflicts:
            assert not contains(owned(forced, manager.name), path)
    else:
        assert applied(live, widget(third), "carol") == applied(live, widget(third), "carol", force=True)


def test_an_update_that_changes_nothing_keeps_the_same_list() -> None:
    live = applied(None, widget({"size": 1}))
    assert (
        updated(live, copy.deepcopy(live))["metadata"]["managedFields"] is live["metadata"]["managedFields"]
    )


def test_unchanged_parts_are_shared_and_not_copied() -> None:
    live = applied(None, widget({"size": 1, "parts": [{"name": "a", "count": 1}]}))
    after = updated(live, {**live, "spec": {**live["spec"], "size": 2}})
    assert after["spec"]["parts"] is live["spec"]["parts"]


def test_a_conflict_is_a_409_with_one_cause_per_field() -> None:
    live = updated(None, widget({"size": 1, "color": "a"}))
    with pytest.raises(ApplyConflict) as caught:
        applied(live, widget({"size": 2, "color": "b"}))
    assert caught.value.code == 409
    assert caught.value.message == (
        'Apply failed with 2 conflicts: conflicts with "bob" using example.com/v1:\n- .spec.color\n- .spec.size'
    )
    assert caught.value.details == {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "bob" using example.com/v1',
                "field": path,
            }
            for path in (".spec.color", ".spec.size")
        ]
    }


def test_fields_that_the_endpoint_resets_have_no_owner() -> None:
    reset = from_paths(("status",))
    made = applied(None, widget({"size": 1}, status={"phase": "New"}), reset=reset)
    changed = updated(made, {**made, "status": {"phase": "Old"}}, reset=reset)
    assert "f:status" not in owned(made, "alice")
    assert owned(changed, "bob") == {}


def test_a_nested_reset_field_excludes_only_itself() -> None:
    reset = from_paths(("metadata", "labels"))
    config = {**widget(), "metadata": {"name": "x", "labels": {"a": "b"}, "annotations": {"c": "d"}}}
    assert owned(applied(None, config, reset=reset), "alice") == {
        "f:metadata": {"f:annotations": {"f:c": {}}}
    }
    assert owned(updated(None, config, reset=reset), "bob") == {
        "f:metadata": {"f:annotations": {".": {}, "f:c": {}}}
    }


def test_a_list_that_became_atomic_is_owned_as_a_whole_by_the_owners_of_its_items() -> None:
    live = applied(None, widget({"tags": ["a"]}))
    live = applied(live, widget({"tags": ["b"]}), "bob")
    atomic = Schema.from_crd(
        {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {
                        "tags": {"type": "array", "items": {"type": "string"}},
                        "size": {"type": "integer"},
                    },
                }
            },
        }
    )
    new = {**live, "spec": {**live["spec"], "size": 1}}
    after = track_update(live, new, manager="carol", schema=atomic, api_version=VERSION, now="x")
    assert owned(after, "alice") == owned(after, "bob") == {"f:spec": {"f:tags": {}}}


def test_managers_of_removed_versions_are_dropped() -> None:
    live = updated(None, widget({"size": 1}))
    live["metadata"]["managedFields"][0]["apiVersion"] = "example.com/v0"
    after = updated(
        live, {**live, "spec": {"size": 1, "color": "a"}}, "carol", convert=lambda _obj, _version: None
    )
    assert owned(after, "bob") == {}
    assert owned(after, "carol") == {"f:spec": {"f:color": {}}}


def test_a_value_outside_the_schema_leaves_the_object_without_owners() -> None:
    live = updated(None, widget({"size": 1}))
    broken = updated(live, {**live, "spec": {"parts": [{"count": 1}]}})
    assert "managedFields" not in broken["metadata"]


def test_a_deduced_schema_merges_objects_and_replaces_lists() -> None:
    def free(live: dict[str, Any] | None, spec: dict[str, Any], manager: str) -> dict[str, Any]:
        return apply(
            live, widget(spec), manager=manager, schema=None, force=True, api_version=VERSION, now="x"
        )

    live = free(None, {"a": {"b": 1}, "list": [1, 2]}, "alice")
    live = free(live, {"a": {"c": 2}, "list": [3]}, "bob")
    assert live["spec"] == {"a": {"b": 1, "c": 2}, "list": [3]}
    assert owned(live, "alice") == {"f:spec": {".": {}, "f:a": {".": {}, "f:b": {}}}}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (widget({"size": "1"}), ".spec.size: expected numeric (int or float), got string"),
        (widget({"nosuch": 1}), ".spec.nosuch: field not declared in schema"),
        (widget({"tags": ["a", "a"]}), '.spec.tags: duplicate entries for key [="a"]'),
        (
            widget({"size": "1", "color": 2}),
            """errors:
  .spec.size: expected numeric (int or float), got string
  .spec.color: expected string, got &value.valueUnstructured{Value:2}""",
        ),
    ],
)
def test_a_configuration_that_does_not_fit_its_schema_is_rejected(
    config: dict[str, Any], message: str
) -> None:
    with pytest.raises(StatusError) as caught:
        applied(None, config)
    assert caught.value.code == 500
    assert caught.value.message == (
        f"failed to create typed patch object (/x; example.com/v1, Kind=Widget): {message}"
    )


def test_the_last_applied_annotation_follows_what_kubectl_applies() -> None:
    name = "kubectl.kubernetes.io/last-applied-configuration"
    live = updated(
        None, {**widget({"size": 1}), "metadata": {"name": "x", "annotations": {name: "{}"}}}, "old"
    )
    after = applied(live, widget({"color": "<"}), "kubectl")
    assert after["metadata"]["annotations"][name] == (
        '{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x"},"spec":{"color":"\\u003c"}}\n'
    )
