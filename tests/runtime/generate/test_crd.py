"""CustomResourceDefinitions from resource classes."""

from typing import Any

import pytest

from kapsa.runtime import (
    ConversionWebhook,
    CustomResource,
    Scale,
    SchemaError,
    Spec,
    Status,
    custom_resource_definition,
    custom_resource_definitions,
    printer_column,
    rule,
)


class PlainSpec(Spec):
    size: int = 1


class ToolSpec(Spec):
    image: str


class Tool(
    CustomResource[ToolSpec, Status],
    group="example.com",
    version="v1",
    short_names=["tl"],
    categories=["all"],
    columns=[printer_column("Image", ".spec.image", priority=1)],
    rules=[rule("self.metadata.name != 'x'", "not x")],
    scale=Scale(spec_replicas_path=".spec.replicas", status_replicas_path=".status.replicas"),
    selectable_fields=[".spec.image"],
):
    """A tool.

    With a second paragraph.
    """


def versions(**storage: Any) -> list[Any]:
    made = []
    for name, options in storage.items():

        class Made(
            CustomResource[PlainSpec, Status],
            group="example.com",
            version=name,
            **{"kind": "Made", "short_names": ["md"], **options},
        ):
            pass

        made.append(Made)
    return made


def test_a_crd_has_everything_that_its_class_declares() -> None:
    crd = custom_resource_definition([Tool])
    assert crd["metadata"] == {"name": "tools.example.com"}
    spec = crd["spec"]
    assert spec["names"] == {
        "kind": "Tool",
        "listKind": "ToolList",
        "plural": "tools",
        "singular": "tool",
        "shortNames": ["tl"],
        "categories": ["all"],
    }
    assert spec["scope"] == "Namespaced"
    (version,) = spec["versions"]
    assert (version["name"], version["served"], version["storage"]) == ("v1", True, True)
    assert version["subresources"] == {
        "status": {},
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
    }
    assert version["selectableFields"] == [{"jsonPath": ".spec.image"}]
    schema = version["schema"]["openAPIV3Schema"]
    assert schema["description"] == "A tool.\n\nWith a second paragraph."
    assert schema["required"] == ["spec"]
    assert schema["x-kubernetes-validations"] == [{"rule": "self.metadata.name != 'x'", "message": "not x"}]


def test_custom_columns_keep_the_age() -> None:
    columns = custom_resource_definition([Tool])["spec"]["versions"][0]["additionalPrinterColumns"]
    assert columns == [
        {"name": "Image", "type": "string", "jsonPath": ".spec.image", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]


def test_every_status_has_conditions_keyed_by_type() -> None:
    schema = custom_resource_definition([Tool])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    conditions = schema["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert set(conditions["items"]["required"]) == {"type", "status", "lastTransitionTime", "reason"}


def test_a_spec_without_required_fields_is_optional() -> None:
    (plain,) = versions(v1={})
    schema = custom_resource_definition([plain])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert "required" not in schema


def test_versions_are_in_the_order_of_kubernetes_with_one_stored() -> None:
    made = versions(
        v1alpha1={}, v2={"storage": True}, v1={"deprecated": "use v2"}, v1beta2={"served": False}, v10={}
    )
    crd = custom_resource_definition(made)
    assert [version["name"] for version in crd["spec"]["versions"]] == [
        "v10",
        "v2",
        "v1",
        "v1beta2",
        "v1alpha1",
    ]
    assert [version["name"] for version in crd["spec"]["versions"] if version["storage"]] == ["v2"]
    assert crd["spec"]["versions"][2]["deprecationWarning"] == "use v2"
    assert crd["spec"]["versions"][3]["served"] is False


def test_the_hub_is_stored_by_default() -> None:
    crd = custom_resource_definition(versions(v1={"hub": True}, v2={}))
    assert [version["name"] for version in crd["spec"]["versions"] if version["storage"]] == ["v1"]


@pytest.mark.parametrize(
    "options",
    [
        {"v1": {}, "v2": {}},
        {"v1": {"storage": True}, "v2": {"storage": True}},
    ],
)
def test_an_ambiguous_storage_version_is_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="exactly one of the versions v2, v1 must be stored"):
        custom_resource_definition(versions(**options))


def test_versions_that_disagree_about_the_kind_are_rejected() -> None:
    made = versions(v1={"hub": True}, v2={"scope": "Cluster"})
    with pytest.raises(SchemaError, match="must have the same scope"):
        custom_resource_definition(made)


def test_a_conversion_webhook_is_set_only_for_several_versions() -> None:
    webhook = ConversionWebhook(service="hooks", namespace="system", ca_bundle=b"CA")
    conversion = custom_resource_definition(versions(v1={"hub": True}, v2={}), conversion=webhook)["spec"][
        "conversion"
    ]
    assert conversion["webhook"]["clientConfig"] == {
        "service": {"namespace": "system", "name": "hooks", "path": "/convert", "port": 443},
        "caBundle": "Q0E=",
    }
    assert "conversion" not in custom_resource_definition([Tool], conversion=webhook)["spec"]


def test_each_kind_gets_a_crd_sorted_by_name() -> None:
    crds = custom_resource_definitions([Tool, *versions(v1={"hub": True}, v2={})])
    assert [crd["metadata"]["name"] for crd in crds] == ["mades.example.com", "tools.example.com"]


def test_a_class_without_a_group_and_version_is_rejected() -> None:
    class Abstract(CustomResource[PlainSpec, Status]):
        pass

    with pytest.raises(TypeError, match="Abstract has no group and version"):
        custom_resource_definitions([Abstract])


def test_crds_are_the_same_whatever_the_order_of_the_classes() -> None:
    crds = custom_resource_definitions([Tool, *versions(v1={"hub": True}, v2={})])
    assert crds == custom_resource_definitions([*versions(v2={}, v1={"hub": True}), Tool])
