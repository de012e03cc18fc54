"""Create, read and replace."""

from __future__ import annotations

from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    GADGETS,
    LEASES,
    SECRETS,
    SERVICES,
    WIDGETS,
    apply,
    case,
    configmap,
    delete,
    get,
    merge,
    post,
    put,
    secret,
    service,
    widget,
)

LONG = "a" * 254
ONE = f"{CONFIGMAPS}/one"

CASES = [
    case(
        "a created object comes back with its metadata filled in",
        post(CONFIGMAPS, configmap(data={"a": "1"})),
    ),
    case("a created object can be read", post(CONFIGMAPS, configmap(data={"a": "1"})), get(ONE)),
    case("a missing object is 404", get(f"{CONFIGMAPS}/none")),
    case("a missing kind is 404", get("/api/v1/namespaces/{ns}/wizards/none")),
    case("a missing group is 404", get("/apis/none.example.com/v1/things")),
    case("a missing path is 404", get("/nowhere")),
    case(
        "a second create of the same name is 409",
        post(CONFIGMAPS, configmap()),
        post(CONFIGMAPS, configmap()),
    ),
    case("generateName makes a name", post(CONFIGMAPS, {"metadata": {"generateName": "gen-"}})),
    case("name wins over generateName", post(CONFIGMAPS, configmap("named", generateName="gen-"))),
    case("a create without a name is rejected", post(CONFIGMAPS, {"metadata": {}})),
    case("a create without metadata is rejected", post(CONFIGMAPS, {"data": {"a": "1"}})),
    case("apiVersion and kind may be left out", post(CONFIGMAPS, {"metadata": {"name": "one"}})),
    case(
        "a create into another namespace than the path's is rejected",
        post(CONFIGMAPS, configmap(namespace="other")),
    ),
    case(
        "a create into a missing namespace is 404",
        post("/api/v1/namespaces/nope/configmaps", configmap()),
    ),
    case("a create with a resourceVersion is rejected", post(CONFIGMAPS, configmap(resourceVersion="1"))),
    case("a create ignores a uid given by the client", post(CONFIGMAPS, configmap(uid="mine"))),
    case(
        "a create ignores a creationTimestamp given by the client",
        post(CONFIGMAPS, configmap(creationTimestamp="2001-01-01T00:00:00Z")),
    ),
    case(
        "a create ignores generation, selfLink and deletionTimestamp",
        post(
            CONFIGMAPS,
            configmap(
                generation=7,
                selfLink="/x",
                deletionTimestamp="2001-01-01T00:00:00Z",
                deletionGracePeriodSeconds=3,
            ),
        ),
    ),
    case("a post to an object is 405", post(ONE, configmap())),
    case("a put to a collection is 405", put(CONFIGMAPS, configmap())),
    case(
        "a create by path in the cluster scope of a namespaced kind is rejected",
        post("/api/v1/configmaps", configmap()),
    ),
    case("dry run creates nothing", post(CONFIGMAPS, configmap(), "dryRun=All"), get(ONE)),
    case("an unknown dry run directive is rejected", post(CONFIGMAPS, configmap(), "dryRun=Some")),
    case(
        "dry run of a create that would conflict is 409",
        post(CONFIGMAPS, configmap()),
        post(CONFIGMAPS, configmap(), "dryRun=All"),
    ),
    case(
        "labels and annotations are kept",
        post(CONFIGMAPS, configmap(labels={"a": "b", "x/y": ""}, annotations={"free text": "no"})),
    ),
    case(
        "valid labels and annotations are kept",
        post(
            CONFIGMAPS,
            configmap(labels={"a": "b", "x.io/y": ""}, annotations={"x.io/note": "any text, at all\n"}),
        ),
    ),
    case("an invalid label value is rejected", post(CONFIGMAPS, configmap(labels={"a": "feature/login"}))),
    case("an invalid label key is rejected", post(CONFIGMAPS, configmap(labels={"-a": "b"}))),
    case("a label value over 63 characters is rejected", post(CONFIGMAPS, configmap(labels={"a": "b" * 64}))),
    case(
        "an annotation key with two slashes is rejected",
        post(CONFIGMAPS, configmap(annotations={"a/b/c": ""})),
    ),
    case(
        "annotations over 256 KiB are rejected", post(CONFIGMAPS, configmap(annotations={"a": "b" * 262145}))
    ),
    *(
        case(f"a configmap name like {shown} is rejected", post(CONFIGMAPS, configmap(name)))
        for shown, name in (
            ("Upper", "Upper"),
            ("with space", "a b"),
            ("leading dash", "-a"),
            ("trailing dot", "a."),
            ("two dots", "a..b"),
            ("slash", "a/b"),
            ("percent", "a%b"),
            ("dot", "."),
            ("two dots alone", ".."),
            ("254 characters", LONG),
            ("under_score", "a_b"),
        )
    ),
    case("a configmap name with dots is fine", post(CONFIGMAPS, configmap("a.b.c"))),
    case("a service name with dots is rejected", post(SERVICES, service("a.b"))),
    case("a service name that starts with a digit is rejected", post(SERVICES, service("1a"))),
    case("a service name over 63 characters is rejected", post(SERVICES, service("a" * 64))),
    case(
        "a namespace name with a dot is rejected", post("/api/v1/namespaces", {"metadata": {"name": "a.b"}})
    ),
    case(
        "an owner reference without a uid is rejected",
        post(CONFIGMAPS, configmap(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "p"}])),
    ),
    case(
        "an owner reference without a kind is rejected",
        post(CONFIGMAPS, configmap(ownerReferences=[{"apiVersion": "v1", "name": "p", "uid": "u"}])),
    ),
    case(
        "two controller references are rejected",
        post(
            CONFIGMAPS,
            configmap(
                ownerReferences=[
                    {"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": True} for n in "ab"
                ]
            ),
        ),
    ),
    case(
        "an Event as owner is rejected",
        post(
            CONFIGMAPS,
            configmap(ownerReferences=[{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]),
        ),
    ),
    case("a finalizer without a slash is rejected", post(CONFIGMAPS, configmap(finalizers=["mine"]))),
    case("a qualified finalizer is kept", post(CONFIGMAPS, configmap(finalizers=["example.com/mine"]))),
    case(
        "a replace moves the revision",
        post(CONFIGMAPS, configmap(data={"a": "1"})),
        put(ONE, configmap(data={"a": "2"})),
        get(ONE),
    ),
    case(
        "a replace that changes nothing keeps the revision",
        post(CONFIGMAPS, configmap(data={"a": "1"})),
        put(ONE, configmap(data={"a": "1"})),
        get(ONE),
    ),
    case(
        "a replace with the current revision is accepted",
        post(CONFIGMAPS, configmap()),
        put(ONE, configmap(data={"a": "2"}, resourceVersion="{rv}")),
    ),
    case(
        "a replace with an old revision is 409",
        post(CONFIGMAPS, configmap()),
        put(ONE, configmap(data={"a": "2"}, resourceVersion="1")),
    ),
    case(
        "a replace with a revision that is not a number is rejected",
        post(CONFIGMAPS, configmap()),
        put(ONE, configmap(data={"a": "2"}, resourceVersion="x")),
    ),
    case("a replace of nothing is 404", put(ONE, configmap())),
    case("a replace with a resourceVersion of nothing is 409", put(ONE, configmap(resourceVersion="5"))),
    case(
        "a replace whose name differs from the path is rejected",
        post(CONFIGMAPS, configmap()),
        put(ONE, configmap("two")),
    ),
    case(
        "a replace without a name is rejected or filled",
        post(CONFIGMAPS, configmap()),
        put(ONE, {"metadata": {}, "data": {"a": "1"}}),
    ),
    case(
        "a replace whose namespace differs from the path is rejected",
        post(CONFIGMAPS, configmap()),
        put(ONE, configmap(namespace="other")),
    ),
    case(
        "a replace with another uid is 409",
        post(CONFIGMAPS, configmap()),
        put(ONE, configmap(uid="00000000-0000-0000-0000-000000000000")),
    ),
    case(
        "a replace with its own uid is accepted",
        post(CONFIGMAPS, configmap()),
        put(ONE, configmap(uid="{uid}", data={"a": "b"})),
    ),
    case(
        "a replace that drops labels drops them",
        post(CONFIGMAPS, configmap(labels={"a": "b"})),
        put(ONE, configmap()),
    ),
    case(
        "a dry-run replace changes nothing",
        post(CONFIGMAPS, configmap(data={"a": "1"})),
        put(ONE, configmap(data={"a": "2"}), "dryRun=All"),
        get(ONE),
    ),
    case(
        "an immutable configmap keeps its data",
        post(CONFIGMAPS, {**configmap(data={"a": "1"}), "immutable": True}),
        put(ONE, {**configmap(data={"a": "2"}), "immutable": True}),
    ),
    case(
        "an immutable configmap stays immutable",
        post(CONFIGMAPS, {**configmap(data={"a": "1"}), "immutable": True}),
        put(ONE, configmap(data={"a": "1"})),
    ),
    case("a wrong kind in the body is rejected", post(CONFIGMAPS, {**configmap(), "kind": "Secret"})),
    case("a wrong version in the body is rejected", post(CONFIGMAPS, {**configmap(), "apiVersion": "v2"})),
    case(
        "a field manager over 128 characters is rejected",
        post(CONFIGMAPS, configmap(), "fieldManager=" + "m" * 129),
    ),
    case(
        "a field manager with unprintable characters is rejected",
        post(CONFIGMAPS, configmap(), "fieldManager=a%0ab"),
    ),
    case("the field manager is recorded", post(CONFIGMAPS, configmap(data={"a": "1"}), "fieldManager=me")),
    case(
        "managedFields given on create are dropped when empty", post(CONFIGMAPS, configmap(managedFields=[]))
    ),
    case("a configmap key with a slash is rejected", post(CONFIGMAPS, configmap(data={"a/b": "1"}))),
    case(
        "a configmap key in data and binaryData is rejected",
        post(CONFIGMAPS, {**configmap(data={"a": "1"}), "binaryData": {"a": "MQ=="}}),
    ),
    case(
        "binaryData that is not base64 is rejected",
        post(CONFIGMAPS, {**configmap(), "binaryData": {"a": "?"}}),
    ),
    case("a secret's stringData becomes data", post(SECRETS, secret(stringData={"a": "1"}))),
    case("a secret's type defaults to Opaque", post(SECRETS, secret())),
    case(
        "a secret's type is immutable",
        post(SECRETS, secret()),
        put(f"{SECRETS}/one", secret(type="example.com/other")),
    ),
    case("a tls secret needs its keys", post(SECRETS, secret(type="kubernetes.io/tls"))),
    case(
        "a dockerconfigjson secret needs its key",
        post(SECRETS, secret(type="kubernetes.io/dockerconfigjson")),
    ),
    case(
        "a basic-auth secret needs user or password",
        post(SECRETS, secret(type="kubernetes.io/basic-auth", data={})),
    ),
    case("secret data that is not base64 is rejected", post(SECRETS, secret(data={"a": "?"}))),
    case(
        "a namespace gets its phase, label and finalizer",
        post("/api/v1/namespaces", {"metadata": {"name": "{ns}-x"}}),
        delete("/api/v1/namespaces/{ns}-x"),
    ),
    case(
        "a namespace's labels can be changed",
        merge("/api/v1/namespaces/{ns}", {"metadata": {"labels": {"team": "a"}}}),
    ),
    case(
        "a cluster-scoped custom object lives without a namespace",
        post(
            GADGETS,
            {
                "apiVersion": "conformance.kapsa.dev/v1",
                "kind": "Gadget",
                "metadata": {"name": "{ns}"},
                "x": 1,
            },
        ),
        get(GADGETS + "/{ns}"),
        delete(GADGETS + "/{ns}"),
    ),
    case(
        "a cluster-scoped custom object rejects a namespace",
        post(
            GADGETS,
            {
                "apiVersion": "conformance.kapsa.dev/v1",
                "kind": "Gadget",
                "metadata": {"name": "{ns}", "namespace": "{ns}"},
            },
        ),
    ),
    case(
        "a lease keeps micro time",
        post(
            LEASES,
            {
                "metadata": {"name": "one"},
                "spec": {
                    "holderIdentity": "me",
                    "leaseDurationSeconds": 15,
                    "renewTime": "2026-01-01T00:00:00.000000Z",
                },
            },
        ),
    ),
    case(
        "a lease rejects a duration of zero",
        post(LEASES, {"metadata": {"name": "one"}, "spec": {"leaseDurationSeconds": 0}}),
    ),
    case(
        "a lease can be replaced",
        post(LEASES, {"metadata": {"name": "one"}, "spec": {"holderIdentity": "me"}}),
        put(
            f"{LEASES}/one",
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "one", "resourceVersion": "{rv}"},
                "spec": {"holderIdentity": "you"},
            },
        ),
    ),
    case(
        "a new object with a resource version is rejected",
        post(CONFIGMAPS, configmap(resourceVersion="5")),
        post(CONFIGMAPS, configmap(resourceVersion="0")),
        post(CONFIGMAPS, configmap(name="two", resourceVersion="x")),
        post(CONFIGMAPS, configmap(name="two", resourceVersion="")),
    ),
    case(
        "a new custom object with a resource version is rejected",
        post(WIDGETS, {**widget(), "metadata": {"name": "one", "resourceVersion": "5"}}),
    ),
    case(
        "an applied object that does not exist, with a resource version, is a conflict",
        apply(f"{CONFIGMAPS}/one", configmap(resourceVersion="5")),
    ),
    case(
        "a put of an object that does not exist, with a resource version, is not found",
        put(f"{CONFIGMAPS}/one", configmap(resourceVersion="5")),
        put(f"{LEASES}/one", {"metadata": {"name": "one", "resourceVersion": "5"}}),
    ),
]
