"""Invalid input, rejected with the real server's code, reason and message."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    DEPLOYMENTS,
    WIDGETS,
    case,
    configmap,
    deployment,
    get,
    merge,
    post,
    widget,
)
from tests.behaviour.conformance.exchange import Call, Case

ONE = f"{CONFIGMAPS}/one"
DEEP = '{"metadata":{"name":"one"},"data":' + '{"a":' * 200 + "1" + "}" * 201


def spec(name: str, body: Any, query: str = "") -> Case:
    return case(name, post(WIDGETS, widget(spec=body), query))


CASES = [
    *(
        case(f"a create with {shown} is rejected", post(CONFIGMAPS, body))
        for shown, body in (
            ("an empty body", b""),
            ("half an object", "{"),
            ("a list", "[]"),
            ("a string", '"x"'),
            ("a number", "5"),
            ("null", "null"),
            ("two objects", "{}{}"),
            ("a trailing comma", '{"metadata":{"name":"one"},}'),
            ("single quotes", "{'a':1}"),
            ("bytes that are not text", b"\xff\xfe{}"),
            ("a lone surrogate", b'{"metadata":{"name":"one"},"data":{"a":"\\ud800"}}'),
            ("deep nesting", DEEP),
            ("metadata that is text", {"metadata": "x"}),
            ("labels that are a list", {"metadata": {"name": "one", "labels": []}}),
            ("a label that is a number", {"metadata": {"name": "one", "labels": {"a": 1}}}),
            ("data that is a list", {"metadata": {"name": "one"}, "data": []}),
            ("data with a nested map", {"metadata": {"name": "one"}, "data": {"a": {}}}),
            ("a name that is a number", {"metadata": {"name": 5}}),
            ("a kind that is a number", {"kind": 5, "metadata": {"name": "one"}}),
            ("finalizers that are text", {"metadata": {"name": "one", "finalizers": "x"}}),
            ("a bad timestamp", {"metadata": {"name": "one", "creationTimestamp": "yesterday"}}),
        )
    ),
    case(
        "a create with data null is accepted", post(CONFIGMAPS, {"metadata": {"name": "one"}, "data": None})
    ),
    case(
        "a create with a null value is accepted or rejected",
        post(CONFIGMAPS, {"metadata": {"name": "one"}, "data": {"a": None}}),
    ),
    case(
        "an unknown field is dropped by default with a warning", post(CONFIGMAPS, {**configmap(), "bogus": 1})
    ),
    case(
        "an unknown field under Ignore is dropped",
        post(CONFIGMAPS, {**configmap(), "bogus": 1}, "fieldValidation=Ignore"),
    ),
    case(
        "an unknown field under Warn warns",
        post(CONFIGMAPS, {**configmap(), "bogus": 1}, "fieldValidation=Warn"),
    ),
    case(
        "an unknown field under Strict is rejected",
        post(CONFIGMAPS, {**configmap(), "bogus": 1}, "fieldValidation=Strict"),
    ),
    case(
        "two unknown fields under Strict are both named",
        post(CONFIGMAPS, {**configmap(), "bogus": 1, "worse": 2}, "fieldValidation=Strict"),
    ),
    case(
        "an unknown nested field under Strict is named by path",
        post(
            DEPLOYMENTS,
            deployment(containers=[{"name": "a", "image": "a", "imagee": "b"}]),
            "fieldValidation=Strict",
        ),
    ),
    case(
        "a duplicate field under Strict is rejected",
        post(CONFIGMAPS, '{"metadata":{"name":"one"},"data":{"a":"1","a":"2"}}', "fieldValidation=Strict"),
    ),
    case(
        "a duplicate field under Warn warns",
        post(CONFIGMAPS, '{"metadata":{"name":"one"},"data":{"a":"1","a":"2"}}', "fieldValidation=Warn"),
    ),
    case(
        "a field in another case is unknown under Strict",
        post(CONFIGMAPS, {**configmap(), "Data": {"a": "1"}}, "fieldValidation=Strict"),
    ),
    case(
        "an unknown fieldValidation is rejected", post(CONFIGMAPS, configmap(), "fieldValidation=Sometimes")
    ),
    case(
        "a custom object's unknown field is pruned",
        post(WIDGETS, widget(spec={"size": 1, "bogus": 1}, bogus=2)),
    ),
    case(
        "a custom object's unknown field under Strict is rejected",
        post(WIDGETS, widget(spec={"size": 1, "bogus": 1}, worse=2), "fieldValidation=Strict"),
    ),
    case(
        "a custom object's unknown field under Warn warns",
        post(WIDGETS, widget(spec={"size": 1, "bogus": 1}), "fieldValidation=Warn"),
    ),
    case(
        "a custom object's unknown metadata field under Strict is rejected",
        post(
            WIDGETS,
            {**widget(spec={"size": 1}), "metadata": {"name": "one", "bogus": 1}},
            "fieldValidation=Strict",
        ),
    ),
    case(
        "a custom object's duplicate field under Strict is rejected",
        post(
            WIDGETS,
            '{"apiVersion":"conformance.kapsa.dev/v1","kind":"Widget","metadata":{"name":"one"},"spec":{"size":1,"size":2}}',
            "fieldValidation=Strict",
        ),
    ),
    case(
        "a custom object without apiVersion is rejected",
        post(WIDGETS, {"kind": "Widget", "metadata": {"name": "one"}, "spec": {"size": 1}}),
    ),
    case(
        "a custom object without kind is rejected",
        post(
            WIDGETS,
            {"apiVersion": "conformance.kapsa.dev/v1", "metadata": {"name": "one"}, "spec": {"size": 1}},
        ),
    ),
    case(
        "a custom object of another kind is rejected",
        post(WIDGETS, {**widget(spec={"size": 1}), "kind": "Gadget"}),
    ),
    case(
        "a custom object of another version is rejected",
        post(WIDGETS, {**widget(spec={"size": 1}), "apiVersion": "conformance.kapsa.dev/v2"}),
    ),
    case("a custom object that is a list is rejected", post(WIDGETS, "[]")),
    case("a custom object that is not JSON is rejected", post(WIDGETS, "{")),
    case("a custom object with an empty body is rejected", post(WIDGETS, b"")),
    case(
        "a custom object with metadata of text is rejected",
        post(WIDGETS, {**widget(spec={"size": 1}), "metadata": "x"}),
    ),
    case(
        "a custom object with labels of numbers is rejected",
        post(WIDGETS, {**widget(spec={"size": 1}), "metadata": {"name": "one", "labels": {"a": 1}}}),
    ),
    case("a custom object with a bad name is rejected", post(WIDGETS, widget("Bad_Name", {"size": 1}))),
    case(
        "a custom object without a name is rejected",
        post(WIDGETS, {**widget(spec={"size": 1}), "metadata": {}}),
    ),
    case(
        "a custom object of a version that is not served is 404",
        get("/apis/conformance.kapsa.dev/v2/namespaces/{ns}/widgets"),
    ),
    spec("a missing required field is named", {}),
    spec("a spec of text is rejected", "x"),
    spec("a spec of null is dropped or rejected", None),
    spec("an integer below its minimum is rejected", {"size": 0}),
    spec("an integer above its maximum is rejected", {"size": 11}),
    spec("an integer of text is rejected", {"size": "1"}),
    spec("an integer with a fraction is rejected", {"size": 1.5}),
    spec("an integer written as 2.0 is accepted", {"size": 2.0}),
    spec("an integer of a boolean is rejected", {"size": True}),
    spec("an integer of null is rejected", {"size": None}),
    spec("an enum of another value is rejected", {"size": 1, "color": "blue"}),
    spec("a pattern that does not match is rejected", {"size": 1, "name": "ABC"}),
    spec("a string too short is rejected", {"size": 1, "name": "a"}),
    spec("a string too long is rejected", {"size": 1, "name": "abcdefghi"}),
    spec("a string that breaks two rules names both", {"size": 1, "name": "A"}),
    spec("a number that is not a multiple is rejected", {"size": 1, "ratio": 0.7}),
    spec("an exclusive minimum is rejected", {"size": 1, "strict": 0}),
    spec("an exclusive maximum is rejected", {"size": 1, "strict": 100}),
    spec("a boolean of text is rejected", {"size": 1, "enabled": "true"}),
    spec("a nullable null stays", {"size": 1, "maybe": None}),
    spec("a null with a default takes the default", {"size": 1, "enabled": None}),
    spec("an int-or-string takes an integer", {"size": 1, "port": 80}),
    spec("an int-or-string takes a string", {"size": 1, "port": "http"}),
    spec("an int-or-string rejects a boolean", {"size": 1, "port": True}),
    spec("an int-or-string rejects a fraction", {"size": 1, "port": 1.5}),
    spec("an invalid date-time is rejected", {"size": 1, "when": "today"}),
    spec("a date-time is accepted", {"size": 1, "when": "2026-01-01T00:00:00Z"}),
    spec("preserved fields stay", {"size": 1, "free": {"anything": [1, {"x": None}]}}),
    spec("a map of strings rejects a number", {"size": 1, "labels": {"a": 1}}),
    spec("a map of integers rejects a string", {"size": 1, "counts": {"a": "1"}}),
    spec("too many properties are rejected", {"size": 1, "labels": dict.fromkeys("abcd", "")}),
    spec("a set with a duplicate is rejected", {"size": 1, "tags": ["a", "b", "a"]}),
    spec("a map list with a duplicate key is rejected", {"size": 1, "parts": [{"name": "a"}, {"name": "a"}]}),
    spec("a map list without its key is rejected", {"size": 1, "parts": [{"count": 1}]}),
    spec("a map list's items get their defaults", {"size": 1, "parts": [{"name": "a"}]}),
    spec("a list with too few items is rejected", {"size": 1, "list": []}),
    spec("a list with too many items is rejected", {"size": 1, "list": ["a", "b", "c", "d"]}),
    spec("a list of numbers where strings belong is rejected", {"size": 1, "list": [1]}),
    spec("a list that is a map is rejected", {"size": 1, "list": {}}),
    spec("oneOf takes one", {"size": 1, "either": {"a": "x"}}),
    spec("oneOf rejects both", {"size": 1, "either": {"a": "x", "b": "y"}}),
    spec("oneOf rejects none", {"size": 1, "either": {}}),
    spec("a rule that fails is reported with its message", {"size": 1, "low": 2, "high": 1}),
    spec("a rule that holds is silent", {"size": 1, "low": 1, "high": 2}),
    spec("several mistakes are all named", {"size": 99, "color": "blue", "name": "A", "enabled": 3}),
    spec("defaults fill what is missing", {"size": 1}),
    spec("defaults fill a nested object", {"size": 1, "nested": {"label": "x"}}),
    case(
        "a transition rule rejects a change",
        post(WIDGETS, widget(spec={"size": 1, "fixed": "a"})),
        merge(f"{WIDGETS}/one", {"spec": {"fixed": "b"}}),
    ),
    case(
        "a transition rule lets the first value be set",
        post(WIDGETS, widget(spec={"size": 1})),
        merge(f"{WIDGETS}/one", {"spec": {"fixed": "b"}}),
    ),
    case(
        "an update that breaks the schema is rejected",
        post(WIDGETS, widget(spec={"size": 1})),
        merge(f"{WIDGETS}/one", {"spec": {"size": 50}}),
    ),
    case(
        "a status that breaks the schema is rejected",
        post(WIDGETS, widget(spec={"size": 1})),
        merge(f"{WIDGETS}/one/status", {"status": {"ready": "yes"}}),
    ),
    case(
        "a body over 3 MB is rejected", post(CONFIGMAPS, configmap(data={"a": "x" * (3 * 1024 * 1024 + 1)}))
    ),
    case(
        "a configmap over 1 MiB is rejected", post(CONFIGMAPS, configmap(data={"a": "x" * (1024 * 1024 + 1)}))
    ),
    case("a query that cannot be parsed is rejected or ignored", get(CONFIGMAPS, "limit=%zz")),
    case(
        "a boolean parameter of nonsense is rejected or ignored",
        get(CONFIGMAPS, "watch=maybe&timeoutSeconds=1"),
    ),
    case("a missing subresource is 404", post(CONFIGMAPS, configmap()), get(f"{ONE}/status")),
    case("an unsupported method is 405", Call(method="TRACE", path=CONFIGMAPS)),
]
