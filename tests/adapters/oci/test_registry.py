"""Registries over their API: images that exist, that do not, and errors that leave it open."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from kapsa.adapters.errors import (
    AuthFailed,
    ExternalError,
    ExternalNotFound,
    LimitExceeded,
    Refused,
    Unreachable,
)
from kapsa.adapters.http.address_guard import reject_internal_address
from kapsa.adapters.http.client import GuardedHttpClient, HttpResponse
from kapsa.adapters.oci.credentials import RegistryCredentials, docker_config
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.adapters.oci.registries import ImageRegistries
from kapsa.adapters.oci.registry import ImageRegistry
from kapsa.adapters.testing.registry_server import RegistryServer

PASSWORD = "hunter2-very-secret"
LOGIN = RegistryCredentials(username="robot", password=PASSWORD)
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def image(server: RegistryServer, tag: str = COMMIT) -> ImageReference:
    return ImageReference.parse(f"{server.endpoint}/team/app:{tag}")


def asked(server: RegistryServer, credentials: RegistryCredentials | None = None) -> ImageRegistry:
    return ImageRegistry(f"http://{server.endpoint}", server.http, credentials=credentials, insecure=True)


async def test_the_digest_of_an_image_is_returned_and_none_for_a_missing_one(
    registry_server: RegistryServer,
) -> None:
    digest = registry_server.push("team/app", COMMIT)
    http = GuardedHttpClient(address_guard=None)
    registry = ImageRegistry(registry_server.endpoint, http, insecure=True)
    try:
        assert await registry.digest(image(registry_server)) == digest
        assert await registry.digest(image(registry_server, "another")) is None
        assert await registry.digest(image(registry_server).with_digest(digest)) == digest
    finally:
        await http.close()


class FixedResponse:
    """An HTTP client that gets one response to everything."""

    def __init__(self, status: int, body: bytes) -> None:
        self._response = HttpResponse(status, {}, body)

    async def fetch(self, method: str, url: str, **_: object) -> HttpResponse:
        return self._response


@pytest.mark.parametrize("status", [400, 403, 404, 418, 500])
async def test_nothing_that_a_registry_writes_is_in_an_error_but_its_codes(status: int) -> None:
    hostile = {"code": "RUN ME", "message": "call +1 555 0100", "detail": "root:x:0:0"}
    bodies = {
        json.dumps({"errors": [hostile, {"code": "DENIED"}, {"code": "DENIED"}]}).encode(): True,
        b"root:x:0:0:root:/root:/bin/sh": False,
        b'{"errors": "DENIED"}': False,
        b"": False,
    }
    for body, shown in bodies.items():
        registry = ImageRegistry("https://registry.example.com", FixedResponse(status, body))
        with pytest.raises(ExternalError) as error:
            await registry.manifest(ImageReference.parse("registry.example.com/team/app:1"))
        assert not [each for each in ("root", "555", "RUN") if each in str(error.value)]
        assert status == 404 or ("DENIED" in str(error.value)) == shown


async def test_concurrent_requests_detect_the_protocol_independently(
    registry_server: RegistryServer,
) -> None:
    digest = registry_server.push("team/app", COMMIT)
    http = GuardedHttpClient(address_guard=None)
    registry = ImageRegistry(registry_server.endpoint, http, insecure=True)
    try:
        digests = await asyncio.gather(*(registry.digest(image(registry_server)) for _ in range(4)))
    finally:
        await http.close()
    assert digests == [digest] * 4


@pytest.mark.virtual_time
async def test_a_login_by_token_works_and_the_token_is_used_again() -> None:
    server = RegistryServer()
    server.login = ("robot", PASSWORD)
    digest = server.push("team/app", COMMIT)
    registry = asked(server, LOGIN)
    assert [await registry.digest(image(server)) for _ in range(3)] == [digest] * 3
    assert [request.path for request in server.requests].count("/token") == 1
    server.forget_tokens()
    assert await registry.digest(image(server)) == digest


async def test_a_login_by_name_and_password_works() -> None:
    server = RegistryServer()
    server.login, server.token_login = ("robot", PASSWORD), False
    digest = server.push("team/app", COMMIT)
    assert await asked(server, LOGIN).digest(image(server)) == digest
    await asked(server, LOGIN).verify()


async def test_a_refresh_token_takes_the_place_of_a_password() -> None:
    server = RegistryServer()
    server.login, server.identity_token = ("robot", PASSWORD), "refresh-me-please"
    server.push("team/app", COMMIT)
    credentials = RegistryCredentials(identity_token="refresh-me-please")
    assert await asked(server, credentials).digest(image(server)) is not None


@pytest.mark.parametrize("by_token", [True, False])
async def test_credentials_that_are_wrong_missing_or_insufficient_are_not_a_missing_image(
    by_token: bool,
) -> None:
    server = RegistryServer()
    server.login, server.token_login = ("robot", PASSWORD), by_token
    wrong = RegistryCredentials(username="robot", password="another-password")
    for credentials in (None, wrong):
        with pytest.raises(AuthFailed) as error:
            await asked(server, credentials).digest(image(server))
        assert not error.value.retryable
        assert "another-password" not in str(error.value)
    server.readable = False
    with pytest.raises(AuthFailed, match="403"):
        await asked(server, LOGIN).digest(image(server))


@pytest.mark.parametrize("status", [500, 502, 503, 429])
async def test_a_registry_in_trouble_is_not_a_missing_image(status: int) -> None:
    server = RegistryServer()
    digest = server.push("team/app", COMMIT)
    server.fail(status, headers={"Retry-After": "7"})
    registry = asked(server)
    with pytest.raises(Unreachable) as error:
        await registry.digest(image(server))
    assert (error.value.retryable, error.value.retry_after) == (True, 7.0)
    assert await registry.digest(image(server)) == digest


async def test_a_token_service_in_trouble_is_not_a_wrong_password() -> None:
    server = RegistryServer()
    server.login = ("robot", PASSWORD)
    server.fail(503, path="/token")
    with pytest.raises(Unreachable):
        await asked(server, LOGIN).verify()


async def test_without_a_digest_or_head_the_manifest_is_requested() -> None:
    server = RegistryServer()
    digest = server.push("team/app", COMMIT)
    server.returns_digests = False
    assert await asked(server).digest(image(server)) == digest
    server.supports_head = False
    assert await asked(server).digest(image(server)) == digest
    assert await asked(server).digest(image(server, "another")) is None


async def test_a_registry_is_verified_with_its_own_login() -> None:
    server = RegistryServer()
    await asked(server).verify()
    server.login = ("robot", PASSWORD)
    await asked(server, LOGIN).verify()
    with pytest.raises(AuthFailed, match="rejected"):
        await asked(server, RegistryCredentials(username="robot", password="wrong")).verify()
    server.fail(404, path="/v2/")
    with pytest.raises(ExternalNotFound, match="not an image registry"):
        await asked(server, LOGIN).verify()


async def test_a_redirect_to_another_server_gets_no_credentials(registry_server: RegistryServer) -> None:
    with RegistryServer() as elsewhere:
        digest = elsewhere.push("team/app", COMMIT)
        registry_server.login, registry_server.token_login = ("robot", PASSWORD), False
        registry_server.redirect_to = f"http://{elsewhere.endpoint}"
        http = GuardedHttpClient(address_guard=None)
        try:
            registry = ImageRegistry(
                f"http://{registry_server.endpoint}", http, credentials=LOGIN, insecure=True
            )
            assert await registry.digest(image(registry_server)) == digest
        finally:
            await http.close()
    assert elsewhere.requests
    assert not [request for request in elsewhere.requests if "authorization" in request.headers]


async def test_plain_http_is_used_only_if_it_is_allowed(registry_server: RegistryServer) -> None:
    with pytest.raises(Refused, match="plain http"):
        ImageRegistry(f"http://{registry_server.endpoint}", registry_server.http)
    http = GuardedHttpClient(address_guard=None)
    try:
        with pytest.raises(Unreachable):
            await ImageRegistry(registry_server.endpoint, http).verify()
    finally:
        await http.close()
    assert registry_server.requests == []


async def test_a_token_service_over_plain_http_is_refused() -> None:
    server = RegistryServer()
    challenge = 'Bearer realm="http://tokens.example.com/token",service="x"'
    server.fail(401, headers={"WWW-Authenticate": challenge})
    with pytest.raises(Refused, match="token"):
        await ImageRegistry("registry.test", server.http, credentials=LOGIN).verify()
    assert [request.path for request in server.requests] == ["/v2/"]


async def test_internal_addresses_are_refused_when_connecting(registry_server: RegistryServer) -> None:
    http = GuardedHttpClient(address_guard=reject_internal_address)
    try:
        for endpoint in (registry_server.endpoint, f"localhost:{registry_server.port}", "169.254.169.254"):
            with pytest.raises(Refused, match="is not allowed for a server"):
                await ImageRegistry(f"http://{endpoint}", http, insecure=True).verify()
    finally:
        await http.close()
    assert registry_server.requests == []


async def test_a_redirect_to_an_internal_address_is_refused(registry_server: RegistryServer) -> None:
    def guard(address: str) -> None:
        if address != "127.0.0.1":
            raise Refused(f"address {address} is not allowed for a server")

    registry_server.push("team/app", COMMIT)
    registry_server.redirect_to = "http://169.254.169.254"
    http = GuardedHttpClient(address_guard=guard)
    try:
        registry = ImageRegistry(f"http://{registry_server.endpoint}", http, insecure=True)
        with pytest.raises(Refused, match=r"169\.254\.169\.254"):
            await registry.digest(image(registry_server))
    finally:
        await http.close()


async def test_an_endless_response_is_aborted(registry_server: RegistryServer) -> None:
    registry_server.push("team/app", COMMIT)
    http = GuardedHttpClient(address_guard=None)
    url = f"http://{registry_server.endpoint}/v2/team/app/manifests/{COMMIT}"
    try:
        with pytest.raises(LimitExceeded):
            await http.fetch("GET", url, limit=10)
    finally:
        await http.close()


async def test_tokens_are_kept_for_each_registry_and_login() -> None:
    server = RegistryServer()
    server.login = ("robot", PASSWORD)
    digest = server.push("team/app", COMMIT)
    images = ImageRegistries(server.http)
    image = ImageReference.parse(f"registry.test/team/app:{COMMIT}")
    for endpoint in ("registry.test", "https://registry.test/team", "registry.test"):
        assert await images.digest(image, endpoint=endpoint, credentials=LOGIN) == digest
    assert [request.path for request in server.requests].count("/token") == 2
    with pytest.raises(AuthFailed):
        await images.digest(image, endpoint="registry.test")


async def test_credentials_go_to_the_registry_that_they_are_for_and_to_no_other() -> None:
    server = RegistryServer()
    server.login, server.token_login = ("robot", PASSWORD), False
    digest = server.push("team/app", COMMIT)
    images = ImageRegistries(server.http)
    hub = "https://index.docker.io/v1/"
    ours, another = (
        ImageReference.parse(f"{name}/team/app:{COMMIT}") for name in ("docker.io", "registry.test")
    )
    assert await images.digest(ours, endpoint=hub, credentials=LOGIN) == digest
    server.requests.clear()
    with pytest.raises(AuthFailed):
        await images.digest(another, endpoint=hub, credentials=LOGIN)
    assert all("authorization" not in request.headers for request in server.requests)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("app", "docker.io/library/app"),
        ("org/app:1", "docker.io/org/app:1"),
        ("index.docker.io/org/app", "docker.io/org/app"),
        ("localhost:5000/app", "localhost:5000/app"),
        ("registry.example.com/a/b/c:x", "registry.example.com/a/b/c:x"),
    ],
)
def test_an_image_is_named_as_container_runtimes_name_it(text: str, expected: str) -> None:
    assert str(ImageReference.parse(text)) == expected


@pytest.mark.parametrize(
    "text",
    ["", "App", "a b", "-x", "app:", "app:-x", "app@sha256:1", "a/../b", "app,push=false", 'a"b', "x@y"],
)
def test_an_invalid_image_name_is_rejected(text: str) -> None:
    with pytest.raises(Refused):
        ImageReference.parse(text)


def test_a_repository_in_another_registry_than_the_one_with_the_credentials_is_refused() -> None:
    assert str(ImageReference.within("https://r.example.com/team/", "app")) == "r.example.com/team/app"
    assert str(ImageReference.within("r.example.com", "r.example.com/a/b")) == "r.example.com/a/b"
    assert str(ImageReference.within("docker.io", "index.docker.io/a/b")) == "docker.io/a/b"
    assert str(ImageReference.within("https://index.docker.io/v1/", "a/b")) == "docker.io/a/b"
    assert str(ImageReference.within("docker.io/a", "b")) == "docker.io/a/b"
    with pytest.raises(Refused, match="not in the registry"):
        ImageReference.within("r.example.com", "evil.example.com/a/b")


def test_credentials_are_read_from_secrets_of_all_common_types() -> None:
    plain = {"data": {"username": "cm9ib3Q=", "password": base64.b64encode(PASSWORD.encode()).decode()}}
    assert RegistryCredentials.from_secret(plain, "r.example.com") == LOGIN
    auths = {
        "https://index.docker.io/v1/": {"auth": base64.b64encode(b"hub:hub-password").decode()},
        "r.example.com": {"username": "robot", "password": PASSWORD},
        "r.example.com/team": {"username": "team", "password": "team-password"},
    }
    secret = {"stringData": {".dockerconfigjson": json.dumps({"auths": auths})}}
    assert RegistryCredentials.from_secret(secret, "https://r.example.com") == LOGIN
    assert RegistryCredentials.from_secret(secret, "r.example.com/team/app").username == "team"
    assert RegistryCredentials.from_secret(secret, "docker.io").username == "hub"
    for broken in (
        {},
        {"stringData": {".dockerconfigjson": "{"}},
        {"stringData": {".dockerconfigjson": "{}"}},
    ):
        with pytest.raises(AuthFailed):
            RegistryCredentials.from_secret(broken, "r.example.com")
    assert PASSWORD not in repr(LOGIN)


def test_a_generated_docker_config_is_read_back_as_the_same_credentials() -> None:
    for registry in (
        "docker.io",
        "https://index.docker.io/v1/",
        "r.example.com:5000",
        "https://r.example.com/team",
    ):
        secret = {"stringData": {".dockerconfigjson": docker_config(registry, LOGIN)}}
        assert RegistryCredentials.from_secret(secret, registry) == LOGIN
