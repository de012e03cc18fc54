"""Kubeconfigs from untrusted sources."""

import base64
import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from kapsa.runtime.client.auth.untrusted import load_untrusted, public_address
from kapsa.runtime.errors import ConfigError, ForbiddenAddress
from kapsa.runtime.webhooks.certificates import issue_certificate, make_authority

NOW = datetime.now(UTC)
AUTHORITY = make_authority("test", now=NOW, lifetime=timedelta(days=1))
PAIR = issue_certificate(AUTHORITY, ["me"], now=NOW, lifetime=timedelta(days=1), usage="client")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


GOOD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "x",
    "preferences": {},
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
    "clusters": [
        {
            "name": "c",
            "cluster": {
                "server": "https://api.example.com:6443",
                "certificate-authority-data": b64(AUTHORITY.certificate),
            },
        }
    ],
    "users": [{"name": "u", "user": {"token": "abc.def"}}],
}


def changed(path: str, value: Any) -> bytes:
    document: Any = copy.deepcopy(GOOD)
    *parents, last = path.split("/")
    parent = document
    for part in parents:
        parent = parent[int(part) if part.isdigit() else part]
    parent[last] = value
    return json.dumps(document).encode()  # YAML too, and free of anchors


async def test_a_server_an_authority_and_a_token_are_enough() -> None:
    access = load_untrusted(yaml.safe_dump(GOOD).encode())
    assert access.server == "https://api.example.com:6443"
    assert access.proxy is None
    assert (await access.authorize()).headers == (("Authorization", "Bearer abc.def"),)


async def test_a_client_certificate_as_data_is_accepted_too() -> None:
    user = {"client-certificate-data": b64(PAIR.certificate), "client-key-data": b64(PAIR.key)}
    assert (await load_untrusted(changed("users/0/user", user)).authorize()).headers == ()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("users/0/user/exec", {"command": "sh"}, "user.exec is not allowed"),
        ("users/0/user/auth-provider", {"name": "oidc"}, "user.auth-provider is not allowed"),
        ("users/0/user/tokenFile", "/etc/passwd", "user.tokenFile is not allowed"),
        ("users/0/user/client-certificate", "/etc/x", "user.client-certificate is not allowed"),
        ("users/0/user/client-key", "/etc/x", "user.client-key is not allowed"),
        ("users/0/user/username", "a", "user.username is not allowed"),
        ("users/0/user/as", "root", "user.as is not allowed"),
        ("users/0/user/as-groups", ["system:masters"], "user.as-groups is not allowed"),
        ("users/0/user", {}, "user needs a token"),
        ("users/0/user/token", "a\r\nX: y", "user.token is not a valid token"),
        ("users/0/user/token", "", "user.token is not a valid token"),
        ("users/0/user/token", "x" * 70_000, "user.token is not a valid token"),
        ("users/0/user/token", 5, "user.token must be a string"),
        (
            "users/0/user",
            {"client-key-data": b64(b"x")},
            "must set client-certificate-data and client-key-data together",
        ),
        ("clusters/0/cluster/certificate-authority", "/etc/x", "cluster.certificate-authority is not"),
        ("clusters/0/cluster/insecure-skip-tls-verify", True, "insecure-skip-tls-verify is not allowed"),
        ("clusters/0/cluster/proxy-url", "http://p", "cluster.proxy-url is not allowed"),
        ("clusters/0/cluster/tls-server-name", "x", "cluster.tls-server-name is not allowed"),
        ("clusters/0/cluster/extensions", [], "cluster.extensions is not allowed"),
        ("clusters/0/cluster/certificate-authority-data", "%%", "certificate-authority-data is not base64"),
        ("clusters/0/cluster/certificate-authority-data", b64(b"no"), "not a PEM certificate"),
        ("clusters/0/cluster/server", "http://api.example.com", "cluster.server must be an https URL"),
        (
            "clusters/0/cluster/server",
            "https://u:p@api.example.com",
            "may only have a host, a port and a path",
        ),
        (
            "clusters/0/cluster/server",
            "https://api.example.com/?x=1",
            "may only have a host, a port and a path",
        ),
        (
            "clusters/0/cluster/server",
            "https://api.example.com/a/../b",
            "may only have a host, a port and a path",
        ),
        ("clusters/0/cluster/server", "https://169.254.169.254", "address 169.254.169.254 is not allowed"),
        ("clusters/0/cluster/server", "https://[fe80::1]", "address fe80::1 is not allowed"),
        ("clusters/0/cluster/server", "https://[::ffff:169.254.169.254]", "address .* is not allowed"),
        ("clusters/0/cluster/server", "https://[fd00:ec2::254]", "address .* is not allowed"),
        ("clusters/0/cluster/server", "https://[fd20:ce::254]", "address .* is not allowed"),
        ("clusters/0/cluster/server", "https://100.100.100.200", "address .* is not allowed"),
        ("clusters/0/cluster/server", "https://192.0.0.192", "address .* is not allowed"),
        ("clusters/0/cluster/server", "https://127.0.0.1:6443", "address .* is not allowed"),
        ("clusters/0/cluster/server", "https://0.0.0.0", "address .* is not allowed"),
        ("clusters/0/cluster/server", "https://localhost", "host localhost is not allowed"),
        ("clusters/0/cluster/server", "https://metadata.google.internal.", "host .* is not allowed"),
        ("clusters/0/cluster/server", "https://2852039166", "an encoded IP address"),
        ("clusters/0/cluster/server", "https://0xa9fea9fe", "an encoded IP address"),
        ("clusters/0/cluster/server", "https://169.254.43518", "an encoded IP address"),
        ("contexts", GOOD["contexts"] * 2, "contexts must have exactly one entry"),
        ("clusters", [], "clusters must have exactly one entry"),
        ("users", GOOD["users"] * 2, "users must have exactly one entry"),
        ("contexts/0/context/user", "other", "context.user must be the name of the user"),
        ("current-context", "other", "current-context must name the context"),
        ("extensions", [], "extensions is not allowed"),
    ],
)
def test_any_other_field_is_rejected_by_name(path: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_untrusted(changed(path, value))
    assert str(caught.value).startswith("untrusted kubeconfig: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: &x [1]\nb: *x", "anchors or aliases"),
        (b"a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", "anchors or aliases"),
        (b"[" * 50 + b"]" * 50, "nested too deeply"),
        (b"x" * 300_000, "larger than 256 KB"),
        (b"kind: Config\nkind: Config", "contains the key 'kind' twice"),
        (b"a: !!python/object:os.system x", "file is not YAML"),
        (b"\xff\xfe\x00", "file is not YAML"),
        (b"a: [", "file is not YAML"),
        (b"just text", "file is not a mapping"),
        (b"", "file is not a mapping"),
    ],
)
def test_malicious_yaml_is_rejected(content: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_untrusted(content)


def test_an_error_never_contains_a_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        load_untrusted(changed("users/0/user/token", "very secret token"))
    assert "secret" not in str(caught.value)


def test_a_name_that_resolves_to_a_forbidden_address_is_rejected_at_the_connection() -> None:
    guard = load_untrusted(yaml.safe_dump(GOOD).encode()).address_guard
    assert guard is not None
    guard("10.0.0.7")
    for address in ("169.254.169.254", "127.0.0.1", "::1", "fe80::1%eth0"):
        with pytest.raises(ForbiddenAddress, match="not allowed as the address of a cluster"):
            guard(address)


def test_loopback_is_allowed_if_set() -> None:
    content = changed("clusters/0/cluster/server", "https://127.0.0.1:6443")
    assert load_untrusted(content, allow_loopback=True).server == "https://127.0.0.1:6443"
    assert not public_address("169.254.169.254", allow_loopback=True)
