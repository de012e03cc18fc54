"""The sender of a request: nobody, a service account by its token, a user by impersonation."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.behaviour.conformance.cases.authorization import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    GROUP,
    MARKER,
    ROLES,
    account,
    binding,
    paths,
    reference,
    role,
    rule,
    settled,
    user,
)
from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    PODS,
    SECRETS,
    as_user,
    case,
    configmap,
    delete,
    get,
    merge,
    pod,
    post,
)
from tests.behaviour.conformance.exchange import Call, Case

ACCOUNTS = "/api/v1/namespaces/{ns}/serviceaccounts"
TOKEN = f"{ACCOUNTS}/robot/token"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
REVIEWS = f"{AUTHENTICATION}/tokenreviews"
WHO_AM_I = post(f"{AUTHENTICATION}/selfsubjectreviews", {})
ROBOT = "system:serviceaccount:{ns}:robot"
SERVER = "https://kubernetes.default.svc.cluster.local"
AUTH_GROUP = "authentication.k8s.io"
UNSIGNED_CLAIMS = "eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMuY2x1c3Rlci5sb2NhbCJ9"
"""The issuer of tokens, as the second part of one."""

Object = dict[str, Any]
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def anonymous(call: Call, authorization: str | None = None) -> Call:
    headers = dict(call.headers)
    if authorization is not None:
        headers["Authorization"] = authorization
    return msgspec.structs.replace(call, anonymous=True, headers=headers)


def by_robot(call: Call) -> Call:
    """Return the call with the token that was issued last."""
    return anonymous(call, "Bearer {token}")


def robot() -> Call:
    return post(ACCOUNTS, {"metadata": {"name": "robot"}})


def token(**spec: Any) -> Call:
    return post(TOKEN, {"spec": spec})


def review(text: str = "{token}", *audiences: str, until: str = "") -> Call:
    spec: Object = {"token": text}
    if audiences:
        spec["audiences"] = list(audiences)
    return post(REVIEWS, {"spec": spec}, until=until)


def ended() -> Call:
    """Review the last token until it is refused: the real server learns of a deletion a moment later."""
    return review(until='"error"')


def bound(kind: str, name: str, **fields: str) -> Object:
    return {"kind": kind, "apiVersion": "v1", "name": name, **fields}


CREDENTIALS = [
    case(
        "a request without credentials is anonymous",
        *(
            anonymous(call)
            for call in (
                get("/livez"),
                get("/api"),
                get("/api/v1"),
                get("/nothing"),
                get(CONFIGMAPS),
                get(f"{CONFIGMAPS}/one"),
                post(CONFIGMAPS, configmap()),
                delete(f"{CONFIGMAPS}/one"),
                get("/api/v1/nodes"),
                WHO_AM_I,
            )
        ),
    ),
    case(
        "a token that is not valid is unauthorized",
        *(
            anonymous(call, "Bearer garbage")
            for call in (
                get("/livez"),
                get("/nothing"),
                get(CONFIGMAPS),
                post(CONFIGMAPS, configmap()),
                WHO_AM_I,
            )
        ),
    ),
    case("a token that looks like one is unauthorized", anonymous(get(CONFIGMAPS), "Bearer a.b.c")),
    case(
        "an empty token is none", anonymous(get(CONFIGMAPS), "Bearer"), anonymous(get(CONFIGMAPS), "Bearer ")
    ),
    case("a password is not a token", anonymous(get(CONFIGMAPS), "Basic amFuZTpzZWNyZXQ=")),
    case(
        "a certificate comes before a token",
        Call(method="GET", path=CONFIGMAPS, headers={"Authorization": "Bearer x"}),
    ),
    case("the user of a certificate", WHO_AM_I),
    case(
        "a token in any case of the scheme",
        robot(),
        token(),
        *(anonymous(get(CONFIGMAPS), f"{scheme} {{token}}") for scheme in ("Bearer", "bearer", "BEARER")),
    ),
    case("the user of a token", robot(), token(), by_robot(WHO_AM_I)),
    case(
        "a service account has the rights of its bindings",
        robot(),
        token(),
        by_robot(get(CONFIGMAPS)),
        post(ROLES, role(MARKER, rule("list", "configmaps"))),
        post(BINDINGS, binding(reference("Role", "one"), account("robot", namespace="{ns}"))),
        settled(ROBOT),
        by_robot(get(CONFIGMAPS)),
        by_robot(get(SECRETS)),
        by_robot(get("/api/v1/configmaps")),
    ),
    case(
        "a service account writes in its own name",
        robot(),
        token(),
        post(ROLES, role(MARKER, rule("*", "configmaps"))),
        post(BINDINGS, binding(reference("Role", "one"), account("robot", namespace="{ns}"))),
        settled(ROBOT),
        by_robot(post(CONFIGMAPS, configmap(data={"a": "1"}))),
        by_robot(merge(f"{CONFIGMAPS}/one", {"data": {"b": "2"}})),
        by_robot(delete(f"{CONFIGMAPS}/one")),
    ),
    case(
        "a token with another signature is unauthorized",
        robot(),
        token(),
        anonymous(get(CONFIGMAPS), "Bearer {token}A"),
    ),
    case(
        "a token for another audience is unauthorized",
        robot(),
        token(audiences=["elsewhere"]),
        by_robot(get(CONFIGMAPS)),
    ),
    case(
        "a token for this and another audience",
        robot(),
        token(audiences=["elsewhere", SERVER]),
        by_robot(get(CONFIGMAPS)),
        review(),
        review("{token}", "elsewhere"),
    ),
    case(
        "a token ends with its service account",
        robot(),
        token(),
        delete(f"{ACCOUNTS}/robot"),
        ended(),
        by_robot(get(CONFIGMAPS)),
    ),
    case(
        "a token does not belong to another account of the same name",
        robot(),
        token(),
        delete(f"{ACCOUNTS}/robot"),
        robot(),
        ended(),
        by_robot(get(CONFIGMAPS)),
    ),
    case(
        "a token bound to a pod",
        robot(),
        post(PODS, pod(serviceAccountName="robot")),
        token(boundObjectRef=bound("Pod", "one")),
        by_robot(WHO_AM_I),
    ),
    case(
        "a token bound to a pod ends with the pod",
        robot(),
        post(PODS, pod(serviceAccountName="robot")),
        token(boundObjectRef=bound("Pod", "one")),
        delete(f"{PODS}/one", query="gracePeriodSeconds=0"),
        ended(),
        by_robot(get(CONFIGMAPS)),
    ),
    case(
        "a token bound to a secret",
        robot(),
        post(SECRETS, {"metadata": {"name": "one"}}),
        token(boundObjectRef=bound("Secret", "one")),
        by_robot(WHO_AM_I),
        review(),
    ),
    case(
        "a token bound to a secret ends with the secret",
        robot(),
        post(SECRETS, {"metadata": {"name": "one"}}),
        token(boundObjectRef=bound("Secret", "one")),
        delete(f"{SECRETS}/one"),
        ended(),
        by_robot(get(CONFIGMAPS)),
    ),
    case(
        "a token bound to a secret does not belong to another secret",
        robot(),
        post(SECRETS, {"metadata": {"name": "one"}}),
        token(boundObjectRef=bound("Secret", "one")),
        delete(f"{SECRETS}/one"),
        post(SECRETS, {"metadata": {"name": "one"}}),
        review(),
    ),
    case(
        "a token bound to a node",
        robot(),
        post("/api/v1/nodes", {"metadata": {"name": "node-{ns}"}, "spec": {"taints": [NOT_READY]}}),
        token(boundObjectRef=bound("Node", "node-{ns}")),
        by_robot(WHO_AM_I),
        delete("/api/v1/nodes/node-{ns}"),
    ),
]

REQUESTS = [
    case("a token with defaults", robot(), post(TOKEN, {})),
    case("a token with audiences and a time", robot(), token(audiences=["a", "b"], expirationSeconds=700)),
    case("a token of the default account", post(f"{ACCOUNTS}/default/token", {})),
    case("a token of an account that does not exist", post(TOKEN, {})),
    case("a token for too short a time is rejected", robot(), token(expirationSeconds=599)),
    case("a token for the shortest time", robot(), token(expirationSeconds=600)),
    case("a token for too long a time is rejected", robot(), token(expirationSeconds=2**32 + 1)),
    case("a token request with a wrong type is rejected", robot(), token(expirationSeconds="long")),
    case(
        "a token request of another name is rejected", robot(), post(TOKEN, {"metadata": {"name": "other"}})
    ),
    case(
        "a token request of the same name",
        robot(),
        post(TOKEN, {"metadata": {"name": "robot", "namespace": "{ns}"}}),
    ),
    case(
        "a token request of another namespace is rejected",
        robot(),
        post(TOKEN, {"metadata": {"namespace": "x"}}),
    ),
    case("a token request of another uid is rejected", robot(), post(TOKEN, {"metadata": {"uid": "other"}})),
    case("a token request without a body is rejected", robot(), post(TOKEN, "")),
    case(
        "a token request of another kind is rejected",
        robot(),
        post(TOKEN, {"kind": "Pod", "apiVersion": "v1"}),
    ),
    case("tokens cannot be read", robot(), get(TOKEN), delete(TOKEN)),
    case("a token bound to a pod that does not exist", robot(), token(boundObjectRef=bound("Pod", "none"))),
    case(
        "a token bound to a secret that does not exist",
        robot(),
        token(boundObjectRef=bound("Secret", "none")),
    ),
    case("a token bound to a node that does not exist", robot(), token(boundObjectRef=bound("Node", "none"))),
    case(
        "a token bound to another kind is rejected", robot(), token(boundObjectRef=bound("ConfigMap", "one"))
    ),
    case(
        "a token bound to a kind of another group is rejected",
        robot(),
        token(boundObjectRef={"kind": "Deployment", "apiVersion": "apps/v1", "name": "one"}),
    ),
    case(
        "a token bound to another uid is rejected",
        robot(),
        post(SECRETS, {"metadata": {"name": "one"}}),
        token(boundObjectRef=bound("Secret", "one", uid="other")),
    ),
    case(
        "a token bound to a pod of another account is rejected",
        robot(),
        post(PODS, pod()),
        token(boundObjectRef=bound("Pod", "one")),
    ),
    case(
        "a token request is a right of its own",
        robot(),
        as_user(post(TOKEN, {}), "jane-{ns}"),
        post(ROLES, role(MARKER, rule("create", "serviceaccounts"))),
        post(BINDINGS, binding(reference("Role", "one"), user())),
        settled(),
        as_user(post(TOKEN, {}), "jane-{ns}"),
    ),
    case(
        "a user with the right requests a token",
        robot(),
        post(ROLES, role(MARKER, rule("create", "serviceaccounts/token", names="robot"))),
        post(BINDINGS, binding(reference("Role", "one"), user())),
        settled(),
        as_user(post(TOKEN, {}), "jane-{ns}"),
        as_user(post(f"{ACCOUNTS}/default/token", {}), "jane-{ns}"),
    ),
]

TOKEN_REVIEWS = [
    case("a review of a token", robot(), token(), review()),
    case("a review of garbage", review("garbage"), review("a.b.c"), review("eyJ.eyJ.eyJ")),
    case("a review of a changed token", robot(), token(), review("{token}A")),
    case("a review without a token", post(REVIEWS, {"spec": {}}), post(REVIEWS, {})),
    case("a review for another audience", robot(), token(), review("{token}", "other")),
    case("a review for two audiences", robot(), token(), review("{token}", "other", SERVER)),
    case(
        "a review of a token for another audience",
        robot(),
        token(audiences=["a", "b"]),
        review(),
        review("{token}", "b"),
    ),
    case(
        "a review of a token of a pod",
        robot(),
        post(PODS, pod(serviceAccountName="robot")),
        token(boundObjectRef=bound("Pod", "one")),
        review(),
    ),
    case("reviews cannot be listed", get(REVIEWS)),
    case("a review of a token is a right of its own", as_user(review("x"), "jane-{ns}")),
]

IMPERSONATION = [
    case("an impersonated user", as_user(WHO_AM_I, "jane")),
    case("an impersonated user in groups", as_user(WHO_AM_I, "jane", "a", "b, c")),
    case("an impersonated user with a uid", as_user(WHO_AM_I, "jane", uid="42")),
    case("an impersonated user with extra values", as_user(WHO_AM_I, "jane", Scopes="view", Team="a")),
    case("an extra value with an escaped key", as_user(WHO_AM_I, "jane", **{"example.com%2fscopes": "a"})),
    case("an extra value given twice", as_user(WHO_AM_I, "jane", scopes="a\nb")),
    case("an impersonated service account", as_user(WHO_AM_I, "system:serviceaccount:{ns}:robot")),
    case(
        "an impersonated service account in a group",
        as_user(WHO_AM_I, "system:serviceaccount:{ns}:robot", "a"),
    ),
    case("a name that is almost a service account", as_user(WHO_AM_I, "system:serviceaccount:robot")),
    case("an impersonated node", as_user(WHO_AM_I, "system:node:one")),
    case("an impersonated node in a group", as_user(WHO_AM_I, "system:node:one", "system:nodes")),
    case("an impersonated anonymous user", as_user(WHO_AM_I, "system:anonymous")),
    case(
        "an impersonated anonymous user in a group",
        as_user(WHO_AM_I, "system:anonymous", "system:authenticated"),
    ),
    case(
        "a user in the group of authenticated users", as_user(WHO_AM_I, "jane", "system:authenticated", "a")
    ),
    case("a user in the group of unauthenticated users", as_user(WHO_AM_I, "jane", "system:unauthenticated")),
    case("a user in the privileged group", as_user(WHO_AM_I, "jane", "system:masters")),
    case("a group without a user", get(CONFIGMAPS, headers={"Impersonate-Group": "a\nb"})),
    case("a uid without a user", get(CONFIGMAPS, headers={"Impersonate-Uid": "42"})),
    case("an extra value without a user", get(CONFIGMAPS, headers={"Impersonate-Extra-Scopes": "a"})),
    case("an empty user is none", post(WHO_AM_I.path, {}, headers={"Impersonate-User": ""})),
    case("an impersonation without credentials", anonymous(as_user(get(CONFIGMAPS), "jane"))),
    case("an impersonation with a bad token", anonymous(as_user(get(CONFIGMAPS), "jane"), "Bearer x")),
]


def actor(name: str, *rules: Object, then: tuple[Call, ...]) -> Case:
    """Return a case in which a service account has these rules and impersonates others."""
    return case(
        name,
        robot(),
        token(),
        post(CLUSTER_ROLES, role(MARKER, *rules, name="one-{ns}")),
        post(
            CLUSTER_BINDINGS,
            binding(
                reference("ClusterRole", "one-{ns}"), account("robot", namespace="{ns}"), name="one-{ns}"
            ),
        ),
        settled(ROBOT),
        *(by_robot(call) for call in then),
    )


CREATE = post(CONFIGMAPS, configmap())
REVIEW_RULE = rule("create", "selfsubjectreviews", groups=AUTH_GROUP)
ON = {"apiGroups": [AUTH_GROUP], "resources": ["selfsubjectreviews"]}

RIGHTS = [
    actor(
        "an impersonation without a right",
        then=(
            as_user(get(CONFIGMAPS), "jane"),
            as_user(CREATE, "jane"),
            as_user(get("/nothing"), "jane"),
            as_user(get(CONFIGMAPS), "system:serviceaccount:{ns}:other"),
            as_user(get(CONFIGMAPS), "system:node:one"),
            as_user(get(CONFIGMAPS), "jane", "team"),
            as_user(get(CONFIGMAPS), "jane", uid="1"),
        ),
    ),
    actor(
        "a right to impersonate users",
        rule("impersonate", "users"),
        then=(
            as_user(WHO_AM_I, "jane"),
            as_user(WHO_AM_I, "jane", "team"),
            as_user(WHO_AM_I, "jane", uid="1"),
            as_user(WHO_AM_I, "jane", scopes="a"),
            as_user(WHO_AM_I, "system:serviceaccount:{ns}:other"),
        ),
    ),
    actor(
        "a right to impersonate one user",
        rule("impersonate", "users", names="jane"),
        then=(as_user(WHO_AM_I, "jane"), as_user(WHO_AM_I, "john"), as_user(get("/nothing"), "jane")),
    ),
    actor(
        "a right to impersonate groups",
        rule("impersonate", "users"),
        rule("impersonate", "groups", names="a b"),
        then=(
            as_user(WHO_AM_I, "jane", "a"),
            as_user(WHO_AM_I, "jane", "a", "b"),
            as_user(WHO_AM_I, "jane", "a", "c"),
            as_user(WHO_AM_I, "jane", "system:masters"),
        ),
    ),
    actor(
        "a right to impersonate service accounts",
        rule("impersonate", "serviceaccounts"),
        then=(as_user(WHO_AM_I, "system:serviceaccount:{ns}:other"), as_user(WHO_AM_I, "jane")),
    ),
    actor(
        "a right to impersonate uids",
        rule("impersonate", "users"),
        rule("impersonate", "uids", groups=AUTH_GROUP, names="42"),
        then=(as_user(WHO_AM_I, "jane", uid="42"), as_user(WHO_AM_I, "jane", uid="43")),
    ),
    actor(
        "a right to impersonate extra values",
        rule("impersonate", "users"),
        rule("impersonate", "userextras/scopes", groups=AUTH_GROUP, names="view"),
        then=(
            as_user(WHO_AM_I, "jane", scopes="view"),
            as_user(WHO_AM_I, "jane", scopes="edit"),
            as_user(WHO_AM_I, "jane", team="view"),
        ),
    ),
    actor(
        "a right to impersonate users for one verb",
        rule("impersonate:user-info", "users", groups=AUTH_GROUP),
        {"verbs": ["impersonate-on:user-info:create"], **ON},
        then=(as_user(WHO_AM_I, "jane"), as_user(get(CONFIGMAPS), "jane"), as_user(WHO_AM_I, "jane", "team")),
    ),
    actor(
        "a right to a verb as another user without a right to the user",
        {"verbs": ["impersonate-on:user-info:create"], **ON},
        then=(as_user(WHO_AM_I, "jane"),),
    ),
    actor(
        "a right to impersonate service accounts for one verb",
        rule("impersonate:serviceaccount", "serviceaccounts", groups=AUTH_GROUP),
        {"verbs": ["impersonate-on:serviceaccount:create"], **ON},
        then=(
            as_user(WHO_AM_I, "system:serviceaccount:{ns}:other"),
            as_user(get(CONFIGMAPS), "system:serviceaccount:{ns}:other"),
            as_user(WHO_AM_I, "jane"),
        ),
    ),
    actor(
        "a right to impersonate nodes for one verb",
        rule("impersonate:arbitrary-node", "nodes", groups=AUTH_GROUP, names="one"),
        {"verbs": ["impersonate-on:arbitrary-node:create"], **ON},
        then=(as_user(WHO_AM_I, "system:node:one"), as_user(WHO_AM_I, "system:node:two")),
    ),
    actor(
        "the privileged group cannot be impersonated for one verb",
        rule("impersonate:user-info", "*", groups=AUTH_GROUP),
        {"verbs": ["impersonate-on:user-info:create"], **ON},
        then=(as_user(WHO_AM_I, "jane", "system:masters"), as_user(WHO_AM_I, "jane", "team")),
    ),
    actor(
        "a right to a path as another user",
        rule("impersonate:user-info", "users", groups=AUTH_GROUP),
        paths("impersonate-on:user-info:get", "/livez"),
        then=(as_user(get("/livez"), "jane"), as_user(get("/readyz"), "jane")),
    ),
    actor(
        "the rights are those of the impersonated user",
        rule("impersonate", "users"),
        rule("list", "configmaps"),
        REVIEW_RULE,
        then=(get(CONFIGMAPS), as_user(get(CONFIGMAPS), "jane")),
    ),
]

ENDING = [
    case(
        "a token with characters that do not belong to it",
        robot(),
        token(),
        review("{token}="),
        review("{token}!!!!"),
        review("{token}===="),
    ),
    case(
        "a token whose parts are not objects",
        *(
            call
            for header in ("W10", "Ingi")
            for call in (
                review(f"{header}.{UNSIGNED_CLAIMS}.AAAA"),
                anonymous(get(CONFIGMAPS), f"Bearer {header}.{UNSIGNED_CLAIMS}.AAAA"),
            )
        ),
    ),
    case("a token that names no key", review(f"eyJhbGciOiJFUzI1NiJ9.{UNSIGNED_CLAIMS}.AAAA")),
    case(
        "a user whose name only resembles that of a service account",
        as_user(WHO_AM_I, "system:serviceaccount:Upper_Case:robot"),
        as_user(WHO_AM_I, "system:serviceaccount:{ns}:Upper_Case"),
    ),
    case(
        "a role of a service account in another group",
        robot(),
        token(),
        post(ROLES, role(MARKER, {"verbs": ["*"], "apiGroups": [GROUP], "resources": ["roles"]})),
        post(BINDINGS, binding(reference("Role", "one"), account("robot", namespace="{ns}"))),
        settled(ROBOT),
        by_robot(post(ROLES, role(rule("get", "pods"), name="two"))),
        by_robot(get(f"{ROLES}/one")),
    ),
]

CASES = [*CREDENTIALS, *REQUESTS, *TOKEN_REVIEWS, *IMPERSONATION, *RIGHTS, *ENDING]
