"""The configuration of the client: from a kubeconfig, or from the service account of the pod it runs in."""

import functools
import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from kapsa.runtime.client.auth.access import ClusterAccess, RotatingAccess
from kapsa.runtime.client.auth.credentials import (
    CredentialSource,
    DeclaredCredentials,
    Headers,
    RereadFile,
    content_of,
)
from kapsa.runtime.client.auth.exec_plugin import VERSIONS, ExecPlugin
from kapsa.runtime.client.auth.kubeconfig import (
    Kubeconfig,
    SelectedContext,
    decode_data,
    default_paths,
    update_auth_provider,
)
from kapsa.runtime.client.http.url import HttpUrl
from kapsa.runtime.clock import Clock, SystemClock
from kapsa.runtime.errors import ConfigError

__all__ = ["ClusterConfig", "from_kubeconfig", "in_cluster", "load_config"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


class ClusterConfig(NamedTuple):
    """Access to a cluster, and the default namespace."""

    access: ClusterAccess
    namespace: str
    origin: str
    """The source: kubeconfig and context, or the pod's service account."""


def load_config(
    *,
    kubeconfig: Path | str | None = None,
    context: str | None = None,
    environment: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> ClusterConfig:
    """Return the first of: the kubeconfig passed, `KUBECONFIG`, the pod's own cluster, `~/.kube/config`."""
    environment = os.environ if environment is None else environment
    if kubeconfig is not None:
        return from_kubeconfig([Path(kubeconfig)], context=context, environment=environment, clock=clock)
    if environment.get("KUBECONFIG") or context or "KUBERNETES_SERVICE_HOST" not in environment:
        paths = default_paths(environment)
        return from_kubeconfig(paths, context=context, environment=environment, clock=clock)
    return in_cluster(environment=environment, clock=clock)


def in_cluster(
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path = SERVICE_ACCOUNT,
    clock: Clock | None = None,
) -> ClusterConfig:
    """Return the cluster that this pod runs in, with its service account.

    Token and CA are reread as they rotate.
    """
    environment = os.environ if environment is None else environment
    clock = clock or SystemClock()
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigError(
            "not running in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    namespace_file = directory / "namespace"
    namespace = namespace_file.read_text().strip() if namespace_file.exists() else "default"
    token = RereadFile(directory / "token", name="the service account token", clock=clock)
    authority = RereadFile(directory / "ca.crt", name="the certificate authority of the cluster", clock=clock)
    access = RotatingAccess(
        server,
        DeclaredCredentials(token_file=token),
        authority=authority,
        proxy=environment_proxy(server, environment),
        proxy_authority=_proxy_authority(environment, clock),
    )
    return ClusterConfig(access, namespace, "the pod's service account")


def from_kubeconfig(
    paths: list[Path],
    *,
    context: str | None = None,
    environment: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> ClusterConfig:
    """Return the cluster of a context in one or more kubeconfig files."""
    environment = os.environ if environment is None else environment
    clock = clock or SystemClock()
    chosen = Kubeconfig.load(paths).select(context)
    cluster = chosen.cluster
    _check_url(chosen, "cluster.server", cluster.server)
    authority = _content(
        chosen, "cluster.certificate-authority", cluster.certificate_authority,
        cluster.certificate_authority_data, clock,
    )  # fmt: skip
    if cluster.insecure_skip_tls_verify and authority is not None:
        raise ConfigError(
            f"{chosen.describe('cluster.insecure-skip-tls-verify')} and certificate-authority "
            "exclude each other; remove one of them"
        )
    access = RotatingAccess(
        cluster.server,
        _credentials(chosen, authority, clock),
        authority=authority,
        insecure=cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name or None,
        proxy=_proxy(chosen, environment),
        proxy_authority=_proxy_authority(environment, clock),
        impersonate=_impersonation(chosen),
        origin=chosen.describe(),
    )
    access.check()
    return ClusterConfig(access, chosen.namespace or "default", chosen.describe())


def _credentials(
    chosen: SelectedContext, authority: bytes | RereadFile | None, clock: Clock
) -> CredentialSource:
    user = chosen.user
    if user.exec_config is not None:
        return _exec_plugin(chosen, authority, clock)
    if user.auth_provider is not None:
        return _auth_provider(chosen, clock)
    token_file = None
    if user.token_file:
        path = _resolve(chosen.user_file, user.token_file)
        token_file = RereadFile(path, name=chosen.describe("user.tokenFile"), clock=clock)
    certificate = _content(
        chosen, "user.client-certificate", user.client_certificate, user.client_certificate_data, clock
    )
    key = _content(chosen, "user.client-key", user.client_key, user.client_key_data, clock)
    if (certificate is None) != (key is None):
        missing = "user.client-certificate" if certificate is None else "user.client-key"
        raise ConfigError(
            f"{chosen.describe(missing)} is missing; a client certificate and its key must be set together"
        )
    return DeclaredCredentials(
        token=user.token or None,
        token_file=token_file,
        certificate=certificate,
        key=key,
        username=user.username or None,
        password=user.password or None,
    )


def _exec_plugin(chosen: SelectedContext, authority: bytes | RereadFile | None, clock: Clock) -> ExecPlugin:
    config = chosen.user.exec_config
    assert config is not None
    if config.api_version not in VERSIONS:
        raise ConfigError(
            f"{chosen.describe('user.exec.apiVersion')}: {config.api_version!r} is not supported; "
            f"use {VERSIONS[0]}"
        )
    if config.interactive_mode == "Always":
        raise ConfigError(
            f"{chosen.describe('user.exec.interactiveMode')} is Always, but an operator has no terminal; "
            "use a plugin that works without one"
        )
    cluster = _cluster_info(chosen, authority) if config.provide_cluster_info else None
    return ExecPlugin(config, directory=chosen.user_file.parent, cluster=cluster, clock=clock)


def _cluster_info(chosen: SelectedContext, authority: bytes | RereadFile | None) -> dict[str, Any]:
    """Return the cluster as a plugin with `provideClusterInfo` gets it."""
    cluster = chosen.cluster
    info: dict[str, Any] = {"server": cluster.server}
    if cluster.tls_server_name:
        info["tls-server-name"] = cluster.tls_server_name
    if cluster.insecure_skip_tls_verify:
        info["insecure-skip-tls-verify"] = True
    if cluster.proxy_url:
        info["proxy-url"] = cluster.proxy_url
    if authority is not None:
        info["certificate-authority-data"] = content_of(authority)  # msgspec writes bytes as base64
    for extension in cluster.extensions or ():
        if extension.get("name") == _EXEC_EXTENSION:
            info["config"] = extension.get("extension")
    return info


def _auth_provider(chosen: SelectedContext, clock: Clock) -> CredentialSource:
    from kapsa.runtime.client.auth.oidc import OidcProvider

    provider = chosen.user.auth_provider
    assert provider is not None
    field = chosen.describe("user.auth-provider")
    if provider.name != "oidc":
        raise ConfigError(
            f"{field}: {provider.name!r} is not supported any more; use the exec plugin that replaces it"
        )
    config = provider.config or {}
    authority = _content(
        chosen, "user.auth-provider.config.idp-certificate-authority",
        config.get("idp-certificate-authority", ""), config.get("idp-certificate-authority-data", ""), clock,
    )  # fmt: skip
    persist = functools.partial(update_auth_provider, chosen.user_file, chosen.user_name)
    return OidcProvider(config, origin=f"{field}.config", authority=authority, clock=clock, persist=persist)


def _content(
    chosen: SelectedContext, field: str, path: str, data: str, clock: Clock
) -> bytes | RereadFile | None:
    """Return the content of a pair of fields `x` and `x-data`; the data takes precedence over the file."""
    if data:
        return decode_data(data, chosen.describe(f"{field}-data"))
    if not path:
        return None
    origin = chosen.user_file if field.startswith("user") else chosen.cluster_file
    file = RereadFile(_resolve(origin, path), name=chosen.describe(field), clock=clock)
    if not file.path.exists():
        raise ConfigError(f"{chosen.describe(field)}: file {file.path} does not exist")
    return file


def _resolve(origin: Path, path: str) -> Path:
    """Return a path of a kubeconfig; a relative one starts at the directory of the file."""
    return origin.absolute().parent / path


def _impersonation(chosen: SelectedContext) -> Headers:
    user = chosen.user
    if not user.as_user:
        if user.as_uid or user.as_groups or user.as_user_extra:
            raise ConfigError(
                f"{chosen.describe('user.as')} is missing: as-groups, as-uid and as-user-extra "
                "need a user to impersonate"
            )
        return ()
    headers = [("Impersonate-User", user.as_user)]
    if user.as_uid:
        headers.append(("Impersonate-Uid", user.as_uid))
    headers += [("Impersonate-Group", group) for group in user.as_groups or ()]
    for name, values in (user.as_user_extra or {}).items():
        headers += [(f"Impersonate-Extra-{quote(name.lower(), safe='')}", value) for value in values]
    return tuple(headers)


def _proxy(chosen: SelectedContext, environment: Mapping[str, str]) -> str | None:
    proxy = chosen.cluster.proxy_url or environment_proxy(chosen.cluster.server, environment)
    if proxy:
        _check_url(chosen, "cluster.proxy-url", proxy)
    return proxy


def _proxy_authority(environment: Mapping[str, str], clock: Clock) -> RereadFile | None:
    """Return the CA of an https proxy that KAPSA_PROXY_CA sets, if any."""
    path = environment.get("KAPSA_PROXY_CA")
    if not path:
        return None
    if not Path(path).is_file():
        raise ConfigError(f"KAPSA_PROXY_CA: file {path} does not exist")
    return RereadFile(Path(path), name="KAPSA_PROXY_CA", clock=clock)


def _check_url(chosen: SelectedContext, field: str, url: str) -> None:
    try:
        HttpUrl.parse(url)
    except ConfigError as error:
        raise ConfigError(f"{chosen.describe(field)}: {error}") from error


def environment_proxy(server: str, environment: Mapping[str, str]) -> str | None:
    """Return the proxy that HTTPS_PROXY or HTTP_PROXY sets, unless NO_PROXY exempts the server."""
    parts = urlsplit(server)
    variable = f"{parts.scheme}_proxy"
    proxy = environment.get(variable.upper()) or environment.get(variable)
    exempt = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    host = parts.hostname or ""
    if not proxy or host == "localhost" or any(_matches(rule.strip(), host) for rule in exempt.split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _matches(rule: str, host: str) -> bool:
    """Return whether an entry of NO_PROXY (a domain, an address, a network, or `*`) matches this host."""
    if not rule:
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        domain = rule.lstrip("*").lstrip(".")
        return rule == "*" or host == domain or host.endswith(f".{domain}")
    if address.is_loopback or rule == "*":
        return True
    try:
        return address in ipaddress.ip_network(rule, strict=False)
    except ValueError:
        return False
