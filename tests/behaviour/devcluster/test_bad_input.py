"""Invalid input is rejected in kube-apiserver's words; the server goes on and stores nothing of it."""

from __future__ import annotations

import asyncio
import logging

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kapsa.devcluster.embedded.server import Server
from kapsa.devcluster.wire import go_json
from tests.devcluster.embedded.api import CONFIGMAPS, CRDS, WIDGET_DEFINITION, WIDGETS, Api

UNRECOGNIZED = "the object provided is unrecognized (must be of type ConfigMap): "
HANDLED = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: '


@pytest_asyncio.fixture
async def api() -> Api:
    return Api(Server())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)"),
        (b"{", "couldn't get version/kind; json parse error: unexpected end of JSON input ({)"),
        (b"[]", "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value"),
        (b'{"kind": 5}', "json: cannot unmarshal number into Go struct field .kind of type string"),
        (b"{'a': 1}", "invalid character '\\'' looking for beginning of object key string"),
        (b'{"a": tru}', "invalid character '}' in literal true (expecting 'e')"),
        (b'{"a": 01}', "invalid character '1' after object key:value pair"),
    ],
)
async def test_a_body_that_is_not_an_object_is_rejected_with_the_reason(api: Api, body: bytes, message: str):
    answer = await api.post(CONFIGMAPS, body)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert answer.message.startswith(UNRECOGNIZED)
    assert message in answer.message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"kind": "Secret", "apiVersion": "v1"},
            (
                'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): '
                "unknown conversion"
            ),
        ),
        (
            {"kind": "Foo", "apiVersion": "v1"},
            (
                'Foo in version "v1" cannot be handled as a ConfigMap: no kind "Foo" is registered for version "v1" in '
                'scheme "pkg/runtime/scheme.go:111"'
            ),
        ),
        (
            {"metadata": 5},
            HANDLED
            + "json: cannot unmarshal number into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        ),
        (
            {"metadata": {"labels": {"a": 1}}},
            HANDLED
            + "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            {"data": []},
            HANDLED
            + "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            {"metadata": {"name": 5}},
            HANDLED
            + "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
        ),
        (
            {"metadata": {"deletionTimestamp": "yesterday"}},
            HANDLED
            + 'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"',
        ),
        ({"binaryData": {"a": "?"}}, HANDLED + "illegal base64 data at input byte 0"),
    ],
)
async def test_a_body_that_does_not_fit_the_kind_is_rejected_with_the_field(
    api: Api, body: object, message: str
):
    answer = await api.post(CONFIGMAPS, body)
    assert (answer.status, answer.message) == (400, message)


async def test_numbers_out_of_range_are_reported_with_their_type(api: Api):
    path = "/apis/apps/v1/namespaces/default/deployments"
    answer = await api.post(path, {"metadata": {"name": "x"}, "spec": {"replicas": 3_000_000_000}})
    assert answer.status == 400
    assert answer.message.endswith(
        "cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32"
    )


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"name": "x", "labels": {"-": "v"}}, "metadata.labels"),
        ({"name": "x", "labels": {"k": "not valid"}}, "metadata.labels"),
        ({"name": "x", "annotations": {"a/b/c": "v"}}, "metadata.annotations"),
        ({"name": "x", "annotations": {"a": "v" * 300_000}}, "metadata.annotations"),
        ({"name": "x", "finalizers": ["plain"]}, "metadata.finalizers[0]"),
        ({"name": "x", "ownerReferences": [{"kind": "A"}]}, "metadata.ownerReferences.apiVersion"),
        ({"name": "X"}, "metadata.name"),
        ({"generateName": "X-"}, "metadata.generateName"),
        ({}, "metadata.name"),
    ],
)
async def test_bad_metadata_is_invalid_and_names_the_field(api: Api, metadata: object, field: str):
    answer = await api.post(CONFIGMAPS, {"metadata": metadata})
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert field in [cause["field"] for cause in answer.body["details"]["causes"]]


@pytest.mark.parametrize("depth", [200, 20_000])
async def test_deep_nesting_gets_a_response(api: Api, depth: int):
    body = b'{"data": ' + b'{"a": ' * depth + b"1" + b"}" * depth + b"}"
    answer = await api.post(CONFIGMAPS, body)
    assert answer.status == 400


async def test_deep_yaml_and_alias_bombs_get_a_response(api: Api):
    deep = b"a: " + b"[" * 5000
    assert (await api.post(CONFIGMAPS, deep, content_type="application/yaml")).status == 400
    bomb = b"\n".join(
        [b"a0: &a0 [x, x]", *(b"a%d: &a%d [*a%d, *a%d]" % (n, n, n - 1, n - 1) for n in range(1, 40))]
    )
    answer = await api.post(CONFIGMAPS, bomb, content_type="application/yaml")
    assert answer.status == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nothere", 404),
        ("GET", "/apis/apps/v1/nothere", 404),
        ("GET", "/apis/nope/v1/x", 404),
        ("GET", "/somewhere", 404),
        ("GET", f"{CONFIGMAPS}/a/b", 404),
        ("POST", f"{CONFIGMAPS}/a", 405),
        ("PUT", CONFIGMAPS, 405),
        ("PATCH", CONFIGMAPS, 405),
        ("FOO", CONFIGMAPS, 405),
        ("GET", "/api/v1/namespaces/default/configmaps/%2e%2e", 400),
        ("GET", "/api/v1/namespaces//configmaps", 200),
    ],
)
async def test_unknown_paths_and_methods_are_rejected(api: Api, method: str, path: str, status: int):
    assert (await api.send(method, path)).status == status


async def test_a_custom_resource_must_name_its_kind_and_version(api: Api):
    await api.post(CRDS, WIDGET_DEFINITION)
    good = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    other = await api.post(WIDGETS, {**good, "kind": "Gadget"})
    assert (other.status, other.message) == (
        422,
        'Gadget.example.com "w" is invalid: kind: Invalid value: "Gadget": must be Widget',
    )
    version = await api.post(WIDGETS, {**good, "apiVersion": "example.com/v2"})
    assert version.message == (
        "the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)"
    )
    metadata = await api.post(WIDGETS, {**good, "metadata": {"name": "w", "labels": {"a": 1}}})
    assert metadata.message.endswith(
        "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"
    )


async def test_duplicate_fields_are_reported(api: Api):
    body = b'{"metadata": {"name": "x"}, "data": {"a": "1", "a": "2"}}'
    warned = await api.post(CONFIGMAPS, body, dryRun="All")
    assert warned.headers["warning"] == '299 - "duplicate field \\"data.a\\""'
    refused = await api.post(CONFIGMAPS, body, fieldValidation="Strict")
    assert refused.message == HANDLED + 'strict decoding error: duplicate field "data.a"'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fields=st.dictionaries(
        st.sampled_from(["metadata", "data", "binaryData", "immutable", "spec", "kind", "apiVersion"]), JSON
    ),
    metadata=st.dictionaries(
        st.sampled_from(
            [
                "name",
                "labels",
                "annotations",
                "finalizers",
                "ownerReferences",
                "managedFields",
                "generateName",
            ]
        ),
        JSON,
    ),
    path=st.sampled_from(
        [CONFIGMAPS, "/api/v1/namespaces/default/pods", "/apis/apps/v1/namespaces/default/deployments", CRDS]
    ),
)
@example(fields={}, metadata={"name": "a", "managedFields": [None]}, path=CONFIGMAPS)
@example(fields={}, metadata={"name": "a", "managedFields": [False]}, path=CONFIGMAPS)
def test_no_body_makes_the_server_fail(fields: dict[str, object], metadata: object, path: str):
    """Every body gets success or a client error, never an internal error."""

    async def main() -> None:
        api = Api(Server())
        body = {"metadata": metadata, **fields}
        for method, where, content_type in (
            ("POST", path, "application/json"),
            ("PATCH", f"{CONFIGMAPS}/one", "application/merge-patch+json"),
        ):
            if method == "PATCH":
                await api.configmap("one")
            answer = await api.send(method, where, body, content_type=content_type)
            assert answer.status != 500 or not answer.message.startswith("Internal error"), answer.body

    logging.disable(logging.CRITICAL)
    try:
        asyncio.run(main())
    finally:
        logging.disable(logging.NOTSET)


@given(st.binary(max_size=60))
def test_exactly_the_bytes_that_are_not_json_have_a_syntax_error(data: bytes):
    import json

    try:
        json.loads(data.decode("latin-1"), parse_constant=lambda _: (_ for _ in ()).throw(ValueError()))
        well_formed = True
    except (ValueError, RecursionError):
        well_formed = False
    assert (go_json.syntax_error(data) == "") == well_formed
