"""MutatingAdmissionPolicies on the embedded server alone; tests/behaviour/conformance compares them with a real one."""

from __future__ import annotations

from typing import Any

import pytest_asyncio

from kapsa.devcluster.embedded.server import Server
from tests.devcluster.embedded.api import CONFIGMAPS, PODS, Api

GROUP = "/apis/admissionregistration.k8s.io/v1"
RULES = [
    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps", "pods"]}
]


@pytest_asyncio.fixture
async def api() -> Api:
    return Api(Server())


async def bind(api: Api, name: str, expression: str, **spec: Any) -> None:
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    body = {
        "matchConstraints": {"resourceRules": RULES},
        "reinvocationPolicy": "Never",
        "mutations": [mutation],
        **spec,
    }
    created = await api.post(f"{GROUP}/mutatingadmissionpolicies", {"metadata": {"name": name}, "spec": body})
    assert created.status == 201, created.message
    bound = {"metadata": {"name": name}, "spec": {"policyName": name}}
    await api.post(f"{GROUP}/mutatingadmissionpolicybindings", bound)


def configmap(**data: str) -> dict[str, Any]:
    return {"metadata": {"name": "one"}, "data": data}


async def test_a_configuration_is_merged_into_the_object(api: Api):
    await bind(api, "p", "Object{data: {'b': object.data.a + '!'}}")
    created = await api.post(CONFIGMAPS, configmap(a="1"))
    assert created.body["data"] == {"a": "1", "b": "1!"}


async def test_a_policy_without_a_binding_changes_nothing_and_a_deleted_binding_ends_it(api: Api):
    await bind(api, "p", "Object{data: {'b': '2'}}")
    await api.delete(f"{GROUP}/mutatingadmissionpolicybindings/p")
    assert (await api.post(CONFIGMAPS, configmap(a="1"))).body["data"] == {"a": "1"}


async def test_a_later_change_calls_a_policy_again_that_is_reinvoked_if_needed(api: Api):
    seen = "Object{data: {'seen': 'b' in object.data ? 'b' : 'nothing'}}"
    await bind(api, "a-first", seen, reinvocationPolicy="IfNeeded")
    await bind(api, "b-second", "Object{data: {'b': 'x'}}")
    assert (await api.post(CONFIGMAPS, configmap(a="1"))).body["data"]["seen"] == "b"


async def test_a_policy_that_is_never_reinvoked_is_called_once(api: Api):
    await bind(api, "a-first", "Object{data: {'seen': 'b' in object.data ? 'b' : 'nothing'}}")
    await bind(api, "b-second", "Object{data: {'b': 'x'}}")
    assert (await api.post(CONFIGMAPS, configmap(a="1"))).body["data"]["seen"] == "nothing"


async def test_built_in_plugins_check_what_a_policy_has_changed(api: Api):
    await bind(api, "p", "Object{spec: Object.spec{priorityClassName: 'none'}}", matchConditions=[
        {"name": "pods", "expression": "request.resource.resource == 'pods'"}
    ])  # fmt: skip
    pod = {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    answer = await api.post(PODS, pod)
    assert (answer.status, answer.message) == (
        403,
        'pods "one" is forbidden: no PriorityClass with name none was found',
    )


async def test_an_expression_that_does_not_compile_is_rejected_with_its_policy(api: Api):
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 1}]"}}
    spec = {
        "matchConstraints": {"resourceRules": RULES},
        "reinvocationPolicy": "Never",
        "mutations": [mutation],
    }
    answer = await api.post(f"{GROUP}/mutatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    assert answer.status == 422
    assert "expected type of field 'op' is 'string' but provided type is 'int'" in answer.message


async def test_an_expression_cannot_keep_the_server_busy(api: Api):
    endless = "lists.range(100000).all(x, lists.range(100000).all(y, x + y >= 0)) ? Object{} : Object{}"
    await bind(api, "p", endless)
    answer = await api.post(CONFIGMAPS, configmap(a="1"))
    assert (answer.status, answer.body["reason"]) == (403, "Invalid")
    assert answer.message.endswith("operation cancelled: actual cost limit exceeded")
