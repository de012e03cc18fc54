"""Hostile input: bodies, paths, queries and patches that no client sends by accident."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.behaviour.conformance.cases.requests import (
    APPLY_PATCH,
    CONFIGMAPS,
    CRDS,
    DEPLOYMENTS,
    GADGETS,
    JSON_PATCH,
    MERGE_PATCH,
    PODS,
    STRATEGIC_PATCH,
    WIDGETS,
    case,
    configmap,
    delete,
    deployment,
    get,
    json_patch,
    patch,
    pod,
    post,
    put,
    widget,
)
from tests.behaviour.conformance.exchange import Call, Case

ONE = f"{CONFIGMAPS}/one"
MADE = post(CONFIGMAPS, configmap(data={"a": "1"}))
BOMB = "\n".join(
    ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))],
)
READ_ONLY = ("/version", "/api", "/api/v1", "/apis/apps/v1")


def nested(depth: int) -> str:
    return '{"metadata":{"name":"one"},"data":' + '{"a":' * depth + "1" + "}" * (depth + 1)


def in_yaml(shown: str, body: str | bytes) -> Case:
    return case(f"a yaml body with {shown}", post(CONFIGMAPS, body, content_type="application/yaml"))


def token(**fields: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


def packed(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def deep_definition(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "metadata": {"name": "deeps.conformance.kapsa.dev"},
        "spec": {
            "group": "conformance.kapsa.dev",
            "scope": "Namespaced",
            "names": {"plural": "deeps", "kind": "Deep"},
            "versions": [version],
        },
    }


BODIES = [
    case("a json body of 10,001 levels is rejected", post(CONFIGMAPS, nested(10_001))),
    case("a body of 300,000 open brackets is rejected", post(CONFIGMAPS, "[" * 300_000)),
    case("a body of 1,500 levels is rejected", post(CONFIGMAPS, nested(1500))),
    case("a merge patch of 20,000 levels is rejected", MADE, patch(ONE, nested(20_000), MERGE_PATCH)),
    case("a schema of 90 levels is accepted", post(CRDS, deep_definition(90), "dryRun=All")),
    in_yaml("100,000 open brackets", "a: " + "[" * 100_000),
    in_yaml("20,000 open braces", "a: " + "{a: " * 20_000),
    in_yaml("5,000 brackets that are never closed", "a: " + "[" * 5000),
    in_yaml("11,000 dashes on a line", "a:\n" + "- " * 11_000 + "x"),
    in_yaml("aliases that double forty times", BOMB),
    in_yaml("an alias of what it stands in", "a: &a [*a]\n"),
    in_yaml("an alias of nothing", "a: *b\n"),
    in_yaml("a tab", "a:\n\t- b\n"),
    in_yaml("a bracket that is open", "a: [1, 2\nb: 3\n"),
    in_yaml("a tag of another language", "a: !!python/object:os.system x\n"),
    in_yaml("half a character", b"\xff\xfe\x00"),
    in_yaml("a control character", b"a: \x01\n"),
    in_yaml("nothing", b""),
    in_yaml("a list", "- a\n"),
    in_yaml("a word", "hello"),
    in_yaml(
        "keys that are not text",
        "kind: ConfigMap\napiVersion: v1\nmetadata: {name: one}\ndata: {1: a, true: b}\n",
    ),
    case("a content type of semicolons is rejected", post(CONFIGMAPS, configmap(), content_type=";;;")),
]

OPTIONS = [
    case(f"a delete with the options {body} is answered alike", MADE, delete(ONE, body))
    for body in (
        "{",
        "[]",
        '"x"',
        "null",
        '{"kind":5}',
        '{"kind":"Secret"}',
        '{"gracePeriodSeconds":"x"}',
        '{"gracePeriodSeconds":1.5}',
        '{"gracePeriodSeconds":99999999999999999999}',
        '{"orphanDependents":"x"}',
        '{"propagationPolicy":5}',
        '{"preconditions":"x"}',
        '{"preconditions":{"uid":5}}',
        '{"dryRun":"All"}',
        '{"dryRun":[5]}',
    )
]

SUBRESOURCES = [
    *(
        case(f"a scale of {shown} is rejected", post(DEPLOYMENTS, deployment()), step)
        for shown, step in (
            ("text", put(f"{DEPLOYMENTS}/one/scale", '"x"')),
            ("another kind", put(f"{DEPLOYMENTS}/one/scale", deployment())),
            (
                "replicas in words",
                put(
                    f"{DEPLOYMENTS}/one/scale",
                    {
                        "apiVersion": "autoscaling/v1",
                        "kind": "Scale",
                        "metadata": {"name": "one"},
                        "spec": {"replicas": "x"},
                    },
                ),
            ),
            (
                "a list made by a patch",
                json_patch(f"{DEPLOYMENTS}/one/scale", {"op": "replace", "path": "", "value": []}),
            ),
            ("half a patch", patch(f"{DEPLOYMENTS}/one/scale", "{", MERGE_PATCH)),
        )
    ),
    *(
        case(f"an eviction of {shown} is rejected", post(PODS, pod()), post(f"{PODS}/one/eviction", body))
        for shown, body in (
            ("text", '"x"'),
            ("another kind", pod()),
            ("another name", {"metadata": {"name": "two"}}),
            ("no name", {}),
            ("bad options", {"metadata": {"name": "one"}, "deleteOptions": {"gracePeriodSeconds": "x"}}),
        )
    ),
    case(
        "a binding to a number is rejected",
        post(PODS, pod()),
        post(f"{PODS}/one/binding", {"metadata": {"name": "one"}, "target": {"name": 5}}),
    ),
    case(
        "a binding to nothing is rejected",
        post(PODS, pod()),
        post(f"{PODS}/one/binding", {"metadata": {"name": "one"}}),
    ),
    case("the log of a missing pod is 404", get(f"{PODS}/none/log")),
    case("a shell in a missing pod is 404", get(f"{PODS}/none/exec")),
]

PATCHES = [
    *(
        case(f"a json patch of {shown} is rejected", MADE, patch(ONE, body, JSON_PATCH))
        for shown, body in (
            ("nothing", b""),
            ("an object", "{}"),
            ("numbers", "[1]"),
            ("an unknown operation", '[{"op":"nope","path":"/a"}]'),
            ("an operation without a path", '[{"op":"add"}]'),
            ("a path without a slash", '[{"op":"add","path":"a","value":1}]'),
            ("half an operation", "[{"),
            ("a list for an object", '[{"op":"replace","path":"","value":[]}]'),
            ("an index beyond numbers", '[{"op":"add","path":"/metadata/finalizers/' + "9" * 30 + '"}]'),
            (
                "copies that double",
                json.dumps(
                    [
                        {"op": "add", "path": "/data/a", "value": "x" * 100_000},
                        *[{"op": "copy", "from": "/data", "path": "/data/b"}] * 12,
                    ]
                ),
            ),
        )
    ),
    case(
        "a json patch with a path of 5,000 steps is rejected",
        MADE,
        json_patch(ONE, {"op": "add", "path": "/a" * 5000, "value": 1}),
    ),
    case(
        "a json patch of 10,001 operations is rejected",
        MADE,
        json_patch(ONE, *[{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_001),
    ),
    case(
        "a json patch of a custom object into a list is rejected",
        post(WIDGETS, widget(spec={"size": 1})),
        patch(f"{WIDGETS}/one", '[{"op":"replace","path":"","value":[]}]', JSON_PATCH),
    ),
    *(
        case(f"a merge patch of {shown} is rejected", MADE, patch(ONE, body, MERGE_PATCH))
        for shown, body in (
            ("nothing", b""),
            ("text", '"x"'),
            ("half an object", "{"),
            ("text for data", '{"data":"x"}'),
            ("another kind", '{"kind":"Secret"}'),
            ("a number for a kind", '{"kind":1}'),
            ("bytes that are not text", b"\xff"),
        )
    ),
    *(
        case(
            f"a strategic patch of {shown} is answered alike",
            post(DEPLOYMENTS, deployment()),
            patch(f"{DEPLOYMENTS}/one", body, STRATEGIC_PATCH),
        )
        for shown, body in (
            ("nothing", b""),
            ("a list", "[]"),
            ("null", "null"),
            ("half an object", "{"),
            ("an unknown directive", '{"spec":{"$patch":"nope"}}'),
            ("kept keys that are text", '{"spec":{"$retainKeys":"x"}}'),
            ("an item without its key", '{"spec":{"template":{"spec":{"containers":[{"image":"x"}]}}}}'),
            ("containers that are text", '{"spec":{"template":{"spec":{"containers":"x"}}}}'),
            ("containers that are numbers", '{"spec":{"template":{"spec":{"containers":[1]}}}}'),
        )
    ),
    *(
        case(f"an apply of {shown} is answered alike", patch(ONE, body, APPLY_PATCH, "fieldManager=a"))
        for shown, body in (
            ("nothing", b""),
            ("a list", "[]"),
            ("text", '"x"'),
            ("half an object", "{"),
            ("a trailing comma", '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"},}'),
            ("a tab", "\t- a"),
            ("20,000 open brackets", "a: " + "[" * 20_000),
            ("bytes that are not text", b"\xff\xfe\xfd"),
        )
    ),
]

SELECTORS = [
    *(
        case(f"the label selector {shown} is answered alike", get(CONFIGMAPS, f"labelSelector={shown}"))
        for shown in (
            "a%3D%3D%3Db",
            "a+in+(b",
            "a+in+b",
            "!!a",
            "a+notin+()",
            "%2C",
            "a%3Db%2C%2C",
            "a+%3E+b",
            "%00",
            "a%3D%E2%98%83",
            "(a)",
        )
    ),
    *(
        case(f"the field selector {shown} is answered alike", get(CONFIGMAPS, f"fieldSelector={shown}"))
        for shown in ("a", "metadata.name%3D%3D%3Da", "%3Da", "metadata.name%3D%5C", "metadata.name+in+(a)")
    ),
    *(
        case(
            f"a continue token of {shown} is answered alike",
            get(CONFIGMAPS, f"limit=1&continue={sent}{more}"),
        )
        for shown, sent, more in (
            ("one letter", "x", ""),
            ("exclamation marks", "!!!", ""),
            ("no fields", token(), ""),
            ("another version", token(v="v2", rv=1, start="a"), ""),
            ("no start", token(v="meta.k8s.io/v1", rv=1, start=""), ""),
            ("a way up", token(v="meta.k8s.io/v1", rv=1, start="../../secrets"), ""),
            ("revision zero", token(v="meta.k8s.io/v1", rv=0, start="a"), ""),
            ("a negative revision", token(v="meta.k8s.io/v1", rv=-5, start="a"), ""),
            ("a revision of text", token(v="meta.k8s.io/v1", rv="x", start="a"), ""),
            ("half an object", packed(b"{{{{"), ""),
            ("a list", packed(b"[1]"), ""),
            ("5,000 letters", "A" * 5000, ""),
            ("nonsense with a revision", "abc", "&resourceVersion=5"),
        )
    ),
    *(
        case(f"a list with {query} is answered alike", get(CONFIGMAPS, query))
        for query in (
            "limit=-1",
            "limit=x",
            "limit=9223372036854775808",
            "limit=" + "9" * 5000,
            "limit=1.5",
            "resourceVersion=1e3",
            "resourceVersion=99999999999999999999",
            "timeoutSeconds=x",
            "a=b;c=d",
            "&&&",
        )
    ),
    *(
        case(f"a watch with {query} is answered alike", get(CONFIGMAPS, f"watch=1&timeoutSeconds=1&{query}"))
        for query in (
            "resourceVersion=x",
            "resourceVersion=-1",
            "resourceVersion=99999999999999999999",
            "labelSelector=a%3D%3D%3Db",
            "fieldSelector=spec.x%3D1",
        )
    ),
]

PATHS = [
    *(
        case(f"the path {path} is answered alike", get(path))
        for path in (
            f"{CONFIGMAPS}/a%2Fb",
            f"{CONFIGMAPS}/a%2Fb/c",
            f"{CONFIGMAPS}/..%2Fsecrets",
            f"{CONFIGMAPS}/a%00b",
            f"{CONFIGMAPS}/one/status/x",
            "//api/v1",
            "/api//v1/configmaps",
            "/apis//v1/x",
            "/api/v2/pods",
            "/apis/apps/v9/deployments",
            "/apis/nope/v1/things",
            "/api/v1/namespaces/{ns}/namespaces",
            "/api/v1/namespaces/{ns}/namespaces/one",
            "/api/v1/namespaces/{ns}/nodes",
            GADGETS.replace("gadgets", "namespaces/{ns}/gadgets"),
            GADGETS.replace("gadgets", "namespaces/{ns}/gadgets/x"),
            "/openapi/v9",
            "/healthz/",
            "/healthz/nope",
        )
    ),
    *(
        case(f"{method} on {path} is not allowed", Call(method=method, path=path))
        for method in ("POST", "DELETE")
        for path in READ_ONLY
    ),
    case("a create that accepts xml is 406", post(CONFIGMAPS, configmap(), accept="application/xml")),
    case(
        "a deletecollection that accepts xml is 406",
        MADE,
        delete(CONFIGMAPS, accept="application/xml"),
    ),
]

CASES = [*BODIES, *OPTIONS, *SUBRESOURCES, *PATCHES, *SELECTORS, *PATHS]
