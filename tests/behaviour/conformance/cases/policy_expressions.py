"""Expressions of validating policies and webhooks: what is rejected when they are written, and what they may use."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.admission_policies import (
    BINDINGS,
    POLICIES,
    binding,
    checked,
    policy,
    rule,
    rules,
)
from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    SECRETS,
    as_user,
    case,
    configmap,
    delete,
    merge,
    post,
    secret,
)
from tests.behaviour.conformance.exchange import Call, Case

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
SECRET = {"apiVersion": "v1", "kind": "Secret"}


def refused(what: str, *validations: dict[str, Any], **spec: Any) -> Case:
    return case(
        f"a validating policy is rejected: {what}",
        policy(*validations, **spec),
        delete(f"{POLICIES}/p-{{ns}}"),
    )


def unbound(what: str, *actions: str, **spec: Any) -> Case:
    body = {"policyName": "p-{ns}", "validationActions": list(actions), **spec}
    return case(
        f"a validating binding is rejected: {what}",
        post(BINDINGS, {"metadata": {"name": "b-{ns}"}, "spec": body}),
        delete(f"{BINDINGS}/b-{{ns}}"),
    )


def condition(what: str, *conditions: dict[str, Any], **fields: Any) -> Case:
    hook = {
        "name": "one.example.com",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "failurePolicy": "Ignore",
        "rules": rules(),
        "objectSelector": {"matchLabels": {"none": "none"}},
        "matchConditions": list(conditions),
        **fields,
    }
    return case(
        f"a webhook's conditions: {what}",
        post(WEBHOOKS, {"metadata": {"name": "w-{ns}"}, "webhooks": [hook]}),
        delete(f"{WEBHOOKS}/w-{{ns}}"),
    )


def named(name: str, expression: str = "true") -> dict[str, Any]:
    return {"name": name, "expression": expression}


REJECTED = [
    refused("a syntax error", rule("object.")),
    refused("a text instead of a bool", rule("'text'")),
    refused("any value instead of a bool", rule("object.data")),
    refused("an undeclared name", rule("objekt.data == null")),
    refused("an unknown field of the request", rule("request.none == ''")),
    refused("a comparison of different types", rule("request.name == 1")),
    refused("an unknown field of the namespace", rule("namespaceObject.metadata.none == ''")),
    refused("an unknown function", rule("object.data.none()")),
    refused("variables without any", rule("variables.a == 1")),
    refused("an unknown variable", rule("variables.b == 1"), variables=[named("a", "1")]),
    refused("a variable of another type", rule("variables.a == 'x'"), variables=[named("a", "1")]),
    refused(
        "a variable that uses a later one",
        rule("true"),
        variables=[named("a", "variables.b"), named("b", "1")],
    ),
    refused("parameters without a kind", rule("params.a == 1")),
    refused("an object", rule("Object{} == object")),
    refused("two errors", rule("none"), rule("also.none == 1")),
    refused("an empty expression", rule(" ")),
    refused("no expression", {"message": "none"}),
    refused("nothing"),
    refused("a message with two lines", rule("true", message="a\nb")),
    refused("an empty message", rule("true", message=" ")),
    refused("a message expression that is a number", rule("true", messageExpression="1")),
    refused("a message expression that is empty", rule("true", messageExpression=" ")),
    refused(
        "a message expression with the authorizer",
        rule("true", messageExpression="authorizer.path('/').check('get').reason()"),
    ),
    refused("an unknown reason", rule("true", reason="None")),
    refused("an unauthorized reason", rule("true", reason="Unauthorized")),
    refused("an unknown failure policy", rule("true"), failurePolicy="None"),
    refused("no constraints", rule("true"), matchConstraints=None),
    refused("no rules", rule("true"), matchConstraints={}),
    refused(
        "wrong rules",
        rule("true"),
        matchConstraints={
            "matchPolicy": "None",
            "resourceRules": [
                {
                    "operations": ["*", "CREATE"],
                    "apiGroups": ["*", ""],
                    "apiVersions": ["*", "v1"],
                    "resources": ["*/*", "pods"],
                },
                {
                    "operations": ["NONE"],
                    "apiGroups": [],
                    "apiVersions": [""],
                    "resources": ["", "pods/*", "pods/status"],
                    "scope": "None",
                },
                {**rules()[0], "resourceNames": ["a", "a", "b/c"]},
                {**rules()[0], "resources": ["*", "pods"]},
                {**rules()[0], "resources": ["*/status", "pods/status"]},
            ],
        },
    ),
    refused(
        "a wrong selector",
        rule("true"),
        matchConstraints={
            "resourceRules": rules(),
            "objectSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]},
            "namespaceSelector": {"matchLabels": {"a b": "c"}},
        },
    ),
    refused("a condition with an error", rule("true"), matchConditions=[named("a", "none")]),
    refused(
        "a condition with variables",
        rule("true"),
        variables=[named("a", "1")],
        matchConditions=[named("a", "variables.a == 1")],
    ),
    refused("a condition that is not a bool", rule("true"), matchConditions=[named("a", "1")]),
    refused("conditions with one name", rule("true"), matchConditions=[named("a"), named("a")]),
    refused("a condition with a wrong name", rule("true"), matchConditions=[named("a b")]),
    refused("a condition without a name", rule("true"), matchConditions=[named("")]),
    refused("a condition without an expression", rule("true"), matchConditions=[named("a", "")]),
    refused("too many conditions", rule("true"), matchConditions=[named(f"c{index}") for index in range(65)]),
    refused("a variable without a name", rule("true"), variables=[named("", "1")]),
    refused("a variable with a reserved name", rule("true"), variables=[named("namespace", "1")]),
    refused("a variable without an expression", rule("true"), variables=[named("a", " ")]),
    refused("an audit annotation that is a number", auditAnnotations=[{"key": "a", "valueExpression": "1"}]),
    refused(
        "an audit annotation with a wrong key", auditAnnotations=[{"key": "a b", "valueExpression": "'a'"}]
    ),
    refused("an audit annotation without a value", auditAnnotations=[{"key": "a", "valueExpression": " "}]),
    refused(
        "audit annotations with one key",
        auditAnnotations=[{"key": "a", "valueExpression": "'a'"}, {"key": "a", "valueExpression": "null"}],
    ),
    refused(
        "a kind of parameters without a version", rule("true"), paramKind={"apiVersion": "a/", "kind": ""}
    ),
    refused(
        "a kind of parameters with a wrong group",
        rule("true"),
        paramKind={"apiVersion": "A_/v1", "kind": "A_"},
    ),
    unbound("no action"),
    unbound("an unknown action", "None"),
    unbound("one action twice", "Deny", "Deny"),
    unbound("a denial with a warning", "Deny", "Warn"),
    unbound("a wrong name of the policy", "Deny", policyName="A_"),
    unbound(
        "a name and a selector",
        "Deny",
        paramRef={"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"},
    ),
    unbound("neither name nor selector", "Deny", paramRef={"parameterNotFoundAction": "Deny"}),
    unbound("no action for missing parameters", "Deny", paramRef={"name": "a"}),
    unbound(
        "an unknown action for missing parameters",
        "Deny",
        paramRef={"name": "a", "parameterNotFoundAction": "None"},
    ),
    unbound(
        "a path as the name of parameters",
        "Deny",
        paramRef={"name": "a/b", "parameterNotFoundAction": "Deny"},
    ),
    condition(
        "that are right",
        named("a", "request.userInfo.username != 'x'"),
        named("b", "authorizer.requestResource.check('get').allowed()"),
    ),
    condition("a syntax error", named("a", "object.")),
    condition("a number", named("a", "1")),
    condition("parameters", named("a", "params.a == 1")),
    condition("variables", named("a", "variables.a == 1")),
    condition("one name twice", named("a"), named("a")),
    condition(
        "wrong rules",
        rules=[
            {
                "operations": ["*", "CREATE"],
                "apiGroups": ["*", "a"],
                "apiVersions": [""],
                "resources": ["*", "a"],
                "scope": "x",
            }
        ],
    ),
    condition("a wrong selector", objectSelector={"matchLabels": {"a b": "c"}}),
]
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}"


def bound(role: str) -> dict[str, Any]:
    """Return the binding of a role to the service account `reader`."""
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": "{ns}"}
    return {"metadata": {"name": "reader"}, "roleRef": reference, "subjects": [subject]}


READER = [
    post(
        f"{RBAC}/roles",
        {
            "metadata": {"name": "reader"},
            "rules": [
                {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]},
            ],
        },
    ),
    post(f"{RBAC}/rolebindings", bound("reader")),
]
"""The service account `reader` may read the logs of pods and list Secrets."""


def decision(what: str, setup: list[Call], *checks: str) -> Case:
    """Return a case that shows, as warnings, which checks of the service account `reader` hold."""
    validations = []
    for check in checks:
        namespaced = check.replace("').", "').namespace('{ns}').", 1)
        expression = f"authorizer.serviceAccount('{{ns}}', 'reader').group('').{namespaced}"
        validations += [
            rule(f"!({expression})", message="holds: " + check),
            rule(expression, message="not: " + check),
        ]
    return checked(f"the authorizer: {what}", *setup, policy(*validations), binding("Warn"))


EVALUATED = [
    checked(
        "the resource of the request is authorized",
        policy(rule("authorizer.requestResource.check('delete').allowed()")),
        binding(),
        then=(as_user(post(CONFIGMAPS, configmap("two")), "nobody"),),
    ),
    checked(
        "the reason of a decision",
        policy(
            rule(
                "authorizer.serviceAccount('default', 'none').group('apps').resource('deployments')"
                ".namespace('x').name('y').check('get').allowed()",
                message="not allowed",
            )
        ),
        binding(),
    ),
    decision(
        "a subresource of its own role", READER, "resource('pods').subresource('log').check('get').allowed()"
    ),
    decision("the resource of a subresource's role", READER, "resource('pods').check('get').allowed()"),
    decision("another subresource", READER, "resource('pods').subresource('exec').check('get').allowed()"),
    decision(
        "a field selector",
        READER,
        "resource('secrets').fieldSelector('metadata.name=one').check('list').allowed()",
    ),
    decision(
        "a field selector for what is forbidden",
        READER,
        "resource('secrets').fieldSelector('metadata.name=one').check('delete').allowed()",
    ),
    decision(
        "a field selector that is wrong",
        READER,
        "resource('secrets').fieldSelector('a').check('list').allowed()",
    ),
    decision(
        "a label selector",
        READER,
        "resource('secrets').labelSelector('app in (a, b),!c').check('list').allowed()",
    ),
    decision(
        "a label selector for what is forbidden",
        READER,
        "resource('secrets').labelSelector('app=a').check('delete').allowed()",
    ),
    decision(
        "a label selector that is wrong",
        READER,
        "resource('secrets').labelSelector('a b').check('list').allowed()",
    ),
    decision(
        "a decision has no error",
        READER,
        "resource('secrets').check('list').errored()",
        "resource('secrets').check('list').error() == ''",
        "resource('secrets').check('delete').errored()",
        "resource('secrets').check('delete').error() == ''",
        "resource('secrets').labelSelector('a b').check('list').errored()",
    ),
    decision(
        "the reason of what is allowed",
        READER,
        """resource('secrets').check('list').reason() == 'RBAC: allowed by RoleBinding "reader/{ns}" of Role '"""
        """ + '"reader" to ServiceAccount "reader/{ns}"'""",
        "resource('secrets').check('list').reason() == ''",
    ),
    decision(
        "the reason of what is forbidden",
        READER,
        "resource('secrets').check('delete').reason() == ''",
        "resource('secrets').check('delete').reason().startsWith('RBAC: ')",
    ),
    decision(
        "a binding to no role",
        [post(f"{RBAC}/rolebindings", bound("none"))],
        "resource('secrets').check('list').allowed()",
        "resource('secrets').check('list').errored()",
        "resource('secrets').check('list').error() == ''",
        "resource('secrets').check('list').reason() == ''",
        """resource('secrets').check('list').reason() == 'RBAC: role.rbac.authorization.k8s.io "none" not found'""",
    ),
    checked("a path", policy(rule("!authorizer.path('/healthz').check('get').allowed()")), binding()),
    checked(
        "parameters by selector",
        post(SECRETS, {**secret("one"), "metadata": {"name": "one", "labels": {"params": "yes"}}}),
        post(SECRETS, {**secret("two"), "metadata": {"name": "two", "labels": {"params": "no"}}}),
        policy(
            rule(
                "params.metadata.name != 'one'", messageExpression="params.metadata.name + ' ' + params.kind"
            ),
            paramKind=SECRET,
        ),
        binding(paramRef={"selector": {"matchLabels": {"params": "yes"}}, "parameterNotFoundAction": "Deny"}),
    ),
    checked(
        "no parameters by selector",
        policy(rule("true"), paramKind=SECRET),
        binding(
            paramRef={"selector": {"matchLabels": {"params": "none"}}, "parameterNotFoundAction": "Deny"}
        ),
    ),
    checked(
        "parameters of another namespace",
        post("/api/v1/namespaces/default/secrets", secret("params-{ns}")),
        policy(rule("params.metadata.namespace == 'default' && false"), paramKind=SECRET),
        binding(paramRef={"name": "params-{ns}", "namespace": "default", "parameterNotFoundAction": "Deny"}),
    ),
    checked(
        "a namespace for parameters of the cluster",
        policy(rule("true"), paramKind={"apiVersion": "v1", "kind": "Namespace"}),
        binding(paramRef={"name": "default", "namespace": "default", "parameterNotFoundAction": "Deny"}),
    ),
    checked(
        "a kind of parameters that does not exist",
        policy(rule("true"), paramKind={"apiVersion": "none.example.com/v1", "kind": "None"}),
        binding(),
    ),
    checked(
        "a binding without parameters", policy(rule("params == null && false"), paramKind=SECRET), binding()
    ),
    checked(
        "the namespace is not known to conditions",
        policy(rule("false"), matchConditions=[named("a", "namespaceObject == null")]),
        binding(),
    ),
    checked(
        "labels of the namespace", policy(rule("namespaceObject.metadata.labels['none'] == ''")), binding()
    ),
    checked(
        "a variable that is null",
        policy(rule("variables.old == null && false"), variables=[named("old", "oldObject")]),
        binding(),
    ),
    checked(
        "an audit annotation that fails",
        policy(auditAnnotations=[{"key": "a", "valueExpression": "string(object.data.none)"}]),
        binding("Audit"),
    ),
    checked(
        "an audit annotation that fails and is ignored",
        policy(
            auditAnnotations=[{"key": "a", "valueExpression": "string(object.data.none)"}],
            failurePolicy="Ignore",
        ),
        binding("Audit"),
    ),
    checked(
        "an expression that fails with a warning", policy(rule("object.data.none == '1'")), binding("Warn")
    ),
    checked(
        "a message that is too long",
        policy(
            rule(
                "false",
                message="short",
                messageExpression="'x'.join(['" + "y" * 40 + "']) + '" + "z" * 5200 + "'",
            )
        ),
        binding(),
    ),
    checked("a message with two lines", policy(rule("false", messageExpression="'a\\nb'")), binding()),
    checked(
        "an expression that costs too much",
        policy(rule("lists.range(2000).all(x, lists.range(2000).all(y, x + y >= 0))")),
        binding(),
    ),
    checked(
        "expressions that cost too much together",
        policy(*(rule("lists.range(300).all(x, lists.range(300).all(y, x + y >= 0))") for _ in range(30))),
        binding(),
    ),
    checked(
        "an update of its own expressions",
        policy(rule("false", message="first")),
        binding(),
        then=(
            merge(f"{POLICIES}/p-{{ns}}", {"spec": {"validations": [{"expression": "none"}]}}),
            merge(f"{POLICIES}/p-{{ns}}", {"spec": {"validations": [{"expression": "true"}]}}),
        ),
    ),
    checked(
        "a rule for other names",
        policy(
            rule("false"),
            matchConstraints={
                "resourceRules": [{**rules()[0], "resourceNames": ["two"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}},
            },
        ),
        binding(),
        then=(post(CONFIGMAPS, configmap("two")),),
    ),
    checked(
        "user, groups and extra of the request",
        policy(
            rule(
                "false",
                messageExpression="request.userInfo.username + ' ' + request.userInfo.groups.join(',') + ' ' + "
                "request.userInfo.uid + ' ' + request.userInfo.extra['scopes'].join(',')",
            )
        ),
        binding(),
        then=(as_user(post(CONFIGMAPS, configmap("two")), "jane", "system:masters", uid="u-1", scopes="a"),),
    ),
]
CASES = [*REJECTED, *EVALUATED]
