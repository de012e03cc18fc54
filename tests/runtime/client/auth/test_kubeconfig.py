"""Kubeconfig files: merging, choosing a context, paths, and errors that name the place."""

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kapsa.runtime import Client
from kapsa.runtime.client.auth.kubeconfig import Kubeconfig, default_paths
from kapsa.runtime.client.config import environment_proxy, from_kubeconfig, in_cluster, load_config
from kapsa.runtime.errors import ConfigError
from kapsa.runtime.webhooks.certificates import issue_certificate, make_authority

NOW = datetime.now(UTC)
AUTHORITY = make_authority("test", now=NOW, lifetime=timedelta(days=1))
PAIR = issue_certificate(AUTHORITY, ["me"], now=NOW, lifetime=timedelta(days=1), usage="client")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def config(
    *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, namespace: str = ""
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dev",
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }


def oidc(issuer: str = "https://idp", **more: str) -> dict[str, Any]:
    return {
        "auth-provider": {"name": "oidc", "config": {"idp-issuer-url": issuer, "client-id": "kapsa", **more}}
    }


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


# Several files


def test_kubeconfig_names_several_files_and_home_is_the_fallback(tmp_path: Path) -> None:
    assert default_paths({"KUBECONFIG": "/a::/b", "HOME": "/h"}) == [Path("/a"), Path("/b")]
    assert default_paths({"HOME": "/h"}) == [Path("/h/.kube/config")]


def test_the_first_file_to_define_a_name_or_the_current_context_wins_whole(tmp_path: Path) -> None:
    first = config(user={"token": "one"})
    del first["current-context"]
    second = config(cluster={"server": "https://other", "tls-server-name": "x"}, user={"username": "two"})
    second["contexts"].append({"name": "prod", "context": {"cluster": "p", "user": "u"}})
    second["clusters"].append({"name": "p", "cluster": {"server": "https://prod"}})
    merged = Kubeconfig.load([write(tmp_path / "a", first), write(tmp_path / "b", second)])
    assert merged.contexts == ["dev", "prod"]
    dev = merged.select()
    assert (dev.cluster.server, dev.cluster.tls_server_name) == ("https://api:6443", "")
    assert (dev.user.token, dev.user.username) == ("one", "")
    assert merged.select("prod").cluster.server == "https://prod"


def test_a_missing_file_among_several_is_skipped_and_an_empty_one_is_fine(tmp_path: Path) -> None:
    there = write(tmp_path / "there", config())
    empty = write(tmp_path / "empty", "")
    assert Kubeconfig.load([tmp_path / "missing", empty, there]).select().context == "dev"


def test_no_file_at_all_is_an_error_that_names_where_we_looked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kubeconfig not found: .*missing; set KUBECONFIG"):
        Kubeconfig.load([tmp_path / "missing"])


async def test_relative_paths_start_at_the_file_they_are_written_in(tmp_path: Path) -> None:
    (tmp_path / "one" / "pki").mkdir(parents=True)
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "pki" / "ca.pem").write_bytes(AUTHORITY.certificate)
    (tmp_path / "two" / "token").write_text("from-two\n")
    clusters = config(cluster={"certificate-authority": "pki/ca.pem"})
    clusters["users"] = []
    users = {"users": [{"name": "u", "user": {"tokenFile": "token"}}]}
    paths = [write(tmp_path / "one" / "config", clusters), write(tmp_path / "two" / "config", users)]
    access = from_kubeconfig(paths, environment={}).access
    assert (await access.authorize()).headers == (("Authorization", "Bearer from-two"),)


# Errors


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("clusters: [", "is not YAML"),
        ("- a\n- b", "must be a mapping, got list"),
        (
            {"clusters": [{"name": "c", "cluster": {"server": 7}}]},
            r"Expected `str`, got `int` - at `\$.clusters",
        ),
        ({**config(), "current-context": ""}, "current-context is not set; choose one of: dev"),
        ({**config(), "current-context": "prod"}, "context 'prod' does not exist; choose one of: dev"),
        ({**config(), "clusters": []}, "context 'dev', cluster: 'c' is not defined"),
        ({**config(), "users": []}, "context 'dev', user: 'u' is not defined"),
        (config(cluster={"server": ""}), "cluster 'c': server is missing"),
        (config(cluster={"server": "api:6443"}), "cluster.server: 'api:6443' is not an http"),
        (
            config(cluster={"server": "https://api:99999"}),
            "cluster.server: 'https://api:99999' is not a URL: Port",
        ),
        (config(cluster={"server": "https://:6443"}), "cluster.server: 'https://:6443' is not an http"),
        (config(cluster={"server": "https://[fd00::1"}), "cluster.server: .* is not a URL"),
        (
            config(cluster={"proxy-url": "http://proxy:port"}),
            "cluster.proxy-url: 'http://proxy:port' is not a URL",
        ),
        (config(cluster={"proxy-url": "socks5://me:pw@proxy"}), "cluster.proxy-url: 'proxy' is not an http"),
        (
            config(cluster={"certificate-authority-data": "%%"}),
            "certificate-authority-data is not base64",
        ),
        (
            config(cluster={"certificate-authority": "no.pem"}),
            "cluster.certificate-authority: file .* does not exist",
        ),
        (
            config(cluster={"certificate-authority-data": b64(b"x"), "insecure-skip-tls-verify": True}),
            "insecure-skip-tls-verify and certificate-authority exclude",
        ),
        (config(user={"client-certificate-data": b64(b"x")}), "user.client-key is missing"),
        (config(user={"as-groups": ["g"]}), "user.as is missing: as-groups"),
        (config(cluster={"proxy-url": "socks5://p"}), "cluster.proxy-url: 'socks5://p' is not an http"),
        (
            config(user={"auth-provider": {"name": "gcp"}}),
            "user.auth-provider: 'gcp' is not supported any more",
        ),
        (config(user=oidc(issuer="")), "user.auth-provider.config.idp-issuer-url is missing"),
        (
            config(user=oidc(**{"idp-certificate-authority": "no.pem"})),
            "user.auth-provider.config.idp-certificate-authority: file .*no.pem does not exist",
        ),
        (
            config(user=oidc(**{"idp-certificate-authority-data": b64(b"x")})),
            "user.auth-provider.config.idp-certificate-authority: .* is not a PEM certificate",
        ),
        (
            config(user={"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}),
            "user.exec.apiVersion: .* use client.authentication.k8s.io/v1",
        ),
        (
            config(
                user={
                    "exec": {
                        "command": "x",
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "interactiveMode": "Always",
                    }
                }
            ),
            "user.exec.interactiveMode is Always, but an operator has no terminal",
        ),
    ],
)
def test_a_bad_kubeconfig_is_one_line_that_names_file_and_field(
    content: Any, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "bad", content)
    with pytest.raises(ConfigError, match=message) as caught:
        from_kubeconfig([path], environment={})
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


# What a context gives


async def headers_of(tmp_path: Path, **parts: Any) -> dict[str, list[str]]:
    path = write(tmp_path / "config", config(**parts))
    found: dict[str, list[str]] = {}
    for name, value in (await from_kubeconfig([path], environment={}).access.authorize()).headers:
        found.setdefault(name, []).append(value)
    return found


async def test_a_token_a_password_and_impersonation_become_headers(tmp_path: Path) -> None:
    assert await headers_of(tmp_path, user={"token": "t"}) == {"Authorization": ["Bearer t"]}
    basic = await headers_of(tmp_path, user={"username": "a", "password": "b"})
    assert basic == {"Authorization": ["Basic YTpi"]}
    user = {
        "as": "jane",
        "as-uid": "1",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"Example.com/Scope": ["x", "y"]},
    }
    assert await headers_of(tmp_path, user=user) == {
        "Impersonate-User": ["jane"],
        "Impersonate-Uid": ["1"],
        "Impersonate-Group": ["dev", "ops"],
        "Impersonate-Extra-example.com%2Fscope": ["x", "y"],
    }


async def test_certificates_come_from_data_or_from_files_and_data_goes_first(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("not a certificate")
    user = {
        "client-certificate": "bad.pem",
        "client-certificate-data": b64(PAIR.certificate),
        "client-key-data": b64(PAIR.key),
    }
    authority = {"certificate-authority-data": b64(AUTHORITY.certificate)}
    path = write(tmp_path / "config", config(cluster=authority, user=user))
    authorization = await from_kubeconfig([path], environment={}).access.authorize()
    assert not isinstance(authorization.tls, bool)


def test_a_certificate_that_is_none_is_named_at_once_with_file_and_context(tmp_path: Path) -> None:
    path = write(tmp_path / "config", config(cluster={"certificate-authority-data": b64(b"nothing")}))
    with pytest.raises(ConfigError, match=r"config, context 'dev': the certificate authority is not a PEM"):
        from_kubeconfig([path], environment={})


def test_a_key_that_belongs_to_another_certificate_is_told_at_once(tmp_path: Path) -> None:
    user = {"client-certificate-data": b64(PAIR.certificate), "client-key-data": b64(AUTHORITY.key)}
    path = write(tmp_path / "config", config(user=user))
    with pytest.raises(
        ConfigError, match="config, context 'dev': the private key does not match the certificate"
    ):
        from_kubeconfig([path], environment={})


def test_a_client_says_which_cluster_it_talks_to_and_who_said_so(tmp_path: Path) -> None:
    path = write(tmp_path / "config", config(cluster={"server": "https://api.example.com:6443"}))
    cluster = Client.connect(kubeconfig=path).cluster
    assert cluster == f"https://api.example.com:6443 (kubeconfig {path}, context 'dev')"


async def test_a_plain_http_server_needs_no_trust_store(tmp_path: Path) -> None:
    path = write(tmp_path / "config", config(cluster={"server": "http://127.0.0.1:8001"}))
    assert (await from_kubeconfig([path], environment={}).access.authorize()).tls is True


async def test_a_token_with_a_line_break_cannot_smuggle_a_header(tmp_path: Path) -> None:
    from kapsa.runtime.errors import CredentialError

    with pytest.raises(CredentialError, match="line break"):
        await headers_of(tmp_path, user={"token": "a\r\nImpersonate-User: root"})


def test_namespace_server_name_and_proxy_come_from_the_context(tmp_path: Path) -> None:
    cluster = {"tls-server-name": "api.internal", "proxy-url": "http://proxy:3128"}
    target = from_kubeconfig(
        [write(tmp_path / "c", config(cluster=cluster, namespace="shop"))], environment={}
    )
    assert target.namespace == "shop"
    assert (target.access.server_name, target.access.proxy) == ("api.internal", "http://proxy:3128")


def test_the_environment_names_a_proxy_and_who_is_exempt() -> None:
    environment = {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "10.0.0.0/8,.svc,exact.example.com"}
    assert environment_proxy("https://api.example.com", environment) == "http://proxy:3128"
    for exempt in (
        "10.1.2.3:443",
        "kubernetes.default.svc",
        "exact.example.com:6443",
        "127.0.0.1",
        "localhost",
    ):
        assert environment_proxy(f"https://{exempt}", environment) is None
    assert environment_proxy("https://11.1.2.3", environment) == "http://proxy:3128"
    assert environment_proxy("http://api.example.com", environment) is None


# Which cluster is meant


def service_account(directory: Path) -> Path:
    directory.mkdir()
    (directory / "token").write_text("first")
    (directory / "ca.crt").write_bytes(AUTHORITY.certificate)
    (directory / "namespace").write_text("operators\n")
    return directory


async def test_in_a_pod_the_service_account_is_used(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    target = in_cluster(environment=environment, directory=service_account(tmp_path / "sa"))
    assert target.access.server == "https://[fd00::1]:443"
    assert target.namespace == "operators"
    assert (await target.access.authorize()).headers == (("Authorization", "Bearer first"),)


def test_outside_a_cluster_in_cluster_says_so() -> None:
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST"):
        in_cluster(environment={})


def test_a_named_kubeconfig_goes_before_the_environment_before_the_pod_before_home(tmp_path: Path) -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    home = write(tmp_path / "home" / ".kube" / "config", config(cluster={"server": "https://home"}))
    named = write(tmp_path / "named", config(cluster={"server": "https://named"}))
    variable = write(tmp_path / "variable", config(cluster={"server": "https://variable"}))
    everything = {**pod, "KUBECONFIG": str(variable), "HOME": str(home.parent.parent)}
    assert load_config(kubeconfig=named, environment=everything).access.server == "https://named"
    assert load_config(environment=everything).access.server == "https://variable"
    del everything["KUBECONFIG"]
    assert load_config(environment=everything).access.server == "https://10.0.0.1:443"
    assert load_config(environment={"HOME": everything["HOME"]}).access.server == "https://home"
