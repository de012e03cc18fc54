"""Chart repositories over real HTTP: good ones, broken ones, and ones that want our credentials."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from kapsa.adapters.errors import AuthFailed, ExternalNotFound, LimitExceeded, Refused, Unreachable
from kapsa.adapters.helm.chart_repository import ChartRepository, RepositoryCredentials
from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.adapters.testing.chart_server import ChartServer, pack_chart

PASSWORD = "hunter2-very-secret"
LOGIN = RepositoryCredentials("reader", PASSWORD)
CHART = pack_chart("app", "1.10.0", {"templates/a.yaml": "kind: A\n"})
LIMIT = 16 * 1024 * 1024


@pytest.fixture
def server() -> Iterator[ChartServer]:
    with ChartServer() as running:
        running.add(CHART)
        yield running


@pytest_asyncio.fixture
async def http() -> AsyncIterator[GuardedHttpClient]:
    client = GuardedHttpClient(address_guard=None, timeout=5)
    yield client
    await client.close()


def repository(
    server: ChartServer, http: GuardedHttpClient, login: RepositoryCredentials | None = None
) -> ChartRepository:
    return ChartRepository(server.url, http, credentials=login, allow_http=True)


@pytest.mark.parametrize("digests", [True, False])
@pytest.mark.parametrize("absolute", [True, False])
async def test_a_chart_is_listed_and_downloaded(
    server: ChartServer, http: GuardedHttpClient, digests: bool, absolute: bool
) -> None:
    server.digests = digests
    server.base = f"{server.url}/" if absolute else ""
    client = repository(server, http)
    (entry,) = await client.versions("app")
    assert entry.version == "1.10.0"
    assert bool(entry.digest) is digests
    assert await client.download(entry, limit=LIMIT) == CHART


async def test_an_unquoted_version_stays_the_text_that_it_is(
    server: ChartServer, http: GuardedHttpClient
) -> None:
    server.index = b"apiVersion: v1\nentries:\n  app:\n  - version: 1.10\n    urls: [charts/app-1.10.0.tgz]\n"
    (entry,) = await repository(server, http).versions("app")
    assert (entry.version, entry.urls) == ("1.10", (f"{server.url}/charts/app-1.10.0.tgz",))


async def test_credentials_are_needed_used_and_never_shown(
    server: ChartServer, http: GuardedHttpClient
) -> None:
    server.login = ("reader", PASSWORD)
    client = repository(server, http, LOGIN)
    (entry,) = await client.versions("app")
    assert await client.download(entry, limit=LIMIT) == CHART
    with pytest.raises(AuthFailed, match="credentials are required"):
        await repository(server, http).versions("app")
    with pytest.raises(AuthFailed, match="credentials were rejected") as error:
        await repository(server, http, RepositoryCredentials("reader", "wrong-password")).versions("app")
    assert "wrong-password" not in f"{error.value} {LOGIN!r}"


async def test_another_host_gets_no_credentials_from_a_redirect_or_the_index(
    server: ChartServer, http: GuardedHttpClient
) -> None:
    with ChartServer() as other:
        other.add(CHART)
        server.login = ("reader", PASSWORD)
        server.base = f"{other.url}/"
        (entry,) = await repository(server, http, LOGIN).versions("app")
        assert await repository(server, http, LOGIN).download(entry, limit=LIMIT) == CHART
        server.base = ""
        server.redirects["/charts/app-1.10.0.tgz"] = f"{other.url}/charts/app-1.10.0.tgz"
        (entry,) = await repository(server, http, LOGIN).versions("app")
        assert await repository(server, http, LOGIN).download(entry, limit=LIMIT) == CHART
        assert len(other.requests) == 2
        assert all("authorization" not in request.headers for request in other.requests)


async def test_an_archive_with_another_digest_is_refused(
    server: ChartServer, http: GuardedHttpClient
) -> None:
    (entry,) = await repository(server, http).versions("app")
    server.archives["/charts/app-1.10.0.tgz"] = pack_chart(
        "app", "1.10.0", {"templates/a.yaml": "kind: Evil\n"}
    )
    with pytest.raises(Refused, match="has the digest"):
        await repository(server, http).download(entry, limit=LIMIT)


async def test_an_archive_and_an_index_that_are_too_large_are_not_read_to_the_end(
    server: ChartServer, http: GuardedHttpClient
) -> None:
    (entry,) = await repository(server, http).versions("app")
    with pytest.raises(LimitExceeded):
        await repository(server, http).download(entry, limit=100)
    server.index = b"#" * (21 * 1024 * 1024)
    with pytest.raises(LimitExceeded):
        await repository(server, http).versions("app")


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (b"<html>Welcome</html>", "not the index of a chart repository"),
        (b"", "not the index"),
        (b"[1, 2, 3]", "not the index"),
        (b"apiVersion: v1\n", "entries or apiVersion is missing"),
        (b"entries: {}\n", "entries or apiVersion is missing"),
        (b"apiVersion: v1\nentries: {app: 3}\n", "not a list"),
        (b"apiVersion: v1\nentries: {app: [{urls: [a.tgz]}]}\n", "no version"),
        (b"apiVersion: v1\nentries: {app: [{version: 1.0.0}]}\n", "no urls"),
        (b"apiVersion: v1\nentries: {app: [{version: 1.0.0, urls: [a], digest: md5}]}\n", "not SHA-256"),
        (
            b"apiVersion: v1\nentries: {app: [{version: 1.0.0, urls: ['https://me:pw@h/a']}]}\n",
            "not accepted",
        ),
        (b"apiVersion: v1\nentries: {app: [], app: []}\n", "listed twice"),
        (b"apiVersion: v1\nentries: &a {app: [*a]}\n", "anchors or aliases"),
        (b"apiVersion: v1\nentries: {app: [" + b"[" * 100, "nested too deeply"),
        (b"apiVersion: v1\n\tentries: {}\n", "not YAML: line 2"),
    ],
)
async def test_a_malformed_index_is_refused_with_the_reason(
    server: ChartServer, http: GuardedHttpClient, index: bytes, reason: str
) -> None:
    server.index = index
    with pytest.raises(Refused, match=reason):
        await repository(server, http).versions("app")


async def test_missing_charts_unreachable_servers_and_errors_are_told_apart(
    server: ChartServer, http: GuardedHttpClient
) -> None:
    with pytest.raises(ExternalNotFound, match="has no chart 'other'"):
        await repository(server, http).versions("other")
    server.statuses["/index.yaml"] = 503
    with pytest.raises(Unreachable, match="503"):
        await repository(server, http).versions("app")
    server.statuses["/index.yaml"] = 404
    with pytest.raises(ExternalNotFound, match=r"it has no index\.yaml"):
        await repository(server, http).versions("app")
    with pytest.raises(Unreachable):
        await ChartRepository("http://127.0.0.1:1", http, allow_http=True).versions("app")


async def test_redirects_are_followed_within_limits(server: ChartServer, http: GuardedHttpClient) -> None:
    server.redirects["/index.yaml"] = "/index.yaml"
    with pytest.raises(Exception, match="redirects in a row"):
        await repository(server, http).versions("app")
    server.redirects["/index.yaml"] = "file:///etc/passwd"
    with pytest.raises(Refused, match="without https"):
        await repository(server, http).versions("app")


async def test_an_index_that_refers_to_a_registry_says_so(
    server: ChartServer, http: GuardedHttpClient
) -> None:
    entries = {"app": [{"version": "1.0.0", "urls": ["oci://registry.example.com/charts/app:1.0.0"]}]}
    server.index = json.dumps({"apiVersion": "v1", "entries": entries}).encode()
    (entry,) = await repository(server, http).versions("app")
    with pytest.raises(Refused, match="oci://registry") as error:
        await repository(server, http).download(entry, limit=LIMIT)
    assert "OCI registry" in error.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h/x",
        "https://",
        "https://me:pw@h/x",
        "http://h/x",
        "https://h/x?y=1",
        "https://h:0/",
        "not a url",
        "file:///etc",
    ],
)
def test_an_address_that_is_not_a_repository_is_refused(url: str, http: GuardedHttpClient) -> None:
    with pytest.raises(Refused) as error:
        ChartRepository(url, http)
    assert "pw" not in str(error.value).replace("password", "")


async def test_an_internal_address_is_refused_at_the_connection() -> None:
    guarded = GuardedHttpClient(timeout=5)
    try:
        for host in ("169.254.169.254", "127.0.0.1", "localhost"):
            with pytest.raises(Refused, match="not allowed"):
                await ChartRepository(f"http://{host}:1", guarded, allow_http=True).versions("app")
    finally:
        await guarded.close()


async def test_only_one_chart_of_a_large_index_is_built(server: ChartServer, http: GuardedHttpClient) -> None:
    lines = ["apiVersion: v1", "entries:"]
    for number in range(2000):
        lines += [
            f"  other-{number}:",
            "  - version: 1.0.0",
            "    urls:",
            "    - a.tgz",
            "    keywords: [a, b, c]",
        ]
    lines += ["  app:", "  - version: 1.0.0", "    urls: [app.tgz]", ""]
    server.index = "\n".join(lines).encode()
    assert [entry.version for entry in await repository(server, http).versions("app")] == ["1.0.0"]
