"""The configuration of the client, from kubeconfigs and from a pod's service account."""

from pathlib import Path
from typing import Any

import pytest

from kapsa.runtime import Client
from kapsa.runtime.client.config import environment_proxy, from_kubeconfig, in_cluster, load_config
from kapsa.runtime.errors import ConfigError, CredentialError
from tests.runtime.client.kubeconfigs import AUTHORITY, PAIR, b64, config, oidc, write

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
        ({**config(), "clusters": []}, "context 'dev': cluster 'c' is not defined"),
        ({**config(), "users": []}, "context 'dev': user 'u' is not defined"),
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
def test_the_error_for_a_bad_kubeconfig_is_one_line_that_names_file_and_field(
    content: Any, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "bad", content)
    with pytest.raises(ConfigError, match=message) as caught:
        from_kubeconfig([path], environment={})
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


# Access from a context


async def headers_of(tmp_path: Path, **parts: Any) -> dict[str, list[str]]:
    path = write(tmp_path / "config", config(**parts))
    headers: dict[str, list[str]] = {}
    for name, value in (await from_kubeconfig([path], environment={}).access.authorize()).headers:
        headers.setdefault(name, []).append(value)
    return headers


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


async def test_data_of_a_certificate_takes_precedence_over_its_file(tmp_path: Path) -> None:
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


def test_the_error_for_an_invalid_authority_names_file_and_context(tmp_path: Path) -> None:
    path = write(tmp_path / "config", config(cluster={"certificate-authority-data": b64(b"nothing")}))
    with pytest.raises(ConfigError, match=r"config, context 'dev': the certificate authority is not a PEM"):
        from_kubeconfig([path], environment={})


def test_a_key_that_does_not_match_its_certificate_is_rejected_at_once(tmp_path: Path) -> None:
    user = {"client-certificate-data": b64(PAIR.certificate), "client-key-data": b64(AUTHORITY.key)}
    path = write(tmp_path / "config", config(user=user))
    with pytest.raises(
        ConfigError, match="config, context 'dev': the private key does not match the certificate"
    ):
        from_kubeconfig([path], environment={})


def test_the_description_of_the_cluster_names_server_kubeconfig_and_context(tmp_path: Path) -> None:
    path = write(tmp_path / "config", config(cluster={"server": "https://api.example.com:6443"}))
    cluster = Client.connect(kubeconfig=path).cluster
    assert cluster == f"https://api.example.com:6443 (kubeconfig {path}, context 'dev')"


async def test_a_plain_http_server_needs_no_trust_store(tmp_path: Path) -> None:
    path = write(tmp_path / "config", config(cluster={"server": "http://127.0.0.1:8001"}))
    assert (await from_kubeconfig([path], environment={}).access.authorize()).tls is True


async def test_a_token_with_a_line_break_cannot_inject_a_header(tmp_path: Path) -> None:
    with pytest.raises(CredentialError, match="line break"):
        await headers_of(tmp_path, user={"token": "a\r\nImpersonate-User: root"})


def test_namespace_server_name_and_proxy_come_from_the_context(tmp_path: Path) -> None:
    cluster = {"tls-server-name": "api.internal", "proxy-url": "http://proxy:3128"}
    loaded = from_kubeconfig(
        [write(tmp_path / "c", config(cluster=cluster, namespace="shop"))], environment={}
    )
    assert loaded.namespace == "shop"
    assert (loaded.access.server_name, loaded.access.proxy) == ("api.internal", "http://proxy:3128")


def test_the_environment_sets_the_proxy_and_its_exemptions() -> None:
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


# The choice of a cluster


def service_account(directory: Path) -> Path:
    directory.mkdir()
    (directory / "token").write_text("first")
    (directory / "ca.crt").write_bytes(AUTHORITY.certificate)
    (directory / "namespace").write_text("operators\n")
    return directory


async def test_in_a_pod_the_service_account_is_used(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    loaded = in_cluster(environment=environment, directory=service_account(tmp_path / "sa"))
    assert loaded.access.server == "https://[fd00::1]:443"
    assert loaded.namespace == "operators"
    assert (await loaded.access.authorize()).headers == (("Authorization", "Bearer first"),)


def test_in_cluster_fails_outside_a_cluster() -> None:
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST"):
        in_cluster(environment={})


def test_a_kubeconfig_argument_wins_over_the_variable_over_the_pod_over_home(tmp_path: Path) -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    home = write(tmp_path / "home" / ".kube" / "config", config(cluster={"server": "https://home"}))
    argument = write(tmp_path / "argument", config(cluster={"server": "https://argument"}))
    variable = write(tmp_path / "variable", config(cluster={"server": "https://variable"}))
    environment = {**pod, "KUBECONFIG": str(variable), "HOME": str(home.parent.parent)}
    assert load_config(kubeconfig=argument, environment=environment).access.server == "https://argument"
    assert load_config(environment=environment).access.server == "https://variable"
    del environment["KUBECONFIG"]
    assert load_config(environment=environment).access.server == "https://10.0.0.1:443"
    assert load_config(environment={"HOME": environment["HOME"]}).access.server == "https://home"


async def test_relative_paths_start_at_the_directory_of_their_file(tmp_path: Path) -> None:
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
