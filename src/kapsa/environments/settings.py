"""Settings: the `KAPSA_*` environment variables and their defaults. An invalid value stops the start with one
line."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from kapsa.adapters.variables import SettingsError, document_variables, read_variables, variable_text
from kapsa.runtime import Quantity

__all__ = ["PREFIX", "Settings", "SettingsError"]

PREFIX = "KAPSA_"

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
PortNumber = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the environments operator. The variable of a field is its name in capitals after
    `KAPSA_`."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The least severe level to log."""
    log_format: Literal["json", "console"] = "json"
    """The format of the log: one JSON object per line, or text for people."""
    default_poll_interval: Annotated[float, msgspec.Meta(ge=60, le=86_400)] = 300.0
    """Seconds between two polls of a git repository, for projects that set no interval."""
    reconciliation_timeout: Seconds = 600.0
    """Seconds after which a reconcile is cancelled and retried."""
    metrics_port: PortNumber = 8080
    """The port of /metrics, /healthz and /readyz; 0 for any free port."""
    metrics_enabled: bool = True
    """True to serve /metrics. The probes are always served."""
    namespace: str = "kapsa-system"
    """The operator's own namespace."""
    kpack_builder_image: str = "paketobuildpacks/builder:base"
    """The builder image of kpack."""
    kpack_service_account: str = "kapsa-build"
    """The service account for kpack builds."""

    leader_election: bool = True
    """True to elect one active process among several by a Lease."""
    max_concurrent_reconciles: Count = 8
    """Maximum number of resources reconciled at the same time."""

    preview_domain: str = "preview.catalyst.dev"
    """The base domain of hosts while no DomainPool exists."""
    cluster_issuer: str = "letsencrypt-prod"
    """The cert-manager ClusterIssuer for hosts whose DomainPool names none; `none` to issue no
    certificates."""
    ingress_class: str = "nginx"
    """The ingress class of Environments that set none."""
    ingress_namespace: str = "ingress-nginx"
    """The namespace of the ingress controller, whose requests environments accept."""
    route_kind: Literal["Ingress", "HTTPRoute"] = "Ingress"
    """The kind of routes: Ingress, or HTTPRoute of the Gateway API."""
    gateway: str = ""
    """The Gateway of HTTPRoutes, as namespace/name."""
    verify_routes: bool = False
    """True if an environment is ready only after its host has responded to a request."""
    verify_address: str = ""
    """The address for that request, as host:port of the ingress controller, with TLS unless the port is 80;
    empty to resolve the host."""

    preview_environment_domain: str = "preview.orimatest.com"
    """The base domain of PreviewEnvironments."""
    preview_environment_issuer: str = "letsencrypt-prod"
    """The cert-manager ClusterIssuer for PreviewEnvironments; `none` to issue no certificates."""

    pod_security: Literal["baseline", "restricted"] = "baseline"
    """The Pod Security level that is enforced in the namespaces of environments."""
    allowed_node_labels: tuple[str, ...] = ("kubernetes.io/arch", "kubernetes.io/os")
    """Labels of nodes by which the workloads of environments may choose their nodes, separated by commas."""
    allowed_tolerations: tuple[str, ...] = ()
    """Keys of taints that the workloads of environments may tolerate, separated by commas."""
    allowed_priority_classes: tuple[str, ...] = ()
    """PriorityClasses that the workloads of environments may use, separated by commas."""
    allowed_runtime_classes: tuple[str, ...] = ()
    """RuntimeClasses that the workloads of environments may use, separated by commas. One brings nodes, tolerations and
    a runtime of its own."""
    allowed_schedulers: tuple[str, ...] = ()
    """Schedulers, besides the default one, that the workloads of environments may use, separated by commas."""
    team_access: bool = True
    """True to give those with the role view, edit or admin in a team's namespace access to its environments."""
    api_server_cidrs: tuple[str, ...] = ()
    """More address ranges of the API server, which environments cannot reach, separated by commas. The addresses that
    Service `default/kubernetes` and its endpoints name are added to them."""
    quota_cpu: str = "8"
    """Total CPU of all pods of an environment, requests and limits alike, if its Project sets none; `none` for no
    limit. So for the other quotas."""
    quota_memory: str = "16Gi"
    """Total memory of all pods of an environment."""
    quota_storage: str = "50Gi"
    """Total storage that the volumes of an environment request."""
    quota_ephemeral_storage: str = "64Gi"
    """Total storage of all pods of an environment on the disks of their nodes, requests and limits alike."""
    quota_pods: str = "50"
    """Maximum number of pods of an environment."""
    quota_objects: str = "100"
    """Maximum number of objects of each kind in an environment."""
    quota_ceiling: Annotated[float, msgspec.Meta(ge=1, le=10_000)] = 4.0
    """A Project may raise each quota to this multiple of its default."""
    rollout_timeout: Seconds = 600.0
    """Seconds after which a rollout that is not complete has failed."""
    deletion_report_after: Seconds = 60.0
    """Seconds after which an event reports what blocks the deletion of a namespace."""

    build_engine: Literal["buildkit", "kaniko"] = "buildkit"
    """The engine for Dockerfiles of projects that set none."""
    build_namespace: str = "kapsa-builds"
    """The namespace of build Jobs, outside the quota of any environment."""
    build_timeout: Seconds = 3600.0
    """Seconds that a build may run. One that waits for a pod has not begun, and starts from scratch after a day."""
    buildkit_image: str = "moby/buildkit:v0.25.1-rootless"
    """The image of BuildKit builds."""
    kaniko_image: str = "gcr.io/kaniko-project/executor:v1.24.0"
    """The image of Kaniko builds."""
    git_image: str = "alpine/git:v2.49.1"
    """The image that fetches the source of a build, and checks what it has made: with sh, find and git."""
    push_image: str = "gcr.io/go-containerregistry/crane:v0.20.6"
    """The image of crane, which pushes what a build has made. Only its container has the credentials to
    push."""
    build_egress_cidrs: tuple[str, ...] = ()
    """Private address ranges that builds may reach, such as those of a git server, a registry or a proxy,
    separated by commas. The internet is always open to them."""
    build_quota_pods: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 50
    """Maximum number of build pods at the same time. More builds wait. A team has half of them while another
    team builds. So for CPU and memory."""
    build_quota_cpu: str = "32"
    """Total CPU that all builds may request. One container has a quarter of it at most, but 2 CPUs at least."""
    build_quota_memory: str = "64Gi"
    """Total memory that all builds may request. One container has a quarter of it at most, but 4Gi at least."""
    build_quota_ephemeral_storage: str = "500Gi"
    """Total storage on the disks of nodes that all builds may request. One container has a quarter of it at most,
    but 20Gi at least."""

    cache_directory: Path = Path("/var/cache/kapsa")
    """The directory for repositories and rendered manifests. Its content can be deleted at any time."""
    git_protocols: tuple[str, ...] = ("https", "ssh")
    """The protocols for repositories, separated by commas: https, ssh, http, file."""
    git_timeout: Seconds = 120.0
    """Seconds until a git command times out."""
    git_max_bytes: Annotated[int, msgspec.Meta(ge=1_000_000)] = 2_000_000_000
    """Maximum size of a repository in bytes."""
    git_concurrency: Count = 4
    """Maximum number of git commands at the same time for one host."""
    render_timeout: Seconds = 60.0
    """Seconds until helm or kustomize times out."""

    registry_verify_interval: Annotated[float, msgspec.Meta(ge=60, le=604_800)] = 3600.0
    """Seconds between two checks of a Registry's credentials."""

    webhooks_enabled: bool = False
    """True to serve the validating webhooks, which reject at once what would fail later."""
    webhook_port: PortNumber = 9443
    """The port of the validating webhooks."""
    webhook_service: str = "kapsa-operator-webhooks"
    """The Service in the operator's namespace through which the API server calls the webhooks."""
    webhook_url: str = ""
    """The URL of the webhooks if there is no Service, for an operator outside the cluster:
    https://host:port."""
    webhook_cert_directory: Path | None = None
    """The directory with tls.crt, tls.key and ca.crt from another source, such as cert-manager; self-signed
    certificates if empty."""
    git_webhook_port: PortNumber | None = None
    """The port for webhooks of GitHub and GitLab; disabled if empty."""
    git_webhook_secret: str = ""
    """The secret for the signatures of those webhooks. Required if they are enabled."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the variables. One that is absent or empty has its default, and `none` is an empty text.

        Raises SettingsError with the variable, its value and the valid values.
        """
        given = read_variables(cls, PREFIX, os.environ if environment is None else environment)
        settings = cls(**given)
        settings.check()
        return settings

    def changed(self) -> dict[str, str]:
        """Return the settings that differ from their defaults, by name, in the form of their variables."""
        return {
            field.name: variable_text(value)
            for field in msgspec.structs.fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    @classmethod
    def documentation(cls) -> list[tuple[str, str, str]]:
        """Return each variable with its default and its description."""
        return document_variables(cls, PREFIX)

    def check(self) -> None:
        """Reject values that types cannot: invalid names and addresses."""
        for name, test, expected in _CHECKS:
            value = getattr(self, name)
            for each in value if isinstance(value, tuple) else (value,):
                if not test(str(each)):
                    raise SettingsError(f"{PREFIX}{name.upper()} is {each!r}, but must be {expected}")
        if not self.git_protocols:
            raise SettingsError(
                f"{PREFIX}GIT_PROTOCOLS must name at least one protocol: https, ssh, http or file"
            )
        self._check_ports()
        if self.route_kind == "HTTPRoute" and not self.gateway:
            raise SettingsError(f"{PREFIX}ROUTE_KIND is HTTPRoute, so {PREFIX}GATEWAY must name the Gateway")
        if self.git_webhook_port is not None and not self.git_webhook_secret:
            raise SettingsError(
                f"{PREFIX}GIT_WEBHOOK_PORT is set, so {PREFIX}GIT_WEBHOOK_SECRET must be set, too: "
                "unsigned webhooks are rejected"
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


def _is_amount(value: str) -> bool:
    try:
        return not value or Quantity(value).value > 0
    except ValueError:
        return False


_QUOTAS = ("cpu", "memory", "storage", "ephemeral_storage", "pods", "objects")
_is_label_name = _matches(rf"({_NAME}/)?[A-Za-z0-9]([-_.A-Za-z0-9]{{0,61}}[A-Za-z0-9])?")
_is_domain = _matches(rf"(?=.{{1,200}}$){_LABEL}(\.{_LABEL})+")
_CHECKS: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("namespace", _matches(_LABEL), "the name of a namespace"),
    ("build_namespace", _matches(_LABEL), "the name of a namespace"),
    ("ingress_namespace", _matches(_LABEL), "the name of a namespace"),
    ("kpack_service_account", _matches(_LABEL), "the name of a service account"),
    *((f"quota_{name}", _is_amount, "an amount such as 4 or 8Gi, or none") for name in _QUOTAS),
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
    ("push_image", _matches(r"\S+"), "an image"),
    ("build_egress_cidrs", _is_network, "an address range such as 10.1.2.0/24"),
    ("build_quota_cpu", _matches(r"[1-9][0-9]*m?"), "an amount of CPU such as 32 or 500m"),
    ("build_quota_memory", _matches(r"[1-9][0-9]*[KMGT]i?"), "an amount of memory such as 64Gi"),
    ("build_quota_ephemeral_storage", _matches(r"[1-9][0-9]*[KMGT]i?"), "an amount of storage such as 500Gi"),
    ("webhook_service", _matches(_LABEL), "the name of a Service"),
    (
        "webhook_url",
        _matches(rf"(https://([^/:\s]+|\[[0-9a-f:.]+\])(:{_PORT})?(/\S*)?)?"),
        "an address such as https://host:9443",
    ),
    ("gateway", _matches(rf"({_LABEL}/{_LABEL})?"), "a Gateway as namespace/name"),
    ("allowed_node_labels", _is_label_name, "the name of a label such as kubernetes.io/arch"),
    ("allowed_tolerations", _is_label_name, "the key of a taint such as example.com/gpu"),
    ("allowed_priority_classes", _matches(_NAME), "the name of a PriorityClass"),
    ("allowed_runtime_classes", _matches(_NAME), "the name of a RuntimeClass"),
    ("allowed_schedulers", _matches(_NAME), "the name of a scheduler"),
    ("api_server_cidrs", _is_network, "an address range such as 10.0.0.1/32"),
    ("git_protocols", _matches("https|ssh|http|file"), "https, ssh, http or file"),
)
