"""Kubeconfigs from people we do not trust."""

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
    place = document
    for part in parents:
        place = place[int(part) if part.isdigit() else part]
    place[last] = value
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
    ("path", "value", "named"),
    [
        ("users/0/user/exec", {"command": "sh"}, "user.exec: it is not allowed"),
        ("users/0/user/auth-provider", {"name": "oidc"}, "user.auth-provider: it is not allowed"),
        ("users/0/user/tokenFile", "/etc/passwd", "user.tokenFile: it is not allowed"),
        ("users/0/user/client-certificate", "/etc/x", "user.client-certificate: it is not allowed"),
        ("users/0/user/client-key", "/etc/x", "user.client-key: it is not allowed"),
        ("users/0/user/username", "a", "user.username: it is not allowed"),
        ("users/0/user/as", "root", "user.as: it is not allowed"),
        ("users/0/user/as-groups", ["system:masters"], "user.as-groups: it is not allowed"),
        ("users/0/user", {}, "user: it needs a token"),
        ("users/0/user/token", "a\r\nX: y", "user.token: it is not a token"),
        ("users/0/user/token", "", "user.token: it is not a token"),
        ("users/0/user/token", "x" * 70_000, "user.token: it is not a token"),
        ("users/0/user/token", 5, "user.token: it must be text"),
        ("users/0/user", {"client-key-data": b64(b"x")}, "come together"),
        ("clusters/0/cluster/certificate-authority", "/etc/x", "cluster.certificate-authority: it is not"),
        ("clusters/0/cluster/insecure-skip-tls-verify", True, "insecure-skip-tls-verify: it is not allowed"),
        ("clusters/0/cluster/proxy-url", "http://p", "cluster.proxy-url: it is not allowed"),
        ("clusters/0/cluster/tls-server-name", "x", "cluster.tls-server-name: it is not allowed"),
        ("clusters/0/cluster/extensions", [], "cluster.extensions: it is not allowed"),
        ("clusters/0/cluster/certificate-authority-data", "%%", "it is not base64"),
        ("clusters/0/cluster/certificate-authority-data", b64(b"no"), "not a PEM certificate"),
        ("clusters/0/cluster/server", "http://api.example.com", "cluster.server: it must be an https URL"),
        ("clusters/0/cluster/server", "https://u:p@api.example.com", "only a host, a port and a path"),
        ("clusters/0/cluster/server", "https://api.example.com/?x=1", "only a host, a port and a path"),
        ("clusters/0/cluster/server", "https://api.example.com/a/../b", "only a host, a port and a path"),
        ("clusters/0/cluster/server", "https://169.254.169.254", "no cluster may be at 169.254.169.254"),
        ("clusters/0/cluster/server", "https://[fe80::1]", "no cluster may be at fe80::1"),
        ("clusters/0/cluster/server", "https://[::ffff:169.254.169.254]", "no cluster may be at"),
        ("clusters/0/cluster/server", "https://[fd00:ec2::254]", "no cluster may be at"),
        ("clusters/0/cluster/server", "https://100.100.100.200", "no cluster may be at"),
        ("clusters/0/cluster/server", "https://127.0.0.1:6443", "no cluster may be at"),
        ("clusters/0/cluster/server", "https://0.0.0.0", "no cluster may be at"),
        ("clusters/0/cluster/server", "https://localhost", "localhost is not a cluster"),
        ("clusters/0/cluster/server", "https://metadata.google.internal.", "is not a cluster"),
        ("clusters/0/cluster/server", "https://2852039166", "an address in disguise"),
        ("clusters/0/cluster/server", "https://0xa9fea9fe", "an address in disguise"),
        ("clusters/0/cluster/server", "https://169.254.43518", "an address in disguise"),
        ("contexts", GOOD["contexts"] * 2, "contexts: there must be exactly one"),
        ("clusters", [], "clusters: there must be exactly one"),
        ("users", GOOD["users"] * 2, "users: there must be exactly one"),
        ("contexts/0/context/user", "other", "context.user: it is not the name of the user"),
        ("current-context", "other", "current-context: it names no context"),
        ("extensions", [], "extensions: it is not allowed"),
    ],
)
def test_everything_else_is_refused_by_name(path: str, value: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        load_untrusted(changed(path, value))
    assert str(caught.value).startswith("untrusted kubeconfig, ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"a: &x [1]\nb: *x", "anchors and aliases"),
        (b"a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", "anchors and aliases"),
        (b"[" * 50 + b"]" * 50, "nested too deeply"),
        (b"x" * 300_000, "larger than 256 KB"),
        (b"kind: Config\nkind: Config", "the key 'kind' is there twice"),
        (b"a: !!python/object:os.system x", "it is not YAML"),
        (b"\xff\xfe\x00", "it is not YAML"),
        (b"a: [", "it is not YAML"),
        (b"just text", "it is not a mapping"),
        (b"", "it is not a mapping"),
    ],
)
def test_yaml_that_means_harm_is_refused(content: bytes, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load_untrusted(content)


def test_a_secret_never_gets_into_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        load_untrusted(changed("users/0/user/token", "very secret token"))
    assert "secret" not in str(caught.value)


def test_a_name_that_leads_to_a_forbidden_address_is_refused_when_connecting() -> None:
    guard = load_untrusted(yaml.safe_dump(GOOD).encode()).address_guard
    assert guard is not None
    guard("10.0.0.7")
    for address in ("169.254.169.254", "127.0.0.1", "::1", "fe80::1%eth0"):
        with pytest.raises(ForbiddenAddress, match="where no cluster may be"):
            guard(address)


def test_loopback_is_allowed_when_asked_for() -> None:
    content = changed("clusters/0/cluster/server", "https://127.0.0.1:6443")
    assert load_untrusted(content, allow_loopback=True).server == "https://127.0.0.1:6443"
    assert not public_address("169.254.169.254", allow_loopback=True)
