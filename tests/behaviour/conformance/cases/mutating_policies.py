"""MutatingAdmissionPolicies: configurations, JSON patches, order, reinvocation, failures."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.admission_policies import READY, rule, rules
from tests.behaviour.conformance.cases.admission_policies import binding as validating_binding
from tests.behaviour.conformance.cases.admission_policies import policy as validating_policy
from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    DEPLOYMENTS,
    PODS,
    SECRETS,
    WIDGETS,
    apply,
    as_user,
    case,
    configmap,
    delete,
    deployment,
    get,
    merge,
    pod,
    post,
    put,
    secret,
    widget,
)
from tests.behaviour.conformance.exchange import Call, Case

MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
MUTATING_BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
ANY = [
    {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["*"]},
]


def constraints(resource_rules: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "resourceRules": resource_rules or rules(),
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}},
        **more,
    }


def configuration(expression: str) -> dict[str, Any]:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patching(expression: str) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def policy(*mutations: dict[str, Any], name: str = "m-{ns}", **spec: Any) -> Call:
    body = {
        "matchConstraints": constraints(),
        "reinvocationPolicy": "Never",
        "mutations": list(mutations),
        **spec,
    }
    return post(MUTATING, {"metadata": {"name": name}, "spec": body})


def bound(name: str = "m-{ns}", **spec: Any) -> Call:
    return post(MUTATING_BINDINGS, {"metadata": {"name": name}, "spec": {"policyName": name, **spec}})


def mutated(
    what: str, *setup: Call, then: tuple[Call, ...] = (), names: tuple[str, ...] = ("m-{ns}",)
) -> Case:
    """Return a case with policies, a write that they apply to, and their removal."""
    first = post(CONFIGMAPS, configmap(data={"a": "1"}), delay=READY)
    return case(
        f"a mutating policy: {what}",
        *setup,
        first,
        *then,
        *(delete(f"{MUTATING_BINDINGS}/{name}") for name in names),
        *(delete(f"{MUTATING}/{name}") for name in names),
    )


def simple(what: str, *mutations: dict[str, Any], **spec: Any) -> Case:
    return mutated(what, policy(*mutations, **spec), bound())


LABEL = configuration("Object{metadata: Object.metadata{labels: {'by': 'policy'}}}")
FAILING = configuration("Object{metadata: Object.metadata{labels: {'by': string(object.data.none)}}}")
DEPLOYED = [
    {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}
]
PODDED = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
CUSTOM = [
    {
        "apiGroups": ["conformance.kapsa.dev"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["widgets"],
    }
]


def on(resource_rules: Any, *mutations: dict[str, Any], write: Call, what: str, **spec: Any) -> Case:
    return mutated(
        what,
        policy(*mutations, matchConstraints=constraints(resource_rules), **spec),
        bound(),
        then=(write,),
    )


APPLIED = [
    simple("a label by configuration", LABEL),
    simple("data by configuration", configuration("Object{data: {'b': object.data.a + '2'}}")),
    simple(
        "an object that is not named after its field",
        configuration("Object{metadata: Object.spec{labels: {'a': 'b'}}}"),
    ),
    simple("a field that does not exist", configuration("Object{spec: Object.spec{none: 1}}")),
    simple("a field of another type", configuration("Object{data: 'text'}")),
    simple("an empty configuration", configuration("Object{}")),
    simple(
        "an optional field that is absent",
        configuration("Object{?immutable: optional.none(), data: {'b': '2'}}"),
    ),
    simple(
        "an optional field of the object",
        configuration("Object{data: {'b': object.?data.?none.orValue('none')}}"),
    ),
    simple(
        "a condition in the configuration",
        configuration("has(object.data.a) ? Object{data: {'b': 'yes'}} : Object{}"),
    ),
    simple("a configuration that fails", FAILING),
    simple("a configuration that fails and is ignored", FAILING, failurePolicy="Ignore"),
    simple("one failure of two mutations", FAILING, LABEL),
    simple(
        "two mutations, the second of which sees the first",
        LABEL,
        configuration("Object{data: {'seen': object.metadata.labels['by']}}"),
    ),
    on(
        DEPLOYED,
        configuration(
            "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{"
            "containers: [Object.spec.template.spec.containers{name: 'side', image: 'side:1'}]}}}}"
        ),
        what="a container is added to the template",
        write=post(DEPLOYMENTS, deployment()),
    ),
    on(
        DEPLOYED,
        configuration("Object{spec: Object.spec{replicas: 3}}"),
        what="replicas are set",
        write=post(DEPLOYMENTS, deployment()),
    ),
    on(
        DEPLOYED,
        configuration("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}"),
        what="an atomic field",
        write=post(DEPLOYMENTS, deployment()),
    ),
    on(
        PODDED,
        configuration(
            "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'main', args: ['a', 'b']}]}}"
        ),
        what="an atomic list",
        write=post(PODS, pod()),
    ),
    on(
        PODDED,
        configuration(
            "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'init', "
            "image: 'init:1', restartPolicy: 'Always'}]}}"
        ),
        what="an init container",
        write=post(PODS, pod()),
    ),
    on(
        PODDED,
        configuration("Object{spec: Object.spec{serviceAccountName: 'other'}}"),
        what="built-in plugins run again and reject the change",
        write=post(PODS, pod()),
    ),
    on(
        CUSTOM,
        configuration("Object{spec: Object.spec{size: 7}}"),
        what="a custom resource",
        write=post(WIDGETS, widget(spec={"size": 2})),
    ),
    on(
        CUSTOM,
        patching("[JSONPatch{op: 'add', path: '/spec/size', value: 7}]"),
        what="a custom resource by patch",
        write=post(WIDGETS, widget(spec={"size": 2})),
    ),
    on(
        ANY,
        LABEL,
        what="an update, an apply and a server-side apply again",
        write=merge(f"{CONFIGMAPS}/one", {"metadata": {"labels": None}}),
    ),
    mutated(
        "an applied object",
        policy(LABEL),
        bound(),
        then=(apply(f"{CONFIGMAPS}/two", configmap("two", {"a": "b"})), get(f"{CONFIGMAPS}/two")),
    ),
    mutated(
        "a replaced object",
        policy(LABEL),
        bound(),
        then=(put(f"{CONFIGMAPS}/one", configmap(data={"a": "b"})),),
    ),
    mutated(
        "a dry run",
        policy(LABEL),
        bound(),
        then=(post(CONFIGMAPS, configmap("two"), "dryRun=All"), get(f"{CONFIGMAPS}/two")),
    ),
    mutated("another resource", policy(LABEL), bound(), then=(post(SECRETS, secret()),)),
    mutated("no binding", policy(LABEL)),
]
PATCHED = [
    simple("a patch", patching("[JSONPatch{op: 'add', path: '/data/b', value: 'c'}]")),
    simple(
        "a patch with an escaped key",
        patching(
            "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'x': 'y'}}, "
            "JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/a'), value: 'b'}]"
        ),
    ),
    simple("a patch that removes", patching("[JSONPatch{op: 'remove', path: '/data/a'}]")),
    simple("a patch that removes what is absent", patching("[JSONPatch{op: 'remove', path: '/data/none'}]")),
    simple("a patch that replaces", patching("[JSONPatch{op: 'replace', path: '/data/a', value: 'z'}]")),
    simple("a patch that moves", patching("[JSONPatch{op: 'move', from: '/data/a', path: '/data/b'}]")),
    simple("a patch that copies", patching("[JSONPatch{op: 'copy', from: '/data/a', path: '/data/b'}]")),
    simple(
        "a patch with a test that holds",
        patching(
            "[JSONPatch{op: 'test', path: '/data/a', value: '1'}, JSONPatch{op: 'add', path: '/data/b', value: 'c'}]"
        ),
    ),
    simple(
        "a patch with a test that does not hold",
        patching(
            "[JSONPatch{op: 'test', path: '/data/a', value: '2'}, JSONPatch{op: 'add', path: '/data/b', value: 'c'}]"
        ),
    ),
    simple("a patch below an absent path", patching("[JSONPatch{op: 'add', path: '/none/b', value: 'c'}]")),
    simple(
        "a patch with an unknown operation", patching("[JSONPatch{op: 'none', path: '/data/b', value: 'c'}]")
    ),
    simple("an empty patch", patching("[]")),
    simple(
        "a patch with an object",
        patching(
            "[JSONPatch{op: 'add', path: '/metadata/annotations', "
            "value: Object.metadata.annotations{x: 'y'}}]"
        ),
    ),
    simple("a patch of a value of another type", patching("[JSONPatch{op: 'add', path: '/data', value: 1}]")),
    simple("a patch of an unknown field", patching("[JSONPatch{op: 'add', path: '/unknown', value: 1}]")),
    on(
        PODDED,
        patching(
            "[JSONPatch{op: 'add', path: '/spec/containers/-', "
            "value: Object.spec.containers{name: 'side', image: 'side:1'}}]"
        ),
        what="a patch adds a container",
        write=post(PODS, pod()),
    ),
]
SELECTED = [
    simple(
        "variables",
        configuration("Object{data: {'b': variables.b}}"),
        variables=[{"name": "b", "expression": "object.data.a + 'x'"}],
    ),
    simple(
        "a variable that fails",
        configuration("Object{data: {'b': variables.b}}"),
        variables=[{"name": "b", "expression": "object.data.none"}],
    ),
    simple(
        "a variable that is null",
        configuration("Object{data: {'b': variables.old == null ? 'new' : 'old'}}"),
        variables=[{"name": "old", "expression": "oldObject"}],
    ),
    simple(
        "a condition that is false",
        LABEL,
        matchConditions=[{"name": "c", "expression": "object.data.a == '2'"}],
    ),
    simple(
        "a condition that is true",
        LABEL,
        matchConditions=[{"name": "c", "expression": "object.data.a == '1'"}],
    ),
    simple(
        "a condition that fails",
        LABEL,
        matchConditions=[{"name": "c", "expression": "object.data.none == '1'"}],
    ),
    simple(
        "a condition that fails and is ignored",
        LABEL,
        matchConditions=[{"name": "c", "expression": "object.data.none == '1'"}],
        failurePolicy="Ignore",
    ),
    simple("the namespace", configuration("Object{data: {'phase': namespaceObject.status.phase}}")),
    simple(
        "the request",
        configuration("Object{data: {'operation': request.operation, 'kind': request.kind.kind}}"),
    ),
    mutated(
        "the user",
        policy(
            configuration(
                "Object{data: {'user': request.userInfo.username, 'groups': request.userInfo.groups.join(',')}}"
            )
        ),
        bound(),
        then=(as_user(post(CONFIGMAPS, configmap("two")), "jane", "system:masters"),),
    ),
    simple(
        "the authorizer",
        configuration(
            "Object{data: {'may': authorizer.requestResource.check('create').allowed() ? 'yes' : 'no'}}"
        ),
    ),
    mutated(
        "a parameter",
        post(SECRETS, secret("params")),
        policy(
            configuration("Object{data: {'b': params.metadata.name}}"),
            paramKind={"apiVersion": "v1", "kind": "Secret"},
        ),
        bound(paramRef={"name": "params", "parameterNotFoundAction": "Deny"}),
    ),
    mutated(
        "a parameter that is missing and denies",
        policy(LABEL, paramKind={"apiVersion": "v1", "kind": "Secret"}),
        bound(paramRef={"name": "params", "parameterNotFoundAction": "Deny"}),
    ),
    mutated(
        "a parameter that is missing and allows",
        policy(LABEL, paramKind={"apiVersion": "v1", "kind": "Secret"}),
        bound(paramRef={"name": "params", "parameterNotFoundAction": "Allow"}),
    ),
    mutated(
        "a parameter kind that does not exist",
        policy(LABEL, paramKind={"apiVersion": "none.example.com/v1", "kind": "None"}),
        bound(paramRef={"name": "params", "parameterNotFoundAction": "Deny"}),
    ),
    mutated(
        "a binding for some objects",
        policy(LABEL),
        bound(matchResources={"objectSelector": {"matchLabels": {"checked": "true"}}}),
        then=(post(CONFIGMAPS, configmap("two", labels={"checked": "true"})),),
    ),
    mutated(
        "a validating policy sees the mutated object",
        policy(LABEL),
        bound(),
        validating_policy(rule("!has(object.metadata.labels)", message="no labels")),
        validating_binding(),
        then=(
            delete("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/b-{ns}"),
            delete("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/p-{ns}"),
        ),
    ),
    simple(
        "its own change calls a policy again",
        configuration("Object{data: {'count': string(size(object.data))}}"),
        reinvocationPolicy="IfNeeded",
    ),
]


def refused(what: str, *mutations: dict[str, Any], **spec: Any) -> Case:
    return case(
        f"a mutating policy is rejected: {what}",
        policy(*mutations, **spec),
        delete(f"{MUTATING}/m-{{ns}}"),
    )


REJECTED = [
    refused("no mutation"),
    refused("an unknown patch type", {"patchType": "None"}),
    refused("no patch type", {"applyConfiguration": {"expression": "Object{}"}}),
    refused("the other patch", {"patchType": "JSONPatch", "applyConfiguration": {"expression": "Object{}"}}),
    refused("no expression", configuration(" ")),
    refused("an expression that is not an object", configuration("'text'")),
    refused("an expression that is not a patch", patching("Object{}")),
    refused("a patch that is not a list", patching("JSONPatch{op: 'add'}")),
    refused("a syntax error", configuration("Object{")),
    refused("an undeclared type", configuration("Other{}")),
    refused("a patch with a number as its path", patching("[JSONPatch{op: 'add', path: 1}]")),
    refused("an undeclared variable", configuration("Object{data: {'a': variables.none}}")),
    refused("parameters without a kind", configuration("Object{data: {'a': params.name}}")),
    refused(
        "an object in a condition", LABEL, matchConditions=[{"name": "c", "expression": "Object{} == object"}]
    ),
    refused("no reinvocation policy", LABEL, reinvocationPolicy=""),
    refused("an unknown reinvocation policy", LABEL, reinvocationPolicy="Sometimes"),
    refused("a delete", LABEL, matchConstraints=constraints(rules("DELETE"))),
    refused("no rules", LABEL, matchConstraints={}),
    refused("no constraints", LABEL, matchConstraints=None),
    refused("an unknown failure policy", LABEL, failurePolicy="None"),
    refused("a variable with a reserved name", LABEL, variables=[{"name": "in", "expression": "1"}]),
    refused("a variable with an error", LABEL, variables=[{"name": "a", "expression": "none"}]),
    refused("a wrong kind of parameters", LABEL, paramKind={"apiVersion": "a/b/c", "kind": "Kind_"}),
    case(
        "a mutating binding is rejected: a delete, no name and a wrong reference",
        bound(
            matchResources={"resourceRules": rules("DELETE")},
            paramRef={"name": "a", "selector": {}, "parameterNotFoundAction": "None"},
            policyName="",
        ),
    ),
]
CASES = [*APPLIED, *PATCHED, *SELECTED, *REJECTED]
