"""Settings: the `KAPSA_*` environment variables, each with its default. A bad value stops the start with one clear line."""

from __future__ import annotations

import ipaddress
import os
import re
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from kapsa.runtime import field_descriptions

__all__ = ["PREFIX", "Settings", "SettingsError"]

PREFIX = "KAPSA_"

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
PortNumber = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000)]


class SettingsError(Exception):
    """A variable that cannot be used."""

    for_the_user = True


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of the environments operator. A field's variable is its name in capitals after `KAPSA_`."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """What is logged."""
    log_format: Literal["json", "console"] = "json"
    """How: a JSON object a line for machines, or lines for people."""
    default_poll_interval: Annotated[float, msgspec.Meta(ge=60, le=86_400)] = 300.0
    """Seconds between two looks at a git repository, for projects that say nothing themselves."""
    reconciliation_timeout: Seconds = 600.0
    """Seconds after which a reconcile is cancelled and tried again."""
    metrics_port: PortNumber = 8080
    """Where /metrics, /healthz and /readyz are served; 0 is any free port."""
    metrics_enabled: bool = True
    """Whether /metrics is served. The probes always are."""
    namespace: str = "kapsa-system"
    """The operator's own namespace."""
    kpack_builder_image: str = "paketobuildpacks/builder:base"
    """The builder of kpack images."""
    kpack_service_account: str = "kapsa-build"
    """The service account that kpack builds with."""

    leader_election: bool = True
    """Whether only one of several processes works, agreed on by a Lease."""
    max_concurrent_reconciles: Count = 8
    """How many environments are worked on at a time."""

    preview_domain: str = "preview.catalyst.dev"
    """The base domain of hosts while there is no DomainPool."""
    cluster_issuer: str = "letsencrypt-prod"
    """The cert-manager ClusterIssuer of hosts whose DomainPool names none; `none` for no certificates of their own."""
    ingress_class: str = "nginx"
    """The class of Ingresses that name none."""
    ingress_namespace: str = "ingress-nginx"
    """The namespace of the ingress controller, whose requests environments accept."""
    route_kind: Literal["Ingress", "HTTPRoute"] = "Ingress"
    """How hosts are routed: by an Ingress, or by an HTTPRoute of the Gateway API."""
    gateway: str = ""
    """The Gateway of HTTPRoutes, as namespace/name."""
    verify_routes: bool = False
    """Whether an environment is ready only once a request to its host is answered."""
    verify_address: str = ""
    """Where that request is sent, as host:port of the ingress controller, over TLS unless the port is 80; empty looks
    the host up."""

    preview_environment_domain: str = "preview.orimatest.com"
    """The base domain of PreviewEnvironments."""
    preview_environment_issuer: str = "letsencrypt-prod"
    """The cert-manager ClusterIssuer of PreviewEnvironments; `none` for no certificates of their own."""

    pod_security: Literal["baseline", "restricted"] = "baseline"
    """The Pod Security level that is enforced in environments' namespaces."""
    api_server_cidrs: tuple[str, ...] = ()
    """Address ranges of the API server, which environments cannot reach. Separated by commas."""
    rollout_timeout: Seconds = 600.0
    """Seconds after which a rollout that makes no progress has failed."""
    deletion_report_after: Seconds = 60.0
    """Seconds after which a namespace that does not go is reported with what blocks it."""

    build_engine: Literal["buildkit", "kaniko"] = "buildkit"
    """What builds Dockerfiles of projects that name no engine."""
    build_namespace: str = "kapsa-builds"
    """The namespace of build Jobs, outside any environment's quota."""
    build_timeout: Seconds = 3600.0
    """Seconds after which a build has failed."""
    buildkit_image: str = "moby/buildkit:v0.25.1-rootless"
    """The image that BuildKit builds run."""
    kaniko_image: str = "gcr.io/kaniko-project/executor:v1.24.0"
    """The image that Kaniko builds run."""
    git_image: str = "alpine/git:v2.49.1"
    """The image that fetches the source of a build."""

    cache_directory: Path = Path("/var/cache/kapsa")
    """Where repositories and rendered manifests are kept. It may be lost at any time."""
    git_protocols: tuple[str, ...] = ("https", "ssh")
    """The protocols that repositories may be fetched over: https, ssh, http, file. Separated by commas."""
    git_timeout: Seconds = 120.0
    """Seconds that one git command may take."""
    git_max_bytes: Annotated[int, msgspec.Meta(ge=1_000_000)] = 2_000_000_000
    """The greatest size of a repository."""
    git_concurrency: Count = 4
    """How many git commands run at a time against one host."""
    render_timeout: Seconds = 60.0
    """Seconds that helm or kustomize may take."""

    registry_verify_interval: Annotated[float, msgspec.Meta(ge=60, le=604_800)] = 3600.0
    """Seconds between two checks that a Registry takes its credentials."""

    webhooks_enabled: bool = False
    """Whether the validating webhooks are served, which refuse at once what would only fail later."""
    webhook_port: PortNumber = 9443
    """Where they are served."""
    webhook_service: str = "kapsa-operator-webhooks"
    """The Service in the operator's namespace by which the API server reaches them."""
    webhook_url: str = ""
    """Instead of a Service, for an operator outside the cluster: https://host:port."""
    webhook_cert_directory: Path | None = None
    """Where somebody else, such as cert-manager, keeps their tls.crt, tls.key and ca.crt; self-made ones if empty."""
    git_webhook_port: PortNumber | None = None
    """Where webhooks of GitHub and GitLab are taken; nowhere if empty."""
    git_webhook_secret: str = ""
    """The secret that those webhooks are signed with. Needed where they are taken."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the variables; one that is absent or empty has its default, and `none` is an empty text.

        :raises SettingsError: naming the variable, its value and what it should be.
        """
        environment = os.environ if environment is None else environment
        given: dict[str, Any] = {}
        hints = typing.get_type_hints(cls, include_extras=True)
        for field in msgspec.structs.fields(cls):
            variable = PREFIX + field.name.upper()
            text = environment.get(variable, "").strip()
            if text:
                given[field.name] = _read(variable, text, hints[field.name])
        settings = cls(**given)
        settings.check()
        return settings

    def changed(self) -> dict[str, str]:
        """The settings that are not their defaults, by name, as their variables would have to say it."""
        return {
            field.name: _written(value)
            for field in msgspec.structs.fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    @classmethod
    def documentation(cls) -> list[tuple[str, str, str]]:
        """Every variable, its default and what it is for."""
        told = field_descriptions(cls)
        return [
            (
                PREFIX + field.name.upper(),
                _written(None if field.default == "" else field.default),
                told[field.name],
            )
            for field in msgspec.structs.fields(cls)
        ]

    def check(self) -> None:
        """Refuse what no type can: names and addresses that Kubernetes would not take."""
        for name, test, wanted in _CHECKS:
            value = getattr(self, name)
            for each in value if isinstance(value, tuple) else (value,):
                if not test(str(each)):
                    raise SettingsError(f"{PREFIX}{name.upper()} is {each!r}, but must be {wanted}")
        if not self.git_protocols:
            raise SettingsError(
                f"{PREFIX}GIT_PROTOCOLS names no protocol, so that nothing could ever be fetched"
            )
        self._check_ports()
        if self.route_kind == "HTTPRoute" and not self.gateway:
            raise SettingsError(f"{PREFIX}ROUTE_KIND is HTTPRoute, so {PREFIX}GATEWAY must name the Gateway")
        if self.git_webhook_port is not None and not self.git_webhook_secret:
            raise SettingsError(
                f"{PREFIX}GIT_WEBHOOK_PORT is set, so {PREFIX}GIT_WEBHOOK_SECRET must be, too: "
                "webhooks that nobody signed are not taken"
            )

    def _check_ports(self) -> None:
        ports = {"metrics_port": self.metrics_port}
        if self.webhooks_enabled:
            ports["webhook_port"] = self.webhook_port
        if self.git_webhook_port is not None:
            ports["git_webhook_port"] = self.git_webhook_port
        users: dict[int, str] = {}
        for name, port in ports.items():
            other = users.setdefault(port, name)
            if port and other != name:
                raise SettingsError(
                    f"{PREFIX}{name.upper()} and {PREFIX}{other.upper()} are both {port}: choose another port for one"
                )


def _written(value: Any) -> str:
    """A value as its variable holds it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value) or "none"


def _read(variable: str, text: str, hint: Any) -> Any:
    plain: Any = text
    if hint is str and text.lower() == "none":
        return ""
    if hint is bool:
        plain = _BOOLEANS.get(text.lower(), text)
    elif typing.get_origin(hint) is tuple:
        plain = [part.strip() for part in text.split(",") if part.strip()]
    elif variable == "KAPSA_LOG_LEVEL":
        plain = text.upper()
    try:
        return msgspec.convert(plain, hint, strict=False, dec_hook=lambda kind, value: kind(value))
    except (msgspec.ValidationError, ValueError):
        raise SettingsError(f"{variable} is {text!r}, but must be {_wanted(hint)}") from None


def _wanted(hint: Any) -> str:
    """What a variable must be, for people."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(arguments)}"
    if hint is bool:
        return "true or false"
    if origin is not Annotated:  # a number that may be absent
        return _wanted(arguments[0])
    kind, limits = arguments
    number = "a whole number" if kind is int else "a number"
    low = f"more than {limits.gt:g}" if limits.gt is not None else f"at least {limits.ge}"
    high = f" and at most {limits.le}" if limits.le is not None else ""
    return f"{number}, {low}{high}"


_BOOLEANS = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAME = rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*"
_PORT = "(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})"


def _matches(pattern: str) -> Callable[[str], bool]:
    return lambda value: re.fullmatch(pattern, value) is not None


def _is_network(value: str) -> bool:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        return False
    return True


_is_domain = _matches(rf"(?=.{{1,200}}$){_LABEL}(\.{_LABEL})+")
_CHECKS: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("namespace", _matches(_LABEL), "the name of a namespace"),
    ("build_namespace", _matches(_LABEL), "the name of a namespace"),
    ("ingress_namespace", _matches(_LABEL), "the name of a namespace"),
    ("kpack_service_account", _matches(_LABEL), "the name of a service account"),
    ("preview_domain", _is_domain, "a domain such as preview.example.com"),
    ("preview_environment_domain", _is_domain, "a domain such as preview.example.com"),
    ("cluster_issuer", _matches(rf"({_NAME})?"), "the name of a ClusterIssuer, or none"),
    ("preview_environment_issuer", _matches(rf"({_NAME})?"), "the name of a ClusterIssuer, or none"),
    ("ingress_class", _matches(_NAME), "the name of an IngressClass"),
    ("verify_address", _matches(rf"([^\s:/]+:{_PORT})?"), "an address such as ingress.example.com:443"),
    ("kpack_builder_image", _matches(r"\S+"), "an image"),
    ("buildkit_image", _matches(r"\S+"), "an image"),
    ("kaniko_image", _matches(r"\S+"), "an image"),
    ("git_image", _matches(r"\S+"), "an image"),
    ("webhook_service", _matches(_LABEL), "the name of a Service"),
    (
        "webhook_url",
        _matches(rf"(https://([^/:\s]+|\[[0-9a-f:.]+\])(:{_PORT})?(/\S*)?)?"),
        "an address such as https://host:9443",
    ),
    ("gateway", _matches(rf"({_LABEL}/{_LABEL})?"), "a Gateway as namespace/name"),
    ("api_server_cidrs", _is_network, "an address range such as 10.0.0.1/32"),
    ("git_protocols", _matches("https|ssh|http|file"), "https, ssh, http or file"),
)
