"""Two CRDs as wholes: identity, versions, storage, conversion, and the way back."""

from __future__ import annotations

import pytest

from kapsa.fleet.domain.crds import compare_crds, parse_crd
from kapsa.fleet.domain.errors import InvalidInput
from tests.fleet.domain.crds.resources import (
    BREAKING,
    SAFE,
    WARNING,
    Raw,
    comparison,
    crd,
    object_of,
    resource,
    rules,
    version,
)

SIZE = {"size": {"type": "integer"}}
SIZE_AND_COLOR = resource(object_of({**SIZE, "color": {"type": "string"}}))


def webhook(name: str = "converter", **client: object) -> Raw:
    service = {"name": name, "namespace": "system", "path": "/convert"}
    return {
        "strategy": "Webhook",
        "webhook": {"clientConfig": {"service": service, **client}, "conversionReviewVersions": ["v1"]},
    }


def test_equal_crds_have_no_finding_in_either_direction() -> None:
    result = comparison(crd(), crd())
    assert (result.findings, result.backward, result.one_way) == ((), (), False)


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("spec.scope", {"scope": "Cluster"}),
        ("spec.group", {"group": "example.org"}),
        ("spec.names.kind", {"names": {"kind": "Gadget"}}),
        ("spec.names.plural", {"names": {"plural": "gadgets"}}),
    ],
)
def test_another_identity_is_breaking_blocked_and_one_way(path: str, change: Raw) -> None:
    result = comparison(crd(), crd(**change))
    assert rules(result.findings) == [f"breaking identity-changed {path}"]
    assert result.blocked
    assert result.one_way


def test_names_for_clients_are_a_warning_and_names_for_people_are_safe() -> None:
    result = comparison(crd(), crd(names={"singular": "gadget", "listKind": "Gadgets"}))
    assert rules(result.findings) == [
        "warning names-changed spec.names.listKind",
        "warning names-changed spec.names.singular",
    ]
    assert comparison(crd(), crd(names={"shortNames": ["w"], "categories": ["all"]})).severity is SAFE


def test_a_stored_version_cannot_be_removed_until_it_is_migrated() -> None:
    old = crd(version("v1beta1", storage=False), version("v1"), stored=["v1beta1", "v1"])
    result = comparison(old, crd())
    assert rules(result.findings) == ["breaking stored-version-removed spec.versions[v1beta1]"]
    assert result.blocked
    migrated = crd(version("v1beta1", storage=False), version("v1"), stored=["v1"])
    assert not comparison(migrated, crd()).blocked


def test_the_stored_versions_of_a_cluster_win_over_those_of_the_document() -> None:
    old, new = parse_crd(crd(version("v1beta1", storage=False), version("v1"))), parse_crd(crd())
    assert compare_crds(old, new, stored_versions=frozenset({"v1beta1"})).blocked
    assert not compare_crds(old, new).blocked


def test_an_unserved_version_that_nothing_is_stored_as_can_be_removed() -> None:
    old = crd(version("v1beta1", storage=False, served=False), version("v1"), stored=["v1"])
    assert comparison(old, crd()).severity is SAFE


def test_an_added_version_and_one_that_is_served_again_are_safe() -> None:
    old = crd(version("v1beta1", storage=False, served=False), version("v1"))
    new = crd(version("v1beta1", storage=False), version("v1"), version("v2", storage=False))
    result = comparison(old, new)
    assert result.severity is SAFE
    assert {finding.rule for finding in result.findings} == {"version-served", "version-added"}


def test_a_new_version_that_lacks_a_field_is_a_warning_without_a_webhook() -> None:
    old = crd(version("v1", SIZE_AND_COLOR))
    versions = (version("v1", SIZE_AND_COLOR), version("v2", storage=False))
    findings = comparison(old, crd(*versions)).findings
    assert rules(findings) == ["warning version-lossy spec.versions[v2]"]
    assert "spec.color" in findings[0].reason
    assert (
        rules(
            comparison(crd(versions[0], conversion=webhook()), crd(*versions, conversion=webhook())).findings
        )
        == []
    )


def test_a_deprecated_version_is_a_warning_and_its_text_is_safe() -> None:
    deprecated = crd(version(deprecated=True))
    assert comparison(crd(), deprecated).severity is WARNING
    assert comparison(deprecated, crd()).severity is SAFE
    assert comparison(deprecated, crd(version(deprecated=True, deprecationWarning="use v2"))).severity is SAFE


def test_columns_are_safe() -> None:
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    assert comparison(crd(), crd(version(additionalPrinterColumns=columns))).severity is SAFE


def test_an_added_status_is_a_warning_and_an_added_scale_is_safe() -> None:
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    assert comparison(crd(), crd(version(subresources={"status": {}}))).severity is WARNING
    scaled = crd(version(subresources={"scale": scale}))
    assert comparison(crd(), scaled).severity is SAFE
    moved = crd(version(subresources={"scale": {**scale, "specReplicasPath": ".spec.count"}}))
    assert comparison(scaled, moved).severity is WARNING


def test_an_added_selectable_field_is_safe() -> None:
    assert comparison(crd(), crd(version(selectableFields=[{"jsonPath": ".spec.size"}]))).severity is SAFE


def test_a_moved_storage_flag_prunes_what_the_other_version_lacks() -> None:
    old = crd(version("v1", SIZE_AND_COLOR), version("v2", storage=False))
    new = crd(version("v1", SIZE_AND_COLOR, storage=False), version("v2"))
    result = comparison(old, new)
    assert rules(result.findings) == [
        "breaking field-removed v1→v2:spec.color",
        "warning storage-moved spec.versions[v2].storage",
    ]
    assert result.one_way


def test_with_a_webhook_a_moved_storage_flag_is_one_way_if_the_old_webhook_lacks_the_version() -> None:
    old = crd(version("v1", SIZE_AND_COLOR), conversion=webhook())
    new = crd(version("v1", SIZE_AND_COLOR, storage=False), version("v2"), conversion=webhook())
    assert comparison(old, new).one_way_reasons == (
        "objects are stored as v2, which the conversion of the old version does not know",
    )
    both = crd(version("v1", SIZE_AND_COLOR), version("v2", storage=False), conversion=webhook())
    assert not comparison(both, new).one_way


def test_a_moved_storage_flag_is_one_way_if_the_way_back_prunes_new_fields() -> None:
    old = crd(version("v1"), version("v2", SIZE_AND_COLOR, storage=False))
    new = crd(version("v1", storage=False), version("v2", SIZE_AND_COLOR))
    result = comparison(old, new)
    assert result.severity is WARNING
    assert result.one_way_reasons == (
        "objects are stored as v2: read as v1 again, their new fields are pruned",
    )


def test_conversion_that_ends_is_breaking_if_the_versions_differ() -> None:
    versions = (version("v1"), version("v2", SIZE_AND_COLOR, storage=False))
    assert comparison(crd(*versions, conversion=webhook()), crd(*versions)).severity is BREAKING
    same = (version("v1"), version("v2", storage=False))
    assert comparison(crd(*same, conversion=webhook()), crd(*same)).severity is WARNING


def test_another_webhook_is_a_warning_and_a_renewed_certificate_is_nothing() -> None:
    assert comparison(crd(conversion=webhook()), crd(conversion=webhook("other"))).severity is WARNING
    renewed = comparison(crd(conversion=webhook(caBundle="b2xk")), crd(conversion=webhook(caBundle="bmV3")))
    assert renewed.findings == ()


def test_unknown_fields_that_the_whole_crd_preserved_are_pruned() -> None:
    result = comparison(crd(preserveUnknownFields=True), crd(preserveUnknownFields=False))
    assert rules(result.findings) == ["breaking unknown-fields-pruned spec.preserveUnknownFields"]
    assert result.one_way


def test_a_version_without_a_schema_accepts_anything() -> None:
    bare = crd({"name": "v1", "served": True, "storage": True})
    assert comparison(bare, crd()).severity is BREAKING
    assert comparison(crd(), bare).severity is SAFE


def test_a_removed_field_is_one_way_and_an_added_one_is_not() -> None:
    small, large = crd(), crd(version("v1", SIZE_AND_COLOR))
    assert comparison(large, small).one_way
    added = comparison(small, large)
    assert not added.one_way
    assert rules(added.backward) == ["breaking field-removed v1:spec.color"]


def test_many_lost_fields_give_few_reasons() -> None:
    wide = crd(version("v1", resource(object_of({f"f{index}": {"type": "string"} for index in range(50)}))))
    reasons = comparison(wide, crd(version("v1", resource(object_of({}))))).one_way_reasons
    assert len(reasons) == 6
    assert reasons[-1] == "45 more changes lose data"


def test_severity_takes_the_version_of_the_cluster_into_account() -> None:
    limited = resource(object_of({"size": {"type": "integer", "maximum": 5}}))
    result = comparison(crd(), crd(version("v1", limited)))
    assert result.on_cluster("v1.32.4").severity is BREAKING
    assert result.on_cluster("v1.33.0+k3s1").severity is WARNING
    assert result.on_cluster("unknown").severity is BREAKING
    assert "new objects do not" in result.on_cluster("1.36").findings[0].reason


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"metadata": {"name": "a"}}, "/"),
        ({**crd(), "spec": {**crd()["spec"], "versions": []}}, "/spec/versions"),
        (crd(version("v1", {"type": 3})), "/spec/versions/0/schema/openAPIV3Schema/type"),
        (crd(version("v1", resource(object_of({"a": {"maxLength": "x"}})))), "maxLength"),
    ],
)
def test_a_malformed_crd_is_refused_with_the_path_of_the_field(document: Raw, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_crd(document)
    assert path in caught.value.fields[0].path


def test_bytes_that_are_not_json_are_refused() -> None:
    with pytest.raises(InvalidInput, match="not JSON"):
        parse_crd(b"{")


def test_a_schema_that_is_nested_without_end_is_refused() -> None:
    deep: Raw = {"type": "string"}
    for _ in range(3_000):
        deep = {"type": "object", "properties": {"a": deep}}
    other = {"type": "object", "properties": {"b": deep}}
    with pytest.raises(InvalidInput, match="nested too deeply"):
        comparison(crd(version("v1", deep)), crd(version("v1", other)))
