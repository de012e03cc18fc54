"""Kubeconfigs from untrusted sources: an allow-list of fields; any other field is rejected by name.

A kubeconfig can run commands (exec), read local files, send requests through a proxy and turn TLS
verification off. A manager that accepts kubeconfigs from its users must accept only what describes a cluster:
its address, its certificate authority, and a token or a client certificate, all of them as values.
"""

import ipaddress
from typing import Any
from urllib.parse import urlsplit

from kapsa.runtime.client.auth.access import RotatingAccess
from kapsa.runtime.client.auth.credentials import DeclaredCredentials
from kapsa.runtime.client.auth.kubeconfig import decode_data
from kapsa.runtime.client.auth.tls import client_context
from kapsa.runtime.errors import ConfigError, ForbiddenAddress

__all__ = ["load_untrusted", "public_address"]

_SIZE_LIMIT = 256 * 1024
_TOKEN_LIMIT = 64 * 1024
_DEPTH_LIMIT = 12

_TOP = {"apiVersion", "kind", "clusters", "users", "contexts", "current-context", "preferences"}
_CLUSTER = {"server", "certificate-authority-data"}
_USER = {"token", "client-certificate-data", "client-key-data"}
_CONTEXT = {"cluster", "user", "namespace"}

_METADATA_NAMES = {"metadata", "metadata.google.internal", "instance-data"}
# Cloud metadata services outside the link-local range.
_METADATA_NETWORKS = [
    ipaddress.ip_network(text)
    for text in (
        "fd00:ec2::254/128",
        "fd20:ce::254/128",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
    )
]


def load_untrusted(content: bytes, *, allow_loopback: bool = False) -> RotatingAccess:
    """Return the access that an untrusted kubeconfig describes.

    Raises `ConfigError` that names the field if something in it is not allowed.

    The server's address is checked here, and again at each connection because a name can resolve to another
    address later. `allow_loopback` is for tests, and for a manager on the same machine as its clusters.
    """
    document = _parse(content)
    _allow(document, _TOP, "")
    if document.get("preferences"):
        raise _rejected("preferences", "must be empty")
    cluster = _only(document, "clusters", "cluster", _CLUSTER)
    user = _only(document, "users", "user", _USER)
    context = _only(document, "contexts", "context", _CONTEXT)
    _check_names(document, context)
    server = _server(cluster.get("server"), allow_loopback)
    authority = _data(cluster, "certificate-authority-data", "cluster")
    certificate = _data(user, "client-certificate-data", "user")
    key = _data(user, "client-key-data", "user")
    token = _token(user.get("token"))
    if (certificate is None) != (key is None):
        raise _rejected("user", "must set client-certificate-data and client-key-data together")
    if token is None and certificate is None:
        raise _rejected("user", "needs a token, or client-certificate-data and client-key-data")
    try:
        client_context(ca=authority, certificate=certificate, key=key)  # fails now, not at the first request
    except ConfigError as error:
        raise _rejected("certificates", f"cannot be used: {error}") from error

    def guard(address: str) -> None:
        if not public_address(address, allow_loopback=allow_loopback):
            raise ForbiddenAddress(
                f"{server} resolves to {address}, which is not allowed as the address of a cluster",
                sent=False,
            )

    credentials = DeclaredCredentials(token=token, certificate=certificate, key=key)
    return RotatingAccess(server, credentials, authority=authority, address_guard=guard)


def public_address(address: str, *, allow_loopback: bool = False) -> bool:
    """Return whether a user's cluster may have this address: this host and metadata services are excluded."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if parsed.is_loopback:
        return allow_loopback
    if parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified or parsed.is_reserved:
        return False
    return not any(parsed in network for network in _METADATA_NETWORKS)


def _rejected(field: str, reason: str) -> ConfigError:
    return ConfigError(f"untrusted kubeconfig: {field} {reason}")


def _parse(content: bytes) -> dict[str, Any]:
    import yaml

    if len(content) > _SIZE_LIMIT:
        raise _rejected("file", f"is larger than {_SIZE_LIMIT // 1024} KB")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        # Checked event by event before anything is built: an alias bomb grows when it is built.
        depth = 0
        for event in yaml.parse(content, Loader=loader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise _rejected("file", "contains anchors or aliases, which are not allowed")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > _DEPTH_LIMIT:
                raise _rejected("file", "is nested too deeply")
        root = yaml.compose(content, Loader=loader)
        _no_duplicates(root)
        document = yaml.load(content, Loader=loader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise _rejected("file", f"is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise _rejected("file", "is not a mapping")
    return document


def _no_duplicates(node: Any) -> None:
    import yaml

    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in seen:
                raise _rejected(
                    "file", f"contains the key {getattr(key, 'value', '?')!r} twice, or it is not a string"
                )
            seen.add(key.value)
            _no_duplicates(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _no_duplicates(value)


def _allow(section: dict[str, Any], allowed: set[str], where: str) -> None:
    for field in section:
        if field not in allowed:
            raise _rejected(
                f"{where}{field}", f"is not allowed; allowed fields: {', '.join(sorted(allowed))}"
            )


def _only(document: dict[str, Any], plural: str, singular: str, allowed: set[str]) -> dict[str, Any]:
    entries = document.get(plural)
    if not isinstance(entries, list) or len(entries) != 1:
        raise _rejected(plural, "must have exactly one entry")
    entry = entries[0]
    if not isinstance(entry, dict) or not isinstance(entry.get(singular), dict):
        raise _rejected(plural, f"must hold an entry with a name and a {singular}")
    _allow(entry, {"name", singular}, f"{singular}.")
    section: dict[str, Any] = entry[singular]
    _allow(section, allowed, f"{singular}.")
    for field, value in section.items():
        if not isinstance(value, str):
            raise _rejected(f"{singular}.{field}", "must be a string")
    return section


def _check_names(document: dict[str, Any], context: dict[str, Any]) -> None:
    name = document["contexts"][0].get("name")
    if document.get("current-context") not in (None, "", name):
        raise _rejected("current-context", "must name the context of this file")
    for plural, singular in (("clusters", "cluster"), ("users", "user")):
        if context.get(singular) != document[plural][0].get("name"):
            raise _rejected(f"context.{singular}", f"must be the name of the {singular} in this file")


def _server(server: str | None, allow_loopback: bool) -> str:
    if not server:
        raise _rejected("cluster.server", "is missing")
    try:
        parts = urlsplit(server)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise _rejected("cluster.server", f"is not a URL: {error}") from error
    if parts.scheme != "https" or not host or not server.isprintable():
        raise _rejected("cluster.server", "must be an https URL")
    if parts.username is not None or parts.query or parts.fragment or ".." in parts.path or port == 0:
        raise _rejected("cluster.server", "may only have a host, a port and a path")
    name = host.rstrip(".").lower()
    if name in _METADATA_NAMES or (
        not allow_loopback and (name == "localhost" or name.endswith(".localhost"))
    ):
        raise _rejected("cluster.server", f"host {host} is not allowed")
    if _is_address(host):
        if not public_address(host, allow_loopback=allow_loopback):
            raise _rejected("cluster.server", f"address {host} is not allowed")
    elif name.replace(".", "").isdigit() or name.startswith("0x"):
        # Resolvers read 2852039166, 0xa9fea9fe and 169.254.43518 as addresses.
        raise _rejected("cluster.server", f"host {host} is an encoded IP address, which is not allowed")
    return server.rstrip("/")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _data(section: dict[str, Any], field: str, where: str) -> bytes | None:
    text = section.get(field)
    return decode_data(text, f"untrusted kubeconfig: {where}.{field}") if text else None


def _token(token: str | None) -> str | None:
    if token is None:
        return None
    if (
        not token
        or len(token) > _TOKEN_LIMIT
        or not token.isascii()
        or not token.isprintable()
        or " " in token
    ):
        raise _rejected("user.token", "is not a valid token")
    return token
