"""The flags of kube-apiserver that the drop-in uses, accepts without effect, or refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

__all__ = ["FlagError", "ServerFlags", "parse_flags"]

_USED = frozenset(
    (
        "authorization-mode",
        "bind-address",
        "cert-dir",
        "client-ca-file",
        "disable-admission-plugins",
        "enable-admission-plugins",
        "etcd-servers",
        "secure-port",
        "tls-cert-file",
        "tls-private-key-file",
    )
)
_WITHOUT_EFFECT = {
    "advertise-address": "the Service kubernetes points to the address of --bind-address",
    "allow-privileged": "privileged pods are accepted, and no pod runs",
    "service-account-issuer": "the engine has an issuer of its own",
    "service-account-key-file": "the engine has a key of its own",
    "service-account-signing-key-file": "the engine has a key of its own",
    "service-cluster-ip-range": "Services get addresses of the engine's own range",
}
_REFUSED = (
    "admission-control",
    "anonymous-auth",
    "authentication-",
    "authorization-",
    "enable-bootstrap-token-auth",
    "encryption-",
    "insecure-",
    "oidc-",
    "requestheader-",
    "tls-",
    "token-auth-file",
)
"""Beginnings of flags that would change who may do what. Ignoring one would make a test pass that must not."""
_HARMLESS_VALUES = {"anonymous-auth": "true", "insecure-port": "0"}
_MODES = frozenset(("RBAC", "AlwaysAllow", "Node"))


class FlagError(Exception):
    """A flag that this program does not support."""


class ServerFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The flags that the engine uses."""

    host: str = "127.0.0.1"
    port: int = 6443
    certificate: str = ""
    key: str = ""
    client_authority: str = ""
    allows_all: bool = True
    disabled_plugins: frozenset[str] = frozenset()
    enabled_plugins: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    """A line for each flag without effect."""


def parse_flags(arguments: Sequence[str]) -> ServerFlags:
    """Return the flags. Raises FlagError for one that would change who may do what and is not supported."""
    flags, notes = _by_name(arguments), []
    for name, value in flags.items():
        if name in _USED or _HARMLESS_VALUES.get(name) == value:
            continue
        if name.startswith(_REFUSED):
            raise FlagError(
                f"--{name} is not supported by kapsa's drop-in for envtest; use the real kube-apiserver"
            )
        notes.append(
            f"--{name} has no effect: {_WITHOUT_EFFECT.get(name, 'this is the embedded engine of kapsa')}"
        )
    directory = flags.get("cert-dir", "/var/run/kubernetes")
    modes = _names(flags.get("authorization-mode", "AlwaysAllow"))
    if not modes <= _MODES:
        unsupported = ", ".join(sorted(modes - _MODES))
        raise FlagError(f"--authorization-mode supports {', '.join(sorted(_MODES))}, not {unsupported}")
    disabled, enabled = (_names(flags.get(f"{each}-admission-plugins", "")) for each in ("disable", "enable"))
    if both := sorted(disabled & enabled):
        raise FlagError(
            f"--enable-admission-plugins and --disable-admission-plugins both name {', '.join(both)}"
        )
    return ServerFlags(
        host=flags.get("bind-address", "127.0.0.1"),
        port=_port(flags.get("secure-port", "6443")),
        certificate=flags.get("tls-cert-file", f"{directory}/apiserver.crt"),
        key=flags.get("tls-private-key-file", f"{directory}/apiserver.key"),
        client_authority=flags.get("client-ca-file", ""),
        allows_all="AlwaysAllow" in modes,
        disabled_plugins=disabled,
        enabled_plugins=enabled,
        notes=tuple(notes),
    )


def _by_name(arguments: Sequence[str]) -> Mapping[str, str]:
    flags: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.removeprefix("-").removeprefix("-").partition("=")
        if not argument.startswith("-"):
            raise FlagError(f"unexpected argument {argument!r}")
        # Only flags of the form --name=value name a switch without a value.
        flags[name] = value if equals else next(rest, "")
    return flags


def _names(value: str) -> frozenset[str]:
    return frozenset(name.strip() for name in value.split(",") if name.strip())


def _port(value: str) -> int:
    if not value.isdigit():
        raise FlagError(f"--secure-port must be a number, got {value!r}")
    return int(value)
