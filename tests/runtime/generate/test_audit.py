"""The audit of the calls that an operator made against its rights."""

from typing import Any

import pytest

from kapsa.runtime import (
    Audit,
    Call,
    ControllerRights,
    GroupResource,
    MissingRights,
    OperatorRights,
    PolicyRule,
    grants,
)

APPS = GroupResource("example.com", "myapps")
DEPLOYMENTS = GroupResource.of("apps/v1/Deployment")


def rights(**changes: Any) -> OperatorRights:
    controller = {
        "resource": APPS,
        "owns": (DEPLOYMENTS, GroupResource.of("v1/Service")),
        **changes.pop("controller", {}),
    }
    return OperatorRights(controllers=(ControllerRights(**controller),), **changes)


def audited(*calls: tuple[Call, int]) -> Audit:
    audit = Audit()
    for call, status in calls:
        audit(call, status, 0.01)
    return audit


def test_a_call_without_a_rule_is_reported() -> None:
    audit = audited(
        (Call("list", "example.com", "myapps"), 200),
        (Call("get", "", "secrets", "", "default", "token"), 200),
        (Call("create", "authorization.k8s.io", "selfsubjectaccessreviews"), 201),
    )
    with pytest.raises(MissingRights, match="get secrets token in default"):
        audit.verify(grants(rights(), namespace="system"))


def test_an_unused_right_is_reported() -> None:
    audit = audited(
        (Call("list", "example.com", "myapps"), 200),
        (Call("watch", "example.com", "myapps"), 200),
        (Call("patch", "example.com", "myapps", "status", "default", "a"), 200),
    )
    declared = rights(events=False, controller={"owns": (), "watches": (GroupResource.of("v1/Node"),)})
    assert audit.verify(grants(declared, namespace="system")) == ["read nodes"]


def test_an_apply_that_creates_uses_both_rights() -> None:
    apply = Call("patch", "apps", "deployments", "", "default", "a")
    assert {call.verb for call in audited((apply, 201)).calls} == {"patch", "create"}
    assert {call.verb for call in audited((apply, 200)).calls} == {"patch"}


def test_a_right_in_one_namespace_does_not_cover_another() -> None:
    audit = audited((Call("list", "example.com", "myapps", "", "b"), 200))
    with pytest.raises(MissingRights, match=r"list myapps\.example\.com in b"):
        audit.verify(grants(rights(namespaces=("a",)), namespace="system"))


def test_a_right_by_name_covers_only_that_name() -> None:
    rule = PolicyRule(group="coordination.k8s.io", resources=("leases",), verbs=("get",), names=("lock",))
    assert rule.covers(Call("get", "coordination.k8s.io", "leases", "", "system", "lock"))
    assert not rule.covers(Call("get", "coordination.k8s.io", "leases", "", "system", "other"))
