"""Helm charts in a registry: pulled by version, verified by digest."""

from __future__ import annotations

import pytest

from kapsa.adapters.errors import AuthFailed, ExternalNotFound, LimitExceeded, Refused
from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.adapters.oci.chart_artifact import chart_reference, chart_versions, pull_chart
from kapsa.adapters.oci.credentials import RegistryCredentials
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.adapters.oci.registry import ImageRegistry
from kapsa.adapters.testing.chart_server import pack_chart
from kapsa.adapters.testing.registry_server import RegistryServer

ARCHIVE = pack_chart("app", "1.0.0+build.5")
LIMIT = 16 * 1024 * 1024
LOGIN = RegistryCredentials(username="robot", password="hunter2-very-secret")


def reference(server: RegistryServer) -> ImageReference:
    return chart_reference(f"oci://{server.endpoint}/charts/app")


def registry(server: RegistryServer, login: RegistryCredentials | None = None) -> ImageRegistry:
    return ImageRegistry(f"http://{server.endpoint}", server.http, credentials=login, insecure=True)


async def test_a_chart_is_listed_and_pulled_over_http(registry_server: RegistryServer) -> None:
    registry_server.push_chart("charts/app", "1.0.0_build.5", ARCHIVE)
    http = GuardedHttpClient(address_guard=None)
    try:
        client = ImageRegistry(registry_server.endpoint, http, insecure=True)
        assert await chart_versions(client, reference(registry_server)) == ["1.0.0+build.5"]
        assert await pull_chart(client, reference(registry_server), "1.0.0+build.5", limit=LIMIT) == ARCHIVE
    finally:
        await http.close()


async def test_a_login_works_for_tags_manifests_and_blobs() -> None:
    server = RegistryServer()
    server.push_chart("charts/app", "1.0.0", ARCHIVE)
    server.login = ("robot", "hunter2-very-secret")
    assert await pull_chart(registry(server, LOGIN), reference(server), "1.0.0", limit=LIMIT) == ARCHIVE
    with pytest.raises(AuthFailed) as error:
        await pull_chart(registry(server), reference(server), "1.0.0", limit=LIMIT)
    assert "user name and password" in error.value.hint


async def test_a_missing_version_an_image_and_a_changed_blob_are_refused() -> None:
    server = RegistryServer()
    server.push_chart("charts/app", "1.0.0", ARCHIVE)
    server.push("charts/app", "2.0.0")
    with pytest.raises(ExternalNotFound):
        await pull_chart(registry(server), reference(server), "3.0.0", limit=LIMIT)
    with pytest.raises(Refused, match="not a Helm chart"):
        await pull_chart(registry(server), reference(server), "2.0.0", limit=LIMIT)
    with pytest.raises(LimitExceeded):
        await pull_chart(registry(server), reference(server), "1.0.0", limit=10)
    server.corrupt(ARCHIVE)
    with pytest.raises(Refused, match="does not have its digest"):
        await pull_chart(registry(server), reference(server), "1.0.0", limit=LIMIT)


async def test_all_pages_of_tags_are_read() -> None:
    server = RegistryServer()
    for number in range(2105):
        server.push_chart("charts/app", f"1.0.{number}", ARCHIVE)
    assert len(await chart_versions(registry(server), reference(server))) == 2105


@pytest.mark.parametrize(
    "text",
    [
        "registry.example.com/a",
        "https://h/a",
        "oci://h.example.com/a:1.0",
        "oci://h.example.com/A",
        "oci://",
        "oci://h.example.com/../a",
    ],
)
def test_a_reference_that_is_not_a_repository_of_charts_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        chart_reference(text)
