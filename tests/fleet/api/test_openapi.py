"""The OpenAPI document: complete, true, and readable offline."""

from __future__ import annotations

import re
import typing
from typing import Any

import msgspec
import pytest
from litestar import Litestar
from litestar.routes import HTTPRoute
from structlog.testing import capture_logs

from kapsa.fleet.api.application import CONTROLLERS
from kapsa.fleet.api.openapi.examples import EXAMPLES
from kapsa.fleet.api.requests import ApiRequest
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.ports.vault import VaultUnavailable
from kapsa.fleet.orchestrator.registry.operators import Operators
from tests.fleet.api.harness import ApiClient
from tests.fleet.api.objects import routes
from tests.fleet.conftest import PostgresServer

ROUTES = routes()
STREAMED = "listDeploymentEvents"
"""The one read that is limited by the number of open streams."""
SHOWN = [route for route in ROUTES if route.path.startswith("/api/") or route.path in ("/health", "/metrics")]


async def _document(api: ApiClient) -> dict[str, Any]:
    return dict((await api.anonymous().get("/openapi.json")).json())


async def test_every_operation_has_texts_roles_errors_and_examples(api: ApiClient) -> None:
    document = await _document(api)
    shown = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert shown == {(route.method, route.path) for route in SHOWN}
    for route in SHOWN:
        operation = document["paths"][route.path][route.method.lower()]
        assert operation["summary"], route
        assert operation["x-kapsa-roles"] == sorted(route.access.roles)
        errors = {status for status in operation["responses"] if status >= "400"}
        assert {"400", "500"} <= errors
        assert ({"401", "403"} <= errors) == route.access.authenticated
        limited = route.access.rate_limit is not None or route.operation == STREAMED
        assert ("429" in errors) == limited
        if route.method == "POST" and route.access.authenticated:
            names = [parameter["name"] for parameter in operation["parameters"]]
            assert "Idempotency-Key" in names
        success = next(value for status, value in operation["responses"].items() if status < "300")
        for content in success.get("content", {}).values():
            assert "example" in content or content["schema"] == {"type": "string"}, route
        if route.has_body:
            assert operation["requestBody"]["content"]["application/json"]["example"] is not None


def _references(value: Any) -> typing.Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


async def test_every_reference_leads_somewhere_and_operation_ids_are_unique(api: ApiClient) -> None:
    document = await _document(api)
    for reference in set(_references(document)):
        node: Any = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
    ids = [
        operation["operationId"] for methods in document["paths"].values() for operation in methods.values()
    ]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_an_example_is_valid(kind: Any) -> None:
    msgspec.convert(EXAMPLES[kind], type=kind)


def _structs(kind: Any) -> typing.Iterator[Any]:
    """Yield each struct that a type is made of."""
    for each in typing.get_args(kind):
        yield from _structs(each)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for hint in typing.get_type_hints(kind, include_extras=True).values():
            yield from _structs(hint)


def test_every_part_of_every_body_refuses_unknown_fields() -> None:
    app = Litestar(list(CONTROLLERS), request_class=ApiRequest, openapi_config=None, logging_config=None)
    seen = 0
    for route in app.routes:
        assert isinstance(route, HTTPRoute)
        for handler, _ in route.route_handler_map.values():
            if handler.parsed_data_field is not None:
                for struct in _structs(handler.parsed_data_field.annotation):
                    seen += 1
                    assert struct.__struct_config__.forbid_unknown_fields, struct
    assert seen > 5


def test_no_parameter_has_msgspec_meta_which_litestar_ignores() -> None:
    app = Litestar(list(CONTROLLERS), request_class=ApiRequest, openapi_config=None, logging_config=None)
    for route in app.routes:
        assert isinstance(route, HTTPRoute)
        for handler, _ in route.route_handler_map.values():
            for name, field in handler.parsed_fn_signature.parameters.items():
                if name != "data":
                    assert "Meta(" not in repr(field.raw), (route.path, name)


@pytest.mark.parametrize("path", sorted({route.path for route in ROUTES}))
async def test_a_method_that_a_path_does_not_have_is_answered_with_allow(api: ApiClient, path: str) -> None:
    allowed = {route.method for route in ROUTES if route.path == path} | {"OPTIONS"}
    concrete = re.sub(r"\{[a-z_]*id\}", "7f0c9b52-8f5f-4b0e-9d2a-7a4f6f1d2c11", path)
    concrete = re.sub(r"\{[a-z_]+\}", "widget", concrete)
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"):
        if method not in allowed:
            response = await api.request(method, concrete)
            assert response.status_code == 405
            assert {each.strip() for each in response.headers["allow"].split(",")} == allowed
            assert response.headers["content-type"] == "application/problem+json"
    options = await api.anonymous().request("OPTIONS", concrete)
    assert options.status_code == 204
    assert {each.strip() for each in options.headers["allow"].split(",")} == allowed


async def test_the_page_needs_nothing_from_elsewhere(api: ApiClient) -> None:
    response = await api.anonymous().get("/docs")
    page = response.text
    assert "<script" not in page
    assert not re.search(r"(src|href)=.https?:", page)
    assert "default-src 'none'" in response.headers["content-security-policy"]
    for route in SHOWN:
        assert route.path in page


async def test_an_unknown_path_is_a_problem_with_security_headers(api: ApiClient) -> None:
    response = await api.anonymous().get("/api/v2/<script>")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "script" not in response.text


async def test_metrics_count_requests_by_route_and_not_by_path(api: ApiClient) -> None:
    await api.get("/api/v1/operators/secret-name")
    await api.anonymous().get("/api/v1/operators")
    text = (await api.get("/metrics")).text
    assert 'http_requests_total{method="GET",route="/api/v1/operators/{name}",status="404"} 1.0' in text
    assert 'route="/api/v1/operators",status="401"} 1.0' in text
    assert "secret-name" not in text


async def test_health_says_when_the_database_is_away(api: ApiClient) -> None:
    async def away() -> None:
        raise ConnectionError("password=secret is not accepted")

    api.app.state.check_database = away
    response = await api.anonymous().get("/health")
    assert response.status_code == 503
    assert response.json()["database"] == "Unreachable"
    assert "secret" not in response.text


async def test_a_request_while_the_database_is_away_is_answered_with_503_and_no_cause(
    api: ApiClient, postgres: PostgresServer, database: Database
) -> None:
    assert (await api.get("/api/v1/operators")).status_code == 200
    postgres.cut_off(database.url)
    with capture_logs() as lines:
        response = await api.get("/api/v1/operators")
    assert response.status_code == 503
    assert response.json()["detail"] == "The database cannot be used now. The log has the cause."
    assert str(database.url.database) not in response.text
    assert [line["log_level"] for line in lines if line["event"] == "a request needs the database"]
    postgres.let_in(database.url)
    assert (await api.get("/api/v1/operators")).status_code == 200


async def test_a_request_that_needs_keys_which_are_away_is_answered_with_503_and_no_cause(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def page(*_: Any, **__: Any) -> None:
        raise VaultUnavailable("Vault at https://vault.internal answered 503: unseal it")

    monkeypatch.setattr(Operators, "page", page)
    response = await api.get("/api/v1/operators")
    assert response.status_code == 503
    assert response.json()["detail"] == "The keys of the vault cannot be used now. The log has the cause."
