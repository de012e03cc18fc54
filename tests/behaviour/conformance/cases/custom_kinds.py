"""Custom resource definitions: their validation and their deletion."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.definitions import definition
from tests.behaviour.conformance.cases.requests import CRDS, case, delete, get, merge, post
from tests.behaviour.conformance.exchange import Case, Watch

RINGS = "/apis/{ns}.kapsa.dev/v1/namespaces/{ns}/rings"


def crd(sentence: str, plural: str, kind: str, change: Any = None, **version: Any) -> Case:
    body = definition(plural, kind, group="{ns}.kapsa.dev", **version)
    if change:
        change(body)
    path = f"{CRDS}/{plural}.{{ns}}.kapsa.dev"
    return case(sentence, post(CRDS, body), get(path, until="InitialNamesAccepted"), delete(path))


def schema(spec: Any) -> dict[str, Any]:
    return {"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}


def ratcheting() -> Case:
    """Return the case of an object that breaks a rule which its kind gets later."""

    def body(spec: dict[str, Any]) -> dict[str, Any]:
        return definition(
            "rings", "Ring", group="{ns}.kapsa.dev", **schema({"type": "object", "properties": spec})
        )

    text, number = {"type": "string", "maxLength": 9}, {"type": "integer"}
    ruled = {**text, "x-kubernetes-validations": [{"rule": "self != 'x'", "message": "x is not allowed"}]}
    ring = {"apiVersion": "{ns}.kapsa.dev/v1", "kind": "Ring", "metadata": {"name": "one"}}
    path, one = f"{CRDS}/rings.{{ns}}.kapsa.dev", f"{RINGS}/one"
    later = body({"a": ruled, "b": {**number, "default": 7}, "c": number})
    return case(
        "a rule that an unchanged value breaks is a warning",
        post(CRDS, body({"a": text, "c": number})),
        get(RINGS, until="RingList"),
        post(RINGS, {**ring, "spec": {"a": "x", "c": 1}}),
        merge(path, {"spec": later["spec"]}),
        get(one, until='"b":7'),
        merge(one, {"spec": {"c": 2}}),
        merge(one, {"spec": {"a": "y"}}),
        # The real server applies a patch to what its cache has first. A cached "x" would add a warning to the error.
        get(RINGS, query="resourceVersion=0", until='"a":"y"'),
        merge(one, {"spec": {"a": "x"}}),
        delete(path),
    )


CASES = [
    ratcheting(),
    *(
        crd(sentence, "rings", "Ring", **schema({"type": "object", "properties": {"a": defaulted}}))
        for sentence, defaulted in {
            "a default that keeps its rule is accepted": {
                "type": "integer",
                "default": 7,
                "x-kubernetes-validations": [{"rule": "self > 6"}, {"rule": "self == oldSelf"}],
            },
            "a default that breaks its rule is rejected": {
                "type": "integer",
                "default": 5,
                "x-kubernetes-validations": [{"rule": "self > 6", "message": "too small"}],
            },
            "a default that breaks its rule for new values is rejected": {
                "type": "integer",
                "default": 5,
                "x-kubernetes-validations": [
                    {"rule": "oldSelf.hasValue() || self > 6", "optionalOldSelf": True}
                ],
            },
            "a default that breaks a rule below is rejected": {
                "type": "object",
                "default": {"b": "x"},
                "properties": {
                    "b": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'x'"}]}
                },
            },
            "a default whose rule does not compile is rejected": {
                "type": "integer",
                "default": 5,
                "x-kubernetes-validations": [{"rule": "self.x == 1"}],
            },
        }.items()
    ),
    crd("a definition is accepted", "rings", "Ring"),
    crd(
        "a definition with rules is accepted",
        "rings",
        "Ring",
        **schema(
            {
                "type": "object",
                "properties": {"a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}},
            }
        ),
    ),
    crd(
        "a definition whose name does not match is rejected",
        "rings",
        "Ring",
        lambda body: body["metadata"].update(name="other.kapsa.dev"),
    ),
    crd(
        "a definition without versions is rejected",
        "rings",
        "Ring",
        lambda body: body["spec"].update(versions=[]),
    ),
    crd(
        "a definition with two storage versions is rejected",
        "rings",
        "Ring",
        lambda body: body["spec"]["versions"].append({**body["spec"]["versions"][0], "name": "v2"}),
    ),
    crd("a definition without a storage version is rejected", "rings", "Ring", storage=False),
    crd(
        "a definition without a schema is rejected",
        "rings",
        "Ring",
        lambda body: body["spec"]["versions"][0].pop("schema"),
    ),
    crd("a definition with an unknown scope is rejected", "rings", "Ring", scope="Galaxy"),
    crd(
        "a definition without type is rejected",
        "rings",
        "Ring",
        schema={"openAPIV3Schema": {"properties": {}}},
    ),
    crd(
        "a definition with a field without type is rejected",
        "rings",
        "Ring",
        **schema({"properties": {"a": {}}}),
    ),
    crd("a definition with an unknown type is rejected", "rings", "Ring", **schema({"type": "thing"})),
    crd("a definition with an array without items is rejected", "rings", "Ring", **schema({"type": "array"})),
    crd(
        "a definition with a bad default is rejected",
        "rings",
        "Ring",
        **schema({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}),
    ),
    crd(
        "a definition with a bad pattern is rejected",
        "rings",
        "Ring",
        **schema({"type": "string", "pattern": "("}),
    ),
    crd(
        "a definition with a map list without keys is rejected",
        "rings",
        "Ring",
        **schema({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
    ),
    crd(
        "a definition with an unknown list type is rejected",
        "rings",
        "Ring",
        **schema({"type": "array", "x-kubernetes-list-type": "bag", "items": {"type": "string"}}),
    ),
    crd(
        "a definition with properties and additionalProperties is rejected",
        "rings",
        "Ring",
        **schema(
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": {"type": "string"},
            }
        ),
    ),
    crd(
        "a definition with a rule that does not compile is rejected",
        "rings",
        "Ring",
        **schema({"type": "object", "x-kubernetes-validations": [{"rule": "self.none > 1"}]}),
    ),
    crd(
        "a definition with a rule that costs too much is rejected",
        "rings",
        "Ring",
        **schema(
            {
                "type": "array",
                "items": {"type": "string"},
                "x-kubernetes-validations": [
                    {"rule": "self.all(a, self.all(b, self.all(c, a == b || b == c)))"}
                ],
            }
        ),
    ),
    crd(
        "a definition with a bad printer column is rejected",
        "rings",
        "Ring",
        additionalPrinterColumns=[{"name": "A", "type": "thing", "jsonPath": ".spec.a"}],
    ),
    crd(
        "a definition with a bad scale path is rejected",
        "rings",
        "Ring",
        subresources={"scale": {"specReplicasPath": "spec.size", "statusReplicasPath": ".status.replicas"}},
    ),
    crd(
        "a definition with preserveUnknownFields is rejected",
        "rings",
        "Ring",
        lambda body: body["spec"].update(preserveUnknownFields=True),
    ),
    crd(
        "a definition with a bad group is rejected",
        "rings",
        "Ring",
        lambda body: body["spec"].update(group="Bad_Group"),
    ),
    crd("a definition with a bad version name is rejected", "rings", "Ring", name="V 1"),
    crd(
        "a definition with metadata rules is rejected",
        "rings",
        "Ring",
        schema={
            "openAPIV3Schema": {
                "type": "object",
                "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}},
            }
        },
    ),
    crd(
        "a definition may restrict the name",
        "rings",
        "Ring",
        schema={
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "metadata": {
                        "type": "object",
                        "properties": {"name": {"type": "string", "pattern": "^a"}},
                    }
                },
            }
        },
    ),
    case(
        "the watch of a kind ends with its definition",
        post(CRDS, definition("rings", "Ring", group="{ns}.kapsa.dev")),
        get(RINGS, until='"items"'),
        post(RINGS, {"apiVersion": "{ns}.kapsa.dev/v1", "kind": "Ring", "metadata": {"name": "one"}}),
        Watch(path=RINGS, events=5, during=[delete(f"{CRDS}/rings.{{ns}}.kapsa.dev")]),
    ),
]
