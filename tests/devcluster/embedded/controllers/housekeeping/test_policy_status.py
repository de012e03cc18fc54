"""The status of ValidatingAdmissionPolicies, the same on both engines."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest_asyncio

from kapsa.devcluster import DevCluster
from kapsa.runtime import Client
from tests.eventually import eventually

POLICY = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
Object = dict[str, Any]
Check = Callable[..., Awaitable[Object]]


@pytest_asyncio.fixture
async def check(cluster: DevCluster) -> AsyncIterator[Check]:
    """A function that creates a policy and returns its status once it has been checked."""
    names: list[str] = []
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:

        async def create(*expressions: str, rule: Object | None = None, **spec: Any) -> Object:
            name = f"types-{uuid.uuid4().hex[:8]}"
            names.append(name)
            deployments = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
            rules = [{"operations": ["CREATE"], **deployments, **(rule or {})}]
            body = {
                "matchConstraints": {
                    "resourceRules": rules,
                    "objectSelector": {"matchLabels": {"none": "none"}},
                },
                "validations": [{"expression": each} for each in expressions],
                **spec,
            }
            version, _, kind = POLICY.rpartition("/")
            await client.create(
                {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": body}
            )
            policy = await eventually(
                lambda: client.get(POLICY, name),
                lambda each: "typeChecking" in (each.get("status") or {}),
                "a checked policy",
            )
            return dict(policy["status"])

        yield create
        for name in names:
            await client.delete(POLICY, name)


async def test_expressions_that_fit_have_no_warnings(check: Check):
    status = await check("object.spec.replicas > 1", "object.metadata.labels['a'] == 'b'")
    assert status == {"observedGeneration": 1, "typeChecking": {}}


async def test_an_expression_that_does_not_fit_is_reported_for_each_kind(check: Check):
    status = await check(
        "object.data.a == 1", rule={"apiGroups": ["", "apps"], "resources": ["configmaps", "deployments"]}
    )
    assert status["typeChecking"]["expressionWarnings"] == [
        {
            "fieldRef": "spec.validations[0].expression",
            "warning": (
                "/v1, Kind=ConfigMap: ERROR: <input>:1:15: found no matching overload for '_==_' applied to "
                "'(string, int)'\n | object.data.a == 1\n | ..............^\n\n"
                "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'data'\n"
                " | object.data.a == 1\n | ......^\n"
            ),
        }
    ]


async def test_variables_have_the_types_of_the_object(check: Check):
    variables = [{"name": "count", "expression": "object.spec.replicas"}]
    status = await check("variables.count == 'x'", variables=variables)
    (warning,) = status["typeChecking"]["expressionWarnings"]
    assert "found no matching overload for '_==_' applied to '(int, string)'" in warning["warning"]


async def test_a_rule_with_a_wildcard_is_not_checked(check: Check):
    status = await check("object.none == 1", rule={"apiGroups": ["*"]})
    assert status["typeChecking"] == {}
