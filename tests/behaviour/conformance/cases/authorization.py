"""RBAC: what roles allow, who has them, what reviews answer, and who may grant them."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    DEPLOYMENTS,
    PODS,
    WIDGETS,
    apply,
    as_user,
    case,
    configmap,
    delete,
    get,
    merge,
    post,
    put,
)
from tests.behaviour.conformance.exchange import Call, Case

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = RBAC + "/namespaces/{ns}/roles"
BINDINGS = RBAC + "/namespaces/{ns}/rolebindings"
CLUSTER_ROLES = RBAC + "/clusterroles"
CLUSTER_BINDINGS = RBAC + "/clusterrolebindings"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
REVIEWS = AUTHORIZATION + "/subjectaccessreviews"
GROUP = "rbac.authorization.k8s.io"
USER = "jane-{ns}"
MARKER = {"apiGroups": ["marker.example.com"], "resources": ["markers"], "verbs": ["get"]}

Object = dict[str, Any]


def rule(verbs: str, resources: str, *, groups: str = "", names: str = "") -> Object:
    made: Object = {
        "verbs": verbs.split(),
        "resources": resources.split(),
        "apiGroups": groups.split() or [""],
    }
    if names:
        made["resourceNames"] = names.split()
    return made


def paths(verbs: str, urls: str) -> Object:
    return {"verbs": verbs.split(), "nonResourceURLs": urls.split()}


def role(*rules: Object, name: str = "one", **fields: Any) -> Object:
    return {"metadata": {"name": name, **fields.pop("metadata", {})}, "rules": list(rules), **fields}


def reference(kind: str, name: str) -> Object:
    return {"apiGroup": GROUP, "kind": kind, "name": name}


def user(name: str = USER) -> Object:
    return {"kind": "User", "apiGroup": GROUP, "name": name}


def group(name: str) -> Object:
    return {"kind": "Group", "apiGroup": GROUP, "name": name}


def account(name: str, **fields: str) -> Object:
    return {"kind": "ServiceAccount", "name": name, **fields}


def binding(to: Object, *subjects: Object, name: str = "one") -> Object:
    return {"metadata": {"name": name}, "roleRef": to, "subjects": list(subjects)}


def review(subject: str = USER, groups: tuple[str, ...] = (), until: str = "", **attributes: str) -> Call:
    spec: Object = {"user": subject, "resourceAttributes": attributes}
    if groups:
        spec["groups"] = list(groups)
    return post(REVIEWS, {"spec": spec}, until=until)


def settled(
    subject: str = USER, groups: tuple[str, ...] = (), namespace: str = "{ns}", allowed: bool = True
) -> Call:
    """Wait until the engine applies the marker rule: the real one reads roles from a cache."""
    return review(
        subject,
        groups,
        f'"allowed":{str(allowed).lower()}',
        namespace=namespace,
        verb="get",
        group="marker.example.com",
        resource="markers",
    )


def with_role(name: str, *rules: Object, then: tuple[Call, ...]) -> Case:
    """Return a case in which a user has these rules in the namespace and sends requests."""
    return case(
        name,
        post(ROLES, role(MARKER, *rules)),
        post(BINDINGS, binding(reference("Role", "one"), user())),
        settled(),
        *(as_user(call, USER) for call in then),
    )


def with_cluster_role(name: str, *rules: Object, then: tuple[Call, ...]) -> Case:
    """Return a case in which a user has these rules everywhere and sends requests."""
    return case(
        name,
        post(CLUSTER_ROLES, role(MARKER, *rules, name="one-{ns}")),
        post(CLUSTER_BINDINGS, binding(reference("ClusterRole", "one-{ns}"), user(), name="one-{ns}")),
        settled(),
        *(as_user(call, USER) for call in then),
    )


ONE, TWO = f"{CONFIGMAPS}/one", f"{CONFIGMAPS}/two"
ALL_CONFIGMAPS = "/api/v1/configmaps"

REQUESTS = [
    with_role(
        "a role allows its verb and no other",
        rule("get", "configmaps"),
        then=(get(ONE), get(CONFIGMAPS), get(CONFIGMAPS, "watch=true&timeoutSeconds=1"), delete(ONE)),
    ),
    with_role(
        "a role allows its resource and no other",
        rule("get list", "configmaps"),
        then=(get(CONFIGMAPS), get("/api/v1/namespaces/{ns}/secrets"), get(PODS)),
    ),
    with_role(
        "a role allows its group and no other",
        rule("list", "deployments", groups="apps"),
        then=(get(DEPLOYMENTS), get("/apis/batch/v1/namespaces/{ns}/jobs")),
    ),
    with_role(
        "a role in one namespace allows nothing in another",
        rule("*", "*", groups="*"),
        then=(get(CONFIGMAPS), get("/api/v1/namespaces/default/configmaps"), get(ALL_CONFIGMAPS)),
    ),
    with_role(
        "a star allows every verb",
        rule("*", "configmaps"),
        then=(post(CONFIGMAPS, configmap()), get(ONE), merge(ONE, {"data": {"a": "1"}}), delete(CONFIGMAPS)),
    ),
    with_role(
        "a star allows every resource of a group",
        rule("list", "*"),
        then=(get(CONFIGMAPS), get(PODS), get(DEPLOYMENTS)),
    ),
    with_role(
        "a star allows every group",
        rule("list", "widgets deployments", groups="*"),
        then=(get(WIDGETS), get(DEPLOYMENTS)),
    ),
    with_role(
        "a resource does not include its subresources",
        rule("get", "pods"),
        then=(get(f"{PODS}/one"), get(f"{PODS}/one/log"), get(f"{PODS}/one/status")),
    ),
    with_role(
        "a subresource does not include its resource",
        rule("get", "pods/status"),
        then=(get(f"{PODS}/one/status"), get(f"{PODS}/one")),
    ),
    with_role(
        "a star of resources includes subresources",
        rule("get", "*"),
        then=(get(f"{PODS}/one/status"), get(f"{PODS}/one/log")),
    ),
    with_role(
        "a subresource of every resource",
        rule("get", "*/scale", groups="apps"),
        then=(get(f"{DEPLOYMENTS}/one/scale"), get(f"{DEPLOYMENTS}/one/status"), get(f"{DEPLOYMENTS}/one")),
    ),
    with_role(
        "a resource with all its subresources is not a form that matches",
        rule("get", "deployments/*", groups="apps"),
        then=(get(f"{DEPLOYMENTS}/one/scale"), get(f"{DEPLOYMENTS}/one")),
    ),
    with_role(
        "a name allows one object",
        rule("get delete", "configmaps", names="one"),
        then=(get(ONE), get(TWO), delete(TWO), delete(ONE)),
    ),
    with_role(
        "a name does not allow a list",
        rule("list watch", "configmaps", names="one"),
        then=(get(CONFIGMAPS), get(CONFIGMAPS, "fieldSelector=metadata.name%3Dtwo")),
    ),
    with_role(
        "a name allows a list of that name",
        rule("list watch", "configmaps", names="one"),
        then=(
            get(CONFIGMAPS, "fieldSelector=metadata.name%3Done"),
            get(CONFIGMAPS, "fieldSelector=metadata.name%3D%3Done"),
        ),
    ),
    with_role(
        "a name does not allow a create",
        rule("create", "configmaps", names="one"),
        then=(post(CONFIGMAPS, configmap()),),
    ),
    with_role(
        "a name does not allow a deletion of all",
        rule("deletecollection", "configmaps", names="one"),
        then=(delete(CONFIGMAPS),),
    ),
    with_role(
        "update is not patch",
        rule("create get update", "configmaps"),
        then=(
            post(CONFIGMAPS, configmap()),
            put(ONE, configmap(data={"a": "1"})),
            merge(ONE, {"data": {"a": "2"}}),
        ),
    ),
    with_role(
        "patch is not update",
        rule("create patch", "configmaps"),
        then=(
            post(CONFIGMAPS, configmap()),
            merge(ONE, {"data": {"a": "2"}}),
            put(ONE, configmap(data={"a": "1"})),
        ),
    ),
    with_role(
        "an apply that creates needs the right to create",
        rule("patch", "configmaps"),
        then=(apply(ONE, configmap(data={"a": "1"})),),
    ),
    with_role(
        "an apply that changes needs no right to create",
        rule("patch", "configmaps"),
        rule("create", "configmaps"),
        then=(apply(ONE, configmap(data={"a": "1"})), apply(ONE, configmap(data={"a": "2"}))),
    ),
    with_role(
        "a right to create in general does not create one with another verb",
        rule("create", "configmaps"),
        then=(post(CONFIGMAPS, configmap()), apply(ONE, configmap(data={"a": "1"}))),
    ),
    with_role(
        "delete is not deletecollection",
        rule("delete", "configmaps"),
        then=(delete(ONE), delete(CONFIGMAPS)),
    ),
    with_role(
        "deletecollection is not delete",
        rule("deletecollection", "configmaps"),
        then=(delete(CONFIGMAPS), delete(ONE)),
    ),
    with_role(
        "a custom resource has rights like any other",
        rule("list", "widgets", groups="conformance.kapsa.dev"),
        then=(get(WIDGETS), get(f"{WIDGETS}/one")),
    ),
    with_role(
        "a resource that does not exist is forbidden before it is missing",
        rule("get", "pods"),
        then=(get("/api/v1/namespaces/{ns}/nothings/one"), get("/apis/nobody.example.com/v1/things")),
    ),
    with_role(
        "a resource that does not exist is missing for a user with rights to it",
        rule("get", "nothings"),
        then=(get("/api/v1/namespaces/{ns}/nothings/one"),),
    ),
    with_role(
        "a role in a namespace allows requests about the namespace",
        rule("get delete", "namespaces"),
        then=(get("/api/v1/namespaces/{ns}"), get("/api/v1/namespaces"), get("/api/v1/namespaces/default")),
    ),
    with_role(
        "a role that names a wrong group allows nothing",
        rule("get", "configmaps", groups="apps"),
        then=(get(ONE),),
    ),
    with_role(
        "verbs are compared as they are",
        rule("GET Get", "configmaps"),
        then=(get(ONE),),
    ),
    with_role(
        "rules add up",
        rule("get", "configmaps"),
        rule("list", "configmaps"),
        then=(get(ONE), get(CONFIGMAPS)),
    ),
    with_role(
        "a verb and a resource of two rules do not add up",
        rule("get", "configmaps"),
        rule("list", "pods"),
        then=(get(CONFIGMAPS), get(f"{PODS}/one")),
    ),
    with_cluster_role(
        "a cluster role allows requests in every namespace and in none",
        rule("list", "configmaps nodes"),
        then=(
            get("/api/v1/nodes", "limit=1&fieldSelector=metadata.name%3Dnone"),
            get("/api/v1/namespaces/{ns}/configmaps"),
        ),
    ),
    with_cluster_role(
        "a cluster role allows a path",
        paths("get", "/example/here"),
        then=(get("/example/here"), get("/example/there"), post("/example/here", {})),
    ),
    with_cluster_role(
        "a cluster role allows paths below one",
        paths("get", "/example/*"),
        then=(get("/example/here"), get("/example/a/b"), get("/example"), get("/examples")),
    ),
    with_cluster_role(
        "a star allows every path",
        paths("*", "*"),
        then=(get("/example"), post("/example", {}), get("/metrics/x")),
    ),
    with_cluster_role(
        "a path does not allow a resource",
        paths("*", "/api/v1/namespaces/*"),
        then=(get(CONFIGMAPS), get("/api/v1/namespaces")),
    ),
    with_cluster_role(
        "a path with a star in the middle is compared as it is",
        paths("get", "/a/*/c"),
        then=(get("/a/b/c"), get("/a/*/c")),
    ),
]

SUBJECTS = [
    case(
        "a user without roles",
        *(
            as_user(call, USER)
            for call in (
                get(CONFIGMAPS),
                get(ONE),
                get("/api/v1/nodes"),
                get("/api/v1/nodes/one"),
                post(CONFIGMAPS, configmap()),
                put(ONE, configmap()),
                merge(ONE, {}),
                delete(ONE),
                delete(CONFIGMAPS),
                get(DEPLOYMENTS),
                get(f"{DEPLOYMENTS}/one/scale"),
                get("/metrics"),
                get("/api/v1/namespaces/{ns}"),
                get("/api/v1/namespaces/{ns}/status"),
            )
        ),
    ),
    case(
        "every authenticated user can discover and ask about themselves",
        *(
            as_user(call, USER)
            for call in (
                get("/api"),
                get("/readyz"),
                get("/healthz"),
                get("/livez"),
                post(
                    AUTHORIZATION + "/selfsubjectaccessreviews",
                    {"spec": {"resourceAttributes": {"verb": "get"}}},
                ),
                post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}),
            )
        ),
    ),
    case(
        "an unauthenticated user can see the version and little else",
        *(
            as_user(call, "system:anonymous")
            for call in (
                get("/readyz"),
                get("/healthz"),
                get("/api"),
                get("/openapi/v3"),
                get(CONFIGMAPS),
                post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}),
            )
        ),
    ),
    case(
        "a group has the rights of its members",
        post(ROLES, role(MARKER, rule("list", "configmaps"))),
        post(BINDINGS, binding(reference("Role", "one"), group("team-{ns}"))),
        settled(groups=("team-{ns}",)),
        as_user(get(CONFIGMAPS), USER, "team-{ns}"),
        as_user(get(CONFIGMAPS), USER, "other", "team-{ns}"),
        as_user(get(CONFIGMAPS), USER, "other"),
        as_user(get(CONFIGMAPS), "team-{ns}"),
    ),
    case(
        "a service account of another namespace",
        post(ROLES, role(MARKER, rule("list", "configmaps"))),
        post(BINDINGS, binding(reference("Role", "one"), account("robot", namespace="elsewhere"))),
        settled("system:serviceaccount:elsewhere:robot"),
        as_user(get(CONFIGMAPS), "system:serviceaccount:elsewhere:robot"),
        as_user(get(CONFIGMAPS), "system:serviceaccount:{ns}:robot"),
    ),
    case(
        "the groups of a service account",
        post(ROLES, role(MARKER, rule("list", "configmaps"))),
        post(BINDINGS, binding(reference("Role", "one"), group("system:serviceaccounts:{ns}"))),
        settled(groups=("system:serviceaccounts:{ns}",)),
        as_user(get(CONFIGMAPS), "system:serviceaccount:{ns}:robot"),
        as_user(get(CONFIGMAPS), "system:serviceaccount:default:robot"),
    ),
    case(
        "a service account as a user",
        post(ROLES, role(MARKER, rule("list", "configmaps"))),
        post(BINDINGS, binding(reference("Role", "one"), user("system:serviceaccount:{ns}:robot"))),
        settled("system:serviceaccount:{ns}:robot"),
        as_user(get(CONFIGMAPS), "system:serviceaccount:{ns}:robot"),
    ),
    case(
        "a cluster role bound in a namespace counts there only",
        post(CLUSTER_ROLES, role(MARKER, rule("list", "configmaps nodes"), name="one-{ns}")),
        post(BINDINGS, binding(reference("ClusterRole", "one-{ns}"), user())),
        settled(),
        as_user(get(CONFIGMAPS), USER),
        as_user(get(ALL_CONFIGMAPS), USER),
        as_user(get("/api/v1/nodes"), USER),
    ),
    case(
        "a binding to a role that does not exist",
        post(BINDINGS, binding(reference("Role", "missing"), user())),
        review(until="not found", namespace="{ns}", verb="get", resource="pods"),
        as_user(get(CONFIGMAPS), USER),
        as_user(post(AUTHORIZATION + "/selfsubjectrulesreviews", {"spec": {"namespace": "{ns}"}}), USER),
    ),
    case(
        "a binding to a cluster role that does not exist",
        post(BINDINGS, binding(reference("ClusterRole", "missing"), user())),
        review(until="not found", namespace="{ns}", verb="get", resource="pods"),
        as_user(get(f"{CONFIGMAPS}/one"), USER),
    ),
    case(
        "the rights end with the binding",
        post(ROLES, role(MARKER, rule("list", "configmaps"))),
        post(BINDINGS, binding(reference("Role", "one"), user())),
        settled(),
        as_user(get(CONFIGMAPS), USER),
        delete(f"{BINDINGS}/one"),
        settled(allowed=False),
        as_user(get(CONFIGMAPS), USER),
    ),
    case(
        "the rights follow the role",
        post(ROLES, role(rule("list", "configmaps"))),
        post(BINDINGS, binding(reference("Role", "one"), user())),
        put(f"{ROLES}/one", role(MARKER, rule("list", "secrets"))),
        settled(),
        as_user(get(CONFIGMAPS), USER),
        as_user(get("/api/v1/namespaces/{ns}/secrets"), USER),
    ),
    case(
        "the rights follow the subjects",
        post(ROLES, role(MARKER, rule("list", "configmaps"))),
        post(BINDINGS, binding(reference("Role", "one"), user())),
        settled(),
        put(f"{BINDINGS}/one", binding(reference("Role", "one"), user("john-{ns}"))),
        settled("john-{ns}"),
        settled(allowed=False),
        as_user(get(CONFIGMAPS), USER),
        as_user(get(CONFIGMAPS), "john-{ns}"),
    ),
    case(
        "the privileged group needs no role",
        as_user(get(CONFIGMAPS), USER, "system:masters"),
        as_user(get("/anything"), USER, "system:masters"),
        as_user(get(CONFIGMAPS), "system:masters"),
    ),
    case(
        "a message escapes what looks like a tag",
        as_user(get(CONFIGMAPS), "<b>jane & joe</b>"),
    ),
]

SELF = AUTHORIZATION + "/selfsubjectaccessreviews"
RULES = AUTHORIZATION + "/selfsubjectrulesreviews"
LOCAL = AUTHORIZATION + "/namespaces/{ns}/localsubjectaccessreviews"


def granted(*rules: Object) -> tuple[Call, ...]:
    return (
        post(ROLES, role(MARKER, *rules)),
        post(BINDINGS, binding(reference("Role", "one"), user())),
        settled(),
    )


def resource_spec(**attributes: str) -> Object:
    return {"spec": {"resourceAttributes": {"namespace": "{ns}", **attributes}}}


def selecting(**selectors: Object) -> Call:
    """Return a review of a list with selectors."""
    attributes = {"namespace": "{ns}", "verb": "list", "resource": "pods", **selectors}
    return post(REVIEWS, {"spec": {"user": USER, "resourceAttributes": attributes}})


REVIEW_CASES = [
    case(
        "a review with selectors that say nothing, or two things",
        selecting(fieldSelector={}),
        selecting(labelSelector={}),
        selecting(fieldSelector={"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "Exists"}]}),
        selecting(labelSelector={"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "Exists"}]}),
    ),
    case(
        "a review with broken requirements",
        selecting(fieldSelector={"requirements": [{"key": "", "operator": "In"}]}),
        selecting(fieldSelector={"requirements": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
        selecting(labelSelector={"requirements": [{"key": "not a key", "operator": "In", "values": ["b"]}]}),
    ),
    case(
        "a review with several errors lists each",
        post(REVIEWS, {"spec": {}}),
        post(LOCAL, {"spec": {"nonResourceAttributes": {"path": "/version", "verb": "get"}}}),
        post(LOCAL, {"spec": {"resourceAttributes": {"namespace": "other", "verb": "get"}}}),
        post(SELF, {"spec": {}}),
    ),
    case(
        "a list by name is authorized for the name that the selector requires",
        *granted(rule("list", "configmaps", names="one")),
        as_user(get(CONFIGMAPS, "fieldSelector=metadata.name==one"), USER),
        as_user(get(CONFIGMAPS, "fieldSelector=metadata.namespace!=x,metadata.name=one"), USER),
        as_user(get(CONFIGMAPS, "fieldSelector=metadata.name=one%5C,two"), USER),
        as_user(get(CONFIGMAPS, "fieldSelector=metadata.name!=one"), USER),
        as_user(get(CONFIGMAPS, "fieldSelector=metadata.name%20=%20one"), USER),
        as_user(get(CONFIGMAPS, "fieldSelector=metadata.name=one,metadata.name=two"), USER),
    ),
    case(
        "a review of a user names the binding that allows",
        *granted(rule("get", "pods")),
        review(namespace="{ns}", verb="get", resource="pods"),
        review(namespace="{ns}", verb="get", resource="pods", subresource="log"),
        review(namespace="{ns}", verb="list", resource="pods"),
        review(namespace="default", verb="get", resource="pods"),
    ),
    case(
        "a review of a group",
        post(ROLES, role(MARKER)),
        post(BINDINGS, binding(reference("Role", "one"), user(), group("team-{ns}"))),
        settled(groups=("team-{ns}",), subject="nobody"),
        post(REVIEWS, {"spec": {"groups": ["team-{ns}"], **resource_spec(verb="get")["spec"]}}),
    ),
    case(
        "a review of a service account",
        post(ROLES, role(MARKER)),
        post(BINDINGS, binding(reference("Role", "one"), account("robot", namespace="{ns}"))),
        settled("system:serviceaccount:{ns}:robot"),
    ),
    case(
        "a review by a cluster binding",
        post(CLUSTER_ROLES, role(MARKER, rule("get", "pods"), name="one-{ns}")),
        post(CLUSTER_BINDINGS, binding(reference("ClusterRole", "one-{ns}"), user(), name="one-{ns}")),
        settled(),
        review(verb="get", resource="pods"),
        review(namespace="{ns}", verb="get", resource="pods", name="one"),
    ),
    case(
        "a review of a name",
        *granted(rule("get", "pods", names="one")),
        review(namespace="{ns}", verb="get", resource="pods", name="one"),
        review(namespace="{ns}", verb="get", resource="pods", name="two"),
        review(namespace="{ns}", verb="get", resource="pods"),
    ),
    case(
        "a review of a star",
        *granted(rule("*", "pods"), rule("get", "*", groups="apps")),
        review(namespace="{ns}", verb="*", resource="pods"),
        review(namespace="{ns}", verb="*", resource="*"),
        review(namespace="{ns}", verb="get", resource="*", group="apps"),
        review(namespace="{ns}", verb="get", resource="pods", group="*"),
    ),
    case(
        "a review of a path",
        post(REVIEWS, {"spec": {"user": USER, "nonResourceAttributes": {"path": "/version", "verb": "get"}}}),
        post(
            REVIEWS,
            {
                "spec": {
                    "user": USER,
                    "groups": ["system:unauthenticated"],
                    "nonResourceAttributes": {"path": "/healthz", "verb": "get"},
                }
            },
        ),
        post(REVIEWS, {"spec": {"user": USER, "nonResourceAttributes": {"path": "/nothing", "verb": "get"}}}),
    ),
    case(
        "a review of the privileged group has no reason",
        review(groups=("system:masters",), verb="delete", resource="nodes"),
    ),
    case(
        "a review of oneself",
        *granted(rule("get", "pods")),
        as_user(post(SELF, resource_spec(verb="get", resource="pods")), USER),
        as_user(post(SELF, resource_spec(verb="list", resource="pods")), USER),
        post(SELF, resource_spec(verb="delete", resource="pods")),
    ),
    case(
        "a local review",
        *granted(rule("get", "pods")),
        post(LOCAL, {"spec": {"user": USER, **resource_spec(verb="get", resource="pods")["spec"]}}),
        post(LOCAL, {"spec": {"user": USER, **resource_spec(verb="list", resource="pods")["spec"]}}),
    ),
    case(
        "a review of others is a right of its own",
        as_user(review(verb="get", resource="pods"), USER),
        as_user(post(LOCAL, {"spec": {"user": USER, **resource_spec(verb="get")["spec"]}}), USER),
    ),
    case(
        "the rules of oneself",
        *granted(rule("get list", "pods pods/log", names="one"), rule("*", "*", groups="apps")),
        as_user(post(RULES, {"spec": {"namespace": "{ns}"}}), USER),
        as_user(post(RULES, {"spec": {"namespace": "default"}}), USER),
    ),
    case(
        "the rules of a cluster role",
        post(CLUSTER_ROLES, role(MARKER, paths("get", "/example"), name="one-{ns}")),
        post(CLUSTER_BINDINGS, binding(reference("ClusterRole", "one-{ns}"), user(), name="one-{ns}")),
        settled(),
        as_user(post(RULES, {"spec": {"namespace": "default"}}), USER),
    ),
    case("the rules of the administrator", post(RULES, {"spec": {"namespace": "{ns}"}})),
    case(
        "the rules of an unauthenticated user",
        as_user(post(RULES, {"spec": {"namespace": "{ns}"}}), "system:anonymous"),
    ),
]


def writer(*rules: Object) -> tuple[Call, ...]:
    """Return the calls that give the user the right to write roles, and these rules."""
    return granted(rule("*", "roles rolebindings", groups=GROUP), *rules)


def by_user(*calls: Call) -> tuple[Call, ...]:
    return tuple(as_user(call, USER, "team", "system:authenticated") for call in calls)


PODS_ROLE = role(rule("get list", "pods"), name="two")

ESCALATION = [
    case(
        "a user can grant what they have",
        *writer(rule("get list", "pods")),
        *by_user(post(ROLES, PODS_ROLE), post(ROLES, role(rule("get", "pods", names="x"), name="three"))),
    ),
    case("a user cannot grant what they lack", *writer(), *by_user(post(ROLES, PODS_ROLE))),
    case(
        "a user cannot grant more than they have",
        *writer(rule("get", "pods", names="one"), rule("get", "secrets")),
        *by_user(
            post(ROLES, PODS_ROLE),
            post(ROLES, role(rule("get", "pods", names="one two"), name="two")),
            post(ROLES, role(rule("*", "secrets"), name="two")),
            post(ROLES, role(rule("get", "*"), name="two")),
            post(ROLES, role(rule("get", "secrets", groups="*"), name="two")),
            post(ROLES, role(rule("get", "secrets/status"), name="two")),
        ),
    ),
    case(
        "a star covers all that it stands for",
        *writer(rule("*", "*"), rule("get", "*/scale", groups="apps")),
        *by_user(
            post(ROLES, role(rule("get delete", "pods pods/log"), name="two")),
            post(ROLES, role(rule("get", "deployments/scale", groups="apps"), name="three")),
            post(ROLES, role(rule("get", "deployments", groups="apps"), name="four")),
        ),
    ),
    case(
        "an error lists each missing rule",
        *writer(),
        *by_user(
            post(
                ROLES,
                role(
                    rule("list get", "pods secrets"),
                    rule("watch", "pods"),
                    rule("get", "configmaps", names="b a"),
                    rule("get", "deployments", groups="apps extensions"),
                    name="two",
                ),
            )
        ),
    ),
    case(
        "a user who may escalate can grant anything",
        *writer(rule("escalate", "roles", groups=GROUP)),
        *by_user(post(ROLES, PODS_ROLE), put(f"{ROLES}/two", role(rule("*", "*", groups="*"), name="two"))),
    ),
    case(
        "a right to escalate one role does not create it",
        *granted(
            rule("create update patch", "roles", groups=GROUP),
            rule("escalate", "roles", groups=GROUP, names="two"),
        ),
        *by_user(post(ROLES, PODS_ROLE)),
        post(ROLES, PODS_ROLE),
        *by_user(put(f"{ROLES}/two", role(rule("*", "*", groups="*"), name="two"))),
    ),
    case(
        "a change of a role is checked",
        post(ROLES, PODS_ROLE),
        *granted(rule("update patch get", "roles", groups=GROUP)),
        *by_user(
            merge(f"{ROLES}/two", {"rules": [rule("get", "secrets")]}),
            put(f"{ROLES}/two", role(rule("get", "secrets"), name="two")),
            merge(f"{ROLES}/two", {"metadata": {"labels": {"a": "1"}}}),
            merge(f"{ROLES}/two", {"rules": []}),
        ),
    ),
    case(
        "finalizers and owners of a role are not checked",
        post(ROLES, PODS_ROLE),
        *granted(rule("update patch get", "roles", groups=GROUP)),
        *by_user(merge(f"{ROLES}/two", {"metadata": {"finalizers": ["example.com/x"]}})),
        merge(f"{ROLES}/two", {"metadata": {"finalizers": None}}),
    ),
    case(
        "an apply of a role is checked",
        *granted(rule("patch create", "roles", groups=GROUP)),
        *by_user(apply(f"{ROLES}/two", {"apiVersion": f"{GROUP}/v1", "kind": "Role", **PODS_ROLE})),
    ),
    case(
        "a user can bind a role whose rules they have",
        post(ROLES, PODS_ROLE),
        *writer(rule("get list watch", "pods")),
        *by_user(post(BINDINGS, binding(reference("Role", "two"), user("joe"), name="two"))),
    ),
    case(
        "a user cannot bind a role whose rules they lack",
        post(ROLES, PODS_ROLE),
        *granted(rule("create", "rolebindings", groups=GROUP)),
        *by_user(post(BINDINGS, binding(reference("Role", "two"), user("joe"), name="two"))),
    ),
    case(
        "a user cannot bind a cluster role whose rules they lack",
        *granted(rule("create", "rolebindings", groups=GROUP)),
        *by_user(
            post(BINDINGS, binding(reference("ClusterRole", "system:basic-user"), user("joe"), name="two"))
        ),
    ),
    case(
        "a user cannot bind a role that does not exist",
        *granted(rule("create", "rolebindings", groups=GROUP)),
        *by_user(
            post(BINDINGS, binding(reference("Role", "none"), user("joe"), name="two")),
            post(BINDINGS, binding(reference("ClusterRole", "none"), user("joe"), name="two")),
        ),
    ),
    case(
        "a user who may bind a role can bind it",
        post(ROLES, PODS_ROLE),
        *granted(
            rule("create", "rolebindings", groups=GROUP), rule("bind", "roles", groups=GROUP, names="two")
        ),
        *by_user(
            post(BINDINGS, binding(reference("Role", "two"), user("joe"), name="two")),
            post(BINDINGS, binding(reference("ClusterRole", "system:basic-user"), user("joe"), name="three")),
        ),
    ),
    case(
        "a user who may bind a cluster role in a namespace can bind it there",
        *granted(
            rule("create", "rolebindings", groups=GROUP),
            rule("bind", "clusterroles", groups=GROUP, names="system:basic-user"),
        ),
        *by_user(
            post(BINDINGS, binding(reference("ClusterRole", "system:basic-user"), user("joe"), name="two")),
            post(
                CLUSTER_BINDINGS,
                binding(reference("ClusterRole", "system:basic-user"), user("joe"), name="x-{ns}"),
            ),
        ),
    ),
    case(
        "new subjects of a binding are checked",
        post(ROLES, PODS_ROLE),
        post(BINDINGS, binding(reference("Role", "two"), user("joe"), name="two")),
        *granted(rule("update patch", "rolebindings", groups=GROUP)),
        *by_user(
            put(f"{BINDINGS}/two", binding(reference("Role", "two"), user("jim"), name="two")),
            merge(f"{BINDINGS}/two", {"metadata": {"labels": {"a": "1"}}}),
        ),
    ),
    case(
        "a cluster role is checked",
        post(CLUSTER_ROLES, role(MARKER, rule("create", "clusterroles", groups=GROUP), name="one-{ns}")),
        post(CLUSTER_BINDINGS, binding(reference("ClusterRole", "one-{ns}"), user(), name="one-{ns}")),
        settled(),
        *by_user(
            post(CLUSTER_ROLES, role(rule("get", "pods"), paths("get", "/example"), name="two-{ns}")),
            post(CLUSTER_ROLES, role(MARKER, paths("get", "/healthz"), name="three-{ns}")),
        ),
    ),
    case(
        "an aggregation needs all rights",
        post(CLUSTER_ROLES, role(MARKER, rule("create", "clusterroles", groups=GROUP), name="one-{ns}")),
        post(CLUSTER_BINDINGS, binding(reference("ClusterRole", "one-{ns}"), user(), name="one-{ns}")),
        settled(),
        *by_user(
            post(
                CLUSTER_ROLES,
                role(
                    name="two-{ns}",
                    aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"aggregate-{ns}": "true"}}]},
                ),
            )
        ),
    ),
    case(
        "a member of the privileged group can grant anything",
        as_user(post(ROLES, PODS_ROLE), USER, "system:masters"),
    ),
    case(
        "a cluster administrator without the group can grant anything",
        post(CLUSTER_BINDINGS, binding(reference("ClusterRole", "cluster-admin"), user(), name="one-{ns}")),
        review(until='"allowed":true', verb="get", resource="pods"),
        *by_user(
            post(ROLES, PODS_ROLE),
            post(BINDINGS, binding(reference("ClusterRole", "cluster-admin"), user("joe"), name="two")),
        ),
        delete(CLUSTER_BINDINGS + "/one-{ns}"),
    ),
]


def stored(path: str) -> Call:
    return get(path, accept="application/json")


BOOTSTRAP = [
    case(
        "the default cluster roles",
        *(
            stored(f"{CLUSTER_ROLES}/{name}")
            for name in (
                "cluster-admin",
                "admin",
                "edit",
                "view",
                "system:aggregate-to-view",
                "system:basic-user",
                "system:discovery",
                "system:public-info-viewer",
                "system:node",
                "system:kube-scheduler",
                "system:controller:job-controller",
            )
        ),
    ),
    case(
        "the default cluster role bindings",
        *(
            stored(f"{CLUSTER_BINDINGS}/{name}")
            for name in (
                "cluster-admin",
                "system:discovery",
                "system:node",
                "system:controller:job-controller",
            )
        ),
    ),
    case(
        "the default roles of kube-system",
        stored(RBAC + "/namespaces/kube-system/roles/extension-apiserver-authentication-reader"),
        stored(
            RBAC + "/namespaces/kube-system/rolebindings/system::extension-apiserver-authentication-reader"
        ),
    ),
    case(
        "the default priority classes",
        stored("/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical"),
        stored("/apis/scheduling.k8s.io/v1/priorityclasses/system-cluster-critical"),
    ),
    case(
        "the default flow schemas and priority levels",
        stored("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/catch-all"),
        stored("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/exempt"),
        stored("/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/workload-low"),
    ),
    case(
        "the default API services",
        stored("/apis/apiregistration.k8s.io/v1/apiservices/v1."),
        stored("/apis/apiregistration.k8s.io/v1/apiservices/v1.apps"),
        stored("/apis/apiregistration.k8s.io/v1/apiservices/v2.autoscaling"),
    ),
    case(
        "the address of the service kubernetes",
        stored("/apis/networking.k8s.io/v1/servicecidrs/kubernetes"),
        stored("/apis/networking.k8s.io/v1/ipaddresses/10.96.0.1"),
    ),
    case(
        "the default namespaces",
        *(
            stored(f"/api/v1/namespaces/{name}")
            for name in ("default", "kube-system", "kube-public", "kube-node-lease")
        ),
    ),
]

AGGREGATION = [
    case(
        "a binding to a service account that cannot exist",
        post(BINDINGS, binding(reference("Role", "one"), account("Upper_Case", namespace="{ns}"))),
    ),
    case(
        "an aggregation without selectors",
        post(CLUSTER_ROLES, {"metadata": {"name": "one-{ns}"}, "aggregationRule": {}}),
        post(
            CLUSTER_ROLES, {"metadata": {"name": "one-{ns}"}, "aggregationRule": {"clusterRoleSelectors": []}}
        ),
    ),
    case(
        "an aggregation with a selector that is not valid",
        *(
            post(
                CLUSTER_ROLES,
                {
                    "metadata": {"name": "one-{ns}"},
                    "aggregationRule": {"clusterRoleSelectors": [{}, selector]},
                },
            )
            for selector in (
                {"matchExpressions": [{"key": "a", "operator": "Bad"}]},
                {"matchExpressions": [{"key": "a", "operator": "In"}]},
                {"matchLabels": {"a": "not valid!"}},
            )
        ),
    ),
]

CASES = [*REQUESTS, *SUBJECTS, *REVIEW_CASES, *ESCALATION, *BOOTSTRAP, *AGGREGATION]
