"""Pod templates in a gate: what was changed, added or removed is named, and what was approved passes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kapsa.fleet.domain.health import Evidence
from kapsa.fleet.domain.health.drift import DriftReading, FieldDrift
from kapsa.fleet.domain.health.templates import (
    approved_additions,
    judge_template,
    template_additions,
    template_changes,
)

Tree = dict[str, Any]
CONTAINER = '.spec.template.spec.containers[name="manager"]'
MANIFEST = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "widget"},
    "spec": {
        "replicas": 2,
        "template": {
            "metadata": {"labels": {"app": "widget"}, "creationTimestamp": None},
            "spec": {
                "nodeSelector": {},
                "containers": [
                    {"name": "manager", "image": "widget:1", "args": ["--fast"], "env": []},
                ],
            },
        },
    },
}
LABELS = {"f:metadata": {"f:labels": {"f:app": {}}}}


def entry(manager: str, *trees: Tree) -> Tree:
    template: Tree = {}
    for tree in trees:
        template |= tree
    return {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:template": template}}}


def container(*fields: str, name: str = "manager") -> Tree:
    owned = {".": {}, **{f"f:{field}": {} for field in fields}}
    return {"f:spec": {"f:containers": {f'k:{{"name":"{name}"}}': owned}}}


HELM = entry("helm", LABELS, container("name", "image", "args"))


def changes(*entries: Any) -> list[tuple[str, str]]:
    return list(template_changes(MANIFEST, list(entries), "helm"))


def test_a_template_whose_fields_helm_owns_is_as_approved_whoever_shares_them() -> None:
    replicas = {"manager": "autoscaler", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    assert changes(HELM, entry("argocd", container("name", "image")), replicas) == []


def test_a_field_that_somebody_added_is_named_with_its_manager() -> None:
    variable = {'k:{"name":"DEBUG"}': {".": {}, "f:name": {}, "f:value": {}}}
    added = {"f:spec": {"f:containers": {'k:{"name":"manager"}': {"f:env": {".": {}, **variable}}}}}
    selected = f'{CONTAINER}.env[name="DEBUG"]'
    assert changes(HELM, entry("kubectl-set", added)) == [
        (f"{selected}.name", "kubectl-set"),
        (f"{selected}.value", "kubectl-set"),
    ]


def test_a_container_that_somebody_added_is_named() -> None:
    sidecar = entry("injector", container("image", name="sidecar"))
    assert changes(HELM, sidecar) == [('.spec.template.spec.containers[name="sidecar"].image', "injector")]


def test_a_field_that_somebody_took_is_named_once() -> None:
    helm = entry("helm", LABELS, container("name", "args"))
    assert changes(helm, entry("kubectl-edit", container("image"))) == [
        (f"{CONTAINER}.image", "kubectl-edit")
    ]


def test_a_field_that_somebody_removed_is_named_without_a_manager() -> None:
    assert changes(entry("helm", LABELS, container("name", "image"))) == [(f"{CONTAINER}.args", "")]
    assert changes(entry("helm", container("name", "image", "args"))) == [(".spec.template.metadata", "")]


def test_a_container_that_somebody_removed_is_named() -> None:
    other = entry("kubectl-edit", container("image", name="other"))
    assert changes(entry("helm", LABELS), other) == [
        (".spec.template.spec.containers[0]", ""),
        ('.spec.template.spec.containers[name="other"].image', "kubectl-edit"),
    ]


def test_an_object_whose_owners_somebody_has_erased_is_not_as_approved() -> None:
    assert changes() == [(".spec.template", "")]
    assert list(template_changes(MANIFEST, {"not": "a list"}, "helm")) == [(".spec.template", "")]


def test_a_restart_changes_no_template() -> None:
    annotation = {"f:annotations": {".": {}, "f:kubectl.kubernetes.io/restartedAt": {}}}
    restart = entry("kubectl-rollout", {"f:metadata": annotation})
    assert changes(HELM, restart) == []


@pytest.mark.parametrize("owned", [{}, {".": {}}])
def test_a_map_of_which_somebody_owns_nothing_but_itself_changes_no_template(owned: Tree) -> None:
    assert changes(HELM, entry("kubectl-edit", {"f:metadata": {"f:annotations": owned}})) == []


def test_a_client_cannot_hide_a_change_behind_the_name_for_what_had_no_owner() -> None:
    added = entry("before-first-apply", container("command"))
    assert changes(HELM, added) == [(f"{CONTAINER}.command", "before-first-apply")]
    field = FieldDrift("Deployment operators/widget", f"{CONTAINER}.command", "before-first-apply")
    drift = DriftReading(datetime.now(UTC), (field,))
    assert judge_template(drift) is not None
    assert judge_template(drift, before=approved_additions([field], [])) is None


def test_an_addition_is_a_field_that_the_manifest_does_not_set() -> None:
    hashed = {"f:metadata": {"f:annotations": {".": {}, "f:wave/config-hash": {}}}}
    helm = entry("helm", LABELS, container("name", "args"))
    edited, policy = entry("kubectl-edit", container("image")), entry("tf", container("imagePullPolicy"))
    additions = list(template_additions(MANIFEST, [helm, entry("wave", hashed), edited, policy], "helm"))
    assert additions == [
        (".spec.template.metadata.annotations.wave/config-hash", "wave"),
        (f"{CONTAINER}.imagePullPolicy", "tf"),
    ]


def test_additions_are_approved_if_the_plan_has_them_and_they_are_there_right_before_the_upgrade() -> None:
    name = "Deployment operators/widget"
    stays, gone = FieldDrift(name, ".spec.template.a", "wave"), FieldDrift(name, ".spec.template.b", "wave")
    later = FieldDrift(name, ".spec.template.c", "kubectl-edit")
    unowned = FieldDrift(name, ".spec.template.d", "before-first-apply")
    assert approved_additions([stays, gone, unowned], [later, stays]) == (stays, unowned)


def test_owners_of_any_shape_and_depth_are_read() -> None:
    deep: Tree = {}
    for _ in range(5000):
        deep = {"f:x": deep}
    (path, manager) = changes(HELM, entry("hostile", {"f:y": deep}))[0]
    assert manager == "hostile"
    assert path.startswith(".spec.template.y.x")
    odd = entry("hostile", {"k:[1]": {}, "v:{": {}, "f:z": 3, "": {}})
    assert {manager for _, manager in changes(HELM, odd)} == {"hostile"}


def reading(*fields: tuple[str, str]) -> DriftReading:
    name = "Deployment operators/widget"
    return DriftReading(datetime.now(UTC), tuple(FieldDrift(name, *each) for each in fields))


@pytest.mark.parametrize(
    ("manager", "message"),
    [
        ("kubectl-edit", "was changed by kubectl-edit"),
        ("", "was removed by another client"),
    ],
)
def test_a_changed_template_passes_no_gate_and_says_who_changed_it(manager: str, message: str) -> None:
    check = judge_template(reading((f"{CONTAINER}.image", manager)))
    assert check is not None
    assert (check.evidence, check.reason) == (Evidence.UNKNOWN, "Drift")
    assert f"{CONTAINER}.image of Deployment operators/widget {message}" in check.message


def test_the_fields_that_a_plan_leaves_to_others_pass_and_no_other_does() -> None:
    image, env = (f"{CONTAINER}.image", "tuner"), (f'{CONTAINER}.env[name="A"].value', "tuner")
    left = [("Deployment operators/widget", f"{CONTAINER}.image")]
    assert judge_template(reading(image), left) is None
    assert judge_template(reading(env), [("Deployment operators/widget", f"{CONTAINER}.env")]) is None
    check = judge_template(reading(image, env), left)
    assert check is not None
    assert "env" in check.message
    assert judge_template(reading(image), [("Deployment other/widget", f"{CONTAINER}.image")]) is not None


def test_what_the_same_manager_had_before_passes_and_nothing_else_does() -> None:
    annotation = (".spec.template.metadata.annotations.wave/config-hash", "wave")
    before = reading(annotation).fields
    assert judge_template(reading(annotation), (), before) is None
    for other in ((annotation[0], "kubectl-edit"), (f"{CONTAINER}.image", "wave")):
        check = judge_template(reading(annotation, other), (), before)
        assert check is not None
        assert other[1] in check.message
