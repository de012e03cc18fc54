"""The typed resource model."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
import pytest

from kapsa.runtime.resources.merge_patch import merge_patch
from kapsa.runtime.resources.metadata import GroupVersionKind, ObjectMeta, OwnerReference
from kapsa.runtime.resources.mismatch import ModelMismatch
from kapsa.runtime.resources.model import Field, Part, Spec, Status
from kapsa.runtime.resources.resource import CustomResource

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Backup(Part):
    schedule: str
    keep: int = 7


class ShopSpec(Spec):
    image: str
    replicas: Annotated[int, Field(ge=1)] = 1
    backup: Backup | None = None
    tags: tuple[str, ...] = ()
    paused_until: Annotated[datetime | None, Field(nullable=True)] = None
    from_: str | None = None


class ShopStatus(Status):
    ready_replicas: int = 0
    phase: str | None = None
    seen: dict[str, int] = msgspec.field(default_factory=dict)


class Shop(CustomResource[ShopSpec, ShopStatus], group="example.com", version="v1", plural="shops"):
    """A shop."""


STORED = msgspec.json.encode(
    {
        "apiVersion": "example.com/v1",
        "kind": "Shop",
        "metadata": {
            "name": "corner",
            "namespace": "town",
            "uid": "u-1",
            "generation": 3,
            "labels": {"team": "a"},
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "managedFields": [{"manager": "kubectl"}],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u-0"},
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "name": "d",
                    "uid": "u-2",
                    "controller": True,
                },
            ],
        },
        "spec": {"image": "nginx", "from": "here", "addedLater": {"deep": [1]}},
        "status": {"readyReplicas": 1, "phase": "Up", "addedLater": True, "seen": {"a": 1}},
    }
)


def stored_with(spec: Any) -> Shop:
    return Shop.from_dict({"metadata": {"name": "corner", "namespace": "town"}, "spec": spec})


def test_a_class_declares_its_kind() -> None:
    assert Shop.gvk == GroupVersionKind("example.com", "v1", "Shop")
    assert (Shop.api_version, Shop.kind) == ("example.com/v1", "Shop")
    assert (Shop.definition.singular, Shop.definition.plural) == ("shop", "shops")


@pytest.mark.parametrize(
    ("name", "plural"),
    [
        ("Box", "boxes"),
        ("Policy", "policies"),
        ("Gateway", "gateways"),
        ("Class", "classes"),
        ("App", "apps"),
    ],
)
def test_the_plural_is_the_english_one_unless_given(name: str, plural: str) -> None:
    created: Any = type(name, (Shop,), {}, group="example.com", version="v1")
    assert created.definition.plural == plural


def test_a_resource_is_read_from_json_with_camel_case_names() -> None:
    shop = Shop.decode(STORED)
    assert (shop.name, shop.namespace, shop.metadata.generation) == ("corner", "town", 3)
    assert (shop.spec.image, shop.spec.replicas, shop.spec.from_) == ("nginx", 1, "here")
    assert shop.status.ready_replicas == 1
    assert shop.metadata.creation_timestamp == NOON
    assert str(shop) == "Shop town/corner"


def test_json_dicts_and_parts_give_the_same_resource() -> None:
    manifest = msgspec.json.decode(STORED)
    read = Shop.decode(STORED)
    parts = Shop.from_parts(
        metadata=read.metadata,
        spec=msgspec.Raw(msgspec.json.encode(manifest["spec"])),
        status=msgspec.json.encode(manifest["status"]),
    )
    for other in (parts, Shop.from_dict(manifest)):
        assert (other.metadata, other.spec, other.status) == (read.metadata, read.spec, read.status)
        assert other.to_dict() == read.to_dict()


def test_fields_of_a_newer_model_survive_a_round_trip() -> None:
    shop = Shop.decode(STORED)
    assert shop.spec.image == "nginx"
    assert shop.to_dict()["spec"]["addedLater"] == {"deep": [1]}
    assert shop.to_dict()["status"]["addedLater"] is True


def test_a_resource_that_was_read_rejects_changes() -> None:
    shop = Shop.decode(STORED)
    with pytest.raises(AttributeError, match="read-only"):
        shop.metadata = ObjectMeta()
    with pytest.raises(AttributeError, match="immutable"):
        shop.spec.image = "other"  # type: ignore[misc]
    with pytest.raises(AttributeError, match="immutable"):
        shop.status.phase = "Down"
    assert isinstance(shop.status, ShopStatus)


def test_a_draft_shares_nothing_with_the_resource() -> None:
    shop = Shop.decode(STORED)
    draft = shop.draft_status()
    draft.seen["b"] = 2
    draft.phase = "Down"
    assert shop.status.seen == {"a": 1}
    assert shop.status.phase == "Up"
    assert shop.draft_status().seen == {"a": 1}


def test_an_untouched_draft_needs_no_write() -> None:
    shop = Shop.decode(STORED)
    assert shop.status_patch(shop.draft_status()) is None
    new = Shop(metadata=ObjectMeta(name="n"), spec=ShopSpec(image="i"))
    assert new.status_patch(new.draft_status()) is None


def test_a_status_patch_contains_only_changes() -> None:
    shop = Shop.decode(STORED)
    draft = shop.draft_status()
    draft.ready_replicas = 2
    draft.phase = None
    draft.seen = {"b": 1}
    assert shop.status_patch(draft) == {"readyReplicas": 2, "phase": None, "seen": {"a": None, "b": 1}}


def test_the_first_write_of_a_status_includes_the_defaults_of_the_model() -> None:
    new = Shop.from_dict({"metadata": {"name": "n"}, "spec": {"image": "i"}})
    draft = new.draft_status()
    draft.phase = "Up"
    assert new.status_patch(draft) == {"readyReplicas": 0, "phase": "Up"}


def test_a_merge_patch_distinguishes_false_from_zero() -> None:
    assert merge_patch({"a": 0}, {"a": False}) == {"a": False}
    assert merge_patch({"a": {"b": 1}}, {"a": {"b": 1}}) == {}


def test_a_new_resource_has_no_status_and_no_absent_fields() -> None:
    shop = Shop(metadata=ObjectMeta(name="n"), spec=ShopSpec(image="i", backup=Backup(schedule="@daily")))
    assert shop.to_dict() == {
        "apiVersion": "example.com/v1",
        "kind": "Shop",
        "metadata": {"name": "n"},
        "spec": {
            "image": "i",
            "replicas": 1,
            "backup": {"schedule": "@daily", "keep": 7},
            "tags": [],
            "pausedUntil": None,
        },
    }


@pytest.mark.parametrize(
    ("spec", "field", "problem"),
    [
        ({}, "spec.image", "required, but missing"),
        ({"image": 3}, "spec.image", "Expected `str`, got `int`"),
        ({"image": "i", "replicas": 0}, "spec.replicas", "Expected `int` >= 1"),
        ({"image": "i", "backup": {}}, "spec.backup.schedule", "required, but missing"),
        ({"image": "i", "tags": ["a", 1]}, "spec.tags[1]", "Expected `str`, got `int`"),
        (["image"], "spec", "Expected `object`, got `array`"),
    ],
)
@pytest.mark.parametrize("as_bytes", [True, False])
def test_the_error_for_a_resource_that_does_not_fit_names_the_resource_and_the_field(
    spec: Any, field: str, problem: str, as_bytes: bool
) -> None:
    shop = stored_with(msgspec.json.encode(spec) if as_bytes else spec)
    with pytest.raises(ModelMismatch) as error:
        _ = shop.spec
    assert (error.value.resource, error.value.field, error.value.problem) == (
        "Shop town/corner",
        field,
        problem,
    )
    assert f"Shop town/corner does not fit its model: {field}: {problem}" in str(error.value)


def test_metadata_that_does_not_fit_is_a_mismatch() -> None:
    with pytest.raises(ModelMismatch) as error:
        Shop.decode(b'{"metadata":{"name":1}}')
    assert error.value.field == "metadata.name"


def test_a_null_status_is_an_absent_status() -> None:
    assert (
        Shop.from_dict({"metadata": {"name": "n"}, "spec": {"image": "i"}, "status": None}).status.phase
        is None
    )


def test_a_condition_keeps_its_transition_time_while_its_status_stays() -> None:
    status = ShopStatus()
    status.set_condition("Ready", False, reason="Starting", message="0/1", now=NOON)
    status.set_condition(
        "Ready", False, reason="Pulling", message="still 0/1", now=NOON + timedelta(minutes=1)
    )
    waiting = status.condition("Ready")
    assert waiting is not None
    assert (waiting.last_transition_time, waiting.reason) == (NOON, "Pulling")
    status.set_condition("Ready", True, reason="Up", now=NOON + timedelta(minutes=2), observed_generation=4)
    ready = status.condition("Ready")
    assert ready is not None
    assert ready.last_transition_time == NOON + timedelta(minutes=2)
    assert ready.observed_generation == 4
    assert status.is_true("Ready")
    assert not status.is_true("Available")
    assert len(status.conditions) == 1


@pytest.mark.parametrize("reason", ["", "not ready", "Not-Ready", "1st", "N" * 1025])
def test_a_reason_that_the_server_would_reject_is_rejected_at_once(reason: str) -> None:
    with pytest.raises(ValueError, match="the reason of a condition must be"):
        Status().set_condition("Ready", True, reason=reason, now=NOON)


def test_a_message_that_is_too_long_is_truncated() -> None:
    status = Status()
    status.set_condition("Ready", False, reason="Broken", message="x" * 40_000, now=NOON)
    assert len(status.conditions[0].message) == 32768


def test_an_unknown_condition_is_written_as_unknown() -> None:
    status = Status()
    status.set_condition("Ready", None, reason="Pending", now=NOON)
    assert status.conditions[0].status == "Unknown"


@pytest.mark.parametrize(
    ("text", "parts"),
    [("apps/v1/Deployment", ("apps", "v1", "Deployment")), ("v1/Service", ("", "v1", "Service"))],
)
def test_a_kind_is_parsed_and_formatted(text: str, parts: tuple[str, str, str]) -> None:
    gvk = GroupVersionKind.parse(text)
    assert gvk == GroupVersionKind(*parts)
    assert str(gvk) == text


@pytest.mark.parametrize("text", ["", "Service", "v1/service", "a/b/c/D", "/v1/Service", "v1/"])
def test_a_string_that_does_not_name_a_kind_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="does not name a kind"):
        GroupVersionKind.parse(text)


def test_an_owner_reference_refers_to_the_resource() -> None:
    assert Shop.decode(STORED).owner_reference() == OwnerReference(
        api_version="example.com/v1",
        kind="Shop",
        name="corner",
        uid="u-1",
        controller=True,
        block_owner_deletion=True,
    )


def test_the_controller_is_the_owner_that_manages() -> None:
    controller = Shop.decode(STORED).metadata.controller
    assert controller is not None
    assert (controller.group, controller.kind) == ("apps", "Deployment")
    assert ObjectMeta().controller is None


def test_a_status_field_without_a_default_is_rejected() -> None:
    class Strict(Status):
        phase: str

    with pytest.raises(TypeError, match=r"Strict\.phase needs a default"):

        class Broken(CustomResource[ShopSpec, Strict], group="example.com", version="v1"):
            pass


@pytest.mark.parametrize(("group", "version"), [("example.com", ""), ("", "v1"), ("example", "v1")])
def test_a_kind_without_a_valid_group_and_version_is_rejected(group: str, version: str) -> None:
    with pytest.raises(TypeError, match="group"):
        type("Half", (Shop,), {}, group=group, version=version)


def test_a_class_without_spec_and_status_types_is_rejected() -> None:
    with pytest.raises(TypeError, match=r"CustomResource\[YourSpec, YourStatus\]"):
        type("Bare", (CustomResource,), {}, group="example.com", version="v1")


def test_the_error_for_a_misplaced_constraint_shows_where_to_write_it() -> None:
    class Outside(Spec):
        zone: Annotated[str | None, Field(max_length=9)] = None

    with pytest.raises(TypeError, match=r"Annotated\[str, Field\(max_length=9\)\] \| None"):

        class Wrong(CustomResource[Outside, Status], group="example.com", version="v1"):
            pass


class LaterSpec(Spec):
    part: "LaterPart"


class Later(CustomResource[LaterSpec, Status], group="example.com", version="v1"):
    """A resource whose parts are defined after it."""


class LaterPart(Part):
    size: int


def test_parts_may_be_defined_after_the_resource() -> None:
    assert Later.decode(b'{"spec":{"part":{"size":3}}}').spec.part.size == 3


@pytest.mark.parametrize("version", ["1.0", "V1", "1", "v1.2", "v1-"])
def test_a_version_that_no_crd_can_have_is_rejected(version: str) -> None:
    with pytest.raises(TypeError, match="version must be a name such as 'v1' or 'v1beta1'"):

        class Wrong(CustomResource[Spec, Status], group="example.com", version=version):
            """A kind."""
