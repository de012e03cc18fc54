"""ValidatingAdmissionPolicies: expressions, variables, parameters, conditions, actions and failures."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    SECRETS,
    case,
    configmap,
    delete,
    get,
    merge,
    post,
    secret,
)
from tests.behaviour.conformance.exchange import Call, Case

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
READY = 1.5
"""Seconds after which the real server has compiled a new policy."""


def rules(*operations: str, resources: str = "configmaps") -> list[dict[str, Any]]:
    return [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": list(operations) or ["CREATE", "UPDATE"],
            "resources": [resources],
        }
    ]


def policy(*validations: dict[str, Any], **spec: Any) -> Call:
    constraints = {
        "resourceRules": rules(),
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}},
    }
    body = {"matchConstraints": constraints, "validations": list(validations), **spec}
    return post(POLICIES, {"metadata": {"name": "p-{ns}"}, "spec": body})


def binding(*actions: str, **spec: Any) -> Call:
    body = {"policyName": "p-{ns}", "validationActions": list(actions) or ["Deny"], **spec}
    return post(BINDINGS, {"metadata": {"name": "b-{ns}"}, "spec": body})


def ready(call: Call) -> Call:
    return msgspec.structs.replace(call, delay=READY)


def rule(expression: str, **fields: Any) -> dict[str, Any]:
    return {"expression": expression, **fields}


def checked(what: str, *setup: Call, then: tuple[Call, ...] = ()) -> Case:
    """Return a case with a policy, and the same write before and after it; its objects are removed at the end."""
    first = ready(post(CONFIGMAPS, configmap(data={"a": "1"})))
    return case(
        f"a policy: {what}",
        *setup,
        first,
        *then,
        delete(f"{BINDINGS}/b-{{ns}}"),
        delete(f"{POLICIES}/p-{{ns}}"),
    )


CASES = [
    checked("an expression that holds", policy(rule("object.data.a == '1'")), binding()),
    checked("an expression that does not hold", policy(rule("object.data.a == '2'")), binding()),
    checked("a message", policy(rule("object.data.a == '2'", message="a must be 2")), binding()),
    checked(
        "a message expression", policy(rule("false", messageExpression="'a is ' + object.data.a")), binding()
    ),
    checked(
        "a message expression that fails",
        policy(rule("false", message="m", messageExpression="string(object.data.none)")),
        binding(),
    ),
    checked("a reason", policy(rule("false", reason="Forbidden")), binding()),
    checked("a reason of size", policy(rule("false", reason="RequestEntityTooLarge")), binding()),
    checked("an expression that fails", policy(rule("object.data.none == '1'")), binding()),
    checked(
        "an expression that fails and is ignored",
        policy(rule("object.data.none == '1'"), failurePolicy="Ignore"),
        binding(),
    ),
    checked(
        "several validations",
        policy(rule("true"), rule("false", message="second"), rule("false", message="third")),
        binding(),
    ),
    checked("a warning", policy(rule("false", message="beware")), binding("Warn")),
    checked("an audit", policy(rule("false", message="noted")), binding("Audit")),
    checked("a warning and an audit", policy(rule("false", message="both")), binding("Warn", "Audit")),
    checked(
        "a match condition that is false",
        policy(rule("false"), matchConditions=[{"name": "c", "expression": "object.data.a == '2'"}]),
        binding(),
    ),
    checked(
        "a match condition that is true",
        policy(rule("false"), matchConditions=[{"name": "c", "expression": "object.data.a == '1'"}]),
        binding(),
    ),
    checked(
        "a match condition that fails",
        policy(rule("false"), matchConditions=[{"name": "c", "expression": "object.data.none == '1'"}]),
        binding(),
    ),
    checked(
        "variables",
        policy(
            rule("variables.a == '2'", messageExpression="'a is ' + variables.a"),
            variables=[{"name": "a", "expression": "object.data.a"}],
        ),
        binding(),
    ),
    checked(
        "a variable of a variable",
        policy(
            rule("variables.b"),
            variables=[
                {"name": "a", "expression": "object.data.a"},
                {"name": "b", "expression": "variables.a == '2'"},
            ],
        ),
        binding(),
    ),
    checked(
        "a variable that fails",
        policy(rule("variables.a == '2'"), variables=[{"name": "a", "expression": "object.data.none"}]),
        binding(),
    ),
    checked(
        "a variable that fails and is not used",
        policy(rule("true"), variables=[{"name": "a", "expression": "object.data.none"}]),
        binding(),
    ),
    checked("the request", policy(rule("request.operation == 'UPDATE'", message="only updates")), binding()),
    checked(
        "the namespace",
        policy(
            rule(
                "namespaceObject.metadata.name == 'other'", messageExpression="namespaceObject.metadata.name"
            )
        ),
        binding(),
    ),
    checked("no binding", policy(rule("false"))),
    checked(
        "a binding for another namespace",
        policy(rule("false")),
        binding(matchResources={"namespaceSelector": {"matchLabels": {"none": "none"}}}),
    ),
    checked(
        "a binding for some objects",
        policy(rule("false")),
        binding(matchResources={"objectSelector": {"matchLabels": {"checked": "true"}}}),
        then=(post(CONFIGMAPS, configmap("two", labels={"checked": "true"})),),
    ),
    checked("another resource", policy(rule("false")), binding(), then=(post(SECRETS, secret()),)),
    checked(
        "an update",
        policy(rule("oldObject == null || oldObject.data.a == object.data.a", message="a is immutable")),
        binding(),
        then=(
            merge(f"{CONFIGMAPS}/one", {"data": {"a": "2"}}),
            merge(f"{CONFIGMAPS}/one", {"data": {"b": "2"}}),
        ),
    ),
    checked(
        "a delete",
        policy(
            rule("oldObject.data.a != '1'", message="kept"),
            matchConstraints={
                "resourceRules": rules("DELETE"),
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}},
            },
        ),
        binding(),
        then=(delete(f"{CONFIGMAPS}/one"), get(f"{CONFIGMAPS}/one")),
    ),
    checked(
        "an excluded name",
        policy(
            rule("false"),
            matchConstraints={
                "resourceRules": rules(),
                "excludeResourceRules": [{**rules()[0], "resourceNames": ["one"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}},
            },
        ),
        binding(),
        then=(post(CONFIGMAPS, configmap("two")),),
    ),
    checked(
        "a parameter",
        post(SECRETS, secret("params", stringData={"limit": "x"})),
        policy(
            rule("object.data.a == params.metadata.name", messageExpression="'need ' + params.metadata.name"),
            paramKind={"apiVersion": "v1", "kind": "Secret"},
        ),
        binding(paramRef={"name": "params", "parameterNotFoundAction": "Deny"}),
    ),
    checked(
        "a parameter that is missing and denies",
        policy(rule("true"), paramKind={"apiVersion": "v1", "kind": "Secret"}),
        binding(paramRef={"name": "params", "parameterNotFoundAction": "Deny"}),
    ),
    checked(
        "a parameter that is missing and allows",
        policy(rule("false"), paramKind={"apiVersion": "v1", "kind": "Secret"}),
        binding(paramRef={"name": "params", "parameterNotFoundAction": "Allow"}),
    ),
    checked(
        "the authorizer",
        policy(rule("authorizer.group('').resource('pods').namespace('x').check('delete').allowed()")),
        binding(),
    ),
    checked(
        "a dry run",
        policy(rule("false", message="no")),
        binding(),
        then=(post(CONFIGMAPS, configmap("two"), "dryRun=All"),),
    ),
]
