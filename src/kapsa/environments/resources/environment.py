"""Environment: one running instance of a project, such as a preview, staging or production."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from msgspec import field

from kapsa.environments.resources.duration import Duration
from kapsa.environments.resources.project import BranchName, EnvironmentType
from kapsa.environments.resources.references import DnsName, LocalReference, NamespaceStatus, ObjectName
from kapsa.environments.resources.workload import Autoscaling, EnvVar, Port, Probes, ResourceRequirements
from kapsa.runtime import CustomResource, Field, Part, Spec, Status, printer_column

__all__ = [
    "Environment",
    "EnvironmentConfig",
    "EnvironmentIngress",
    "EnvironmentRuntime",
    "EnvironmentSource",
    "EnvironmentSpec",
    "EnvironmentStatus",
    "Failure",
    "IngressTls",
    "Phase",
    "Rollout",
]

Phase = Literal["Pending", "Building", "Deploying", "Ready", "Degraded", "Failed"]
"""The phase of an environment. A degraded one was ready and recovers by itself; a failed one needs a person."""


class EnvironmentSource(Part):
    """The commit to deploy."""

    commit_sha: Annotated[str, Field(min_length=7, max_length=67, pattern=r"^[0-9a-fA-F]{7,64}(\.\.\.)?$")]
    """The commit. An abbreviated one is completed if it is unambiguous."""
    branch: BranchName | None = None
    """The branch of the commit."""
    pr_number: Annotated[int, Field(ge=1, le=2147483647)] | None = None
    """The pull request of the commit."""
    committed_at: Annotated[str, Field(format="date-time")] | None = None
    """Time of the commit. The lifetime counts from here, or from the first sight of the commit if that is earlier or
    this is absent."""  # A text: the API server accepts times that are none, such as an offset of 99 hours.


class EnvironmentConfig(Part):
    """The configuration of the application."""

    env_vars: Annotated[tuple[EnvVar, ...], Field(map_keys=["name"], max_length=500)] = ()
    """Environment variables of its containers."""
    secret_refs: Annotated[tuple[LocalReference, ...], Field(map_keys=["name"], max_length=100)] = ()
    """Secrets in the Environment's own namespace whose keys become environment variables."""
    config_refs: Annotated[tuple[LocalReference, ...], Field(map_keys=["name"], max_length=100)] = ()
    """ConfigMaps in the Environment's own namespace whose keys become environment variables."""


class EnvironmentRuntime(Part):
    """The runtime settings. Values that the project's own chart or manifests set take precedence."""

    replicas: Annotated[int, Field(ge=0, le=100)] = 1
    """Number of replicas."""
    resources: ResourceRequirements | None = None
    """Resource requests and limits of each replica."""
    ports: Annotated[tuple[Port, ...], Field(map_keys=["name"], max_length=20)] = ()
    """The ports that the application listens on. Defaults to 8080."""
    autoscaling: Autoscaling = Autoscaling()
    """Scaling of the number of replicas with the load."""
    probes: Probes = Probes()
    """Health probes of the application."""


class IngressTls(Part):
    """The TLS settings of the route."""

    enabled: bool = True
    """True to serve over https."""
    secret_name: ObjectName | None = None
    """Name of a Secret in the environment's namespace that contains or receives the certificate. Chosen by
    the operator if absent."""


class EnvironmentIngress(Part):
    """The route from outside the cluster."""

    enabled: bool = True
    """True to expose the environment outside the cluster."""
    host: DnsName | None = None
    """The host to allocate. Generated from the names if absent."""
    path: Annotated[str, Field(max_length=1024, pattern=r"^/")] = "/"
    """The path prefix of requests."""
    class_name: ObjectName | None = None
    """The ingress class. Defaults to KAPSA_INGRESS_CLASS (nginx)."""
    tls: IngressTls = IngressTls()
    """The TLS settings."""
    annotations: Annotated[Mapping[str, Annotated[str, Field(max_length=32768)]], Field(max_length=50)] = {}
    """Additional annotations of the Ingress. Those that would configure the ingress controller itself are
    refused."""


class EnvironmentSpec(Spec):
    """The desired state of an Environment."""

    project_ref: LocalReference
    """The Project of the environment."""
    type: EnvironmentType = "development"
    """The purpose of the environment."""
    source: EnvironmentSource
    """The commit to deploy."""
    config: EnvironmentConfig = EnvironmentConfig()
    """The configuration of the application."""
    runtime: EnvironmentRuntime = EnvironmentRuntime()
    """The runtime settings."""
    ingress: EnvironmentIngress = EnvironmentIngress()
    """The route from outside the cluster."""
    ttl: Duration | None = None
    """Lifetime after the last commit, by source.committedAt. Unlimited if absent."""
    suspended: bool = False
    """True to suspend the environment: no pod runs, and everything else is kept."""


class Rollout(Part):
    """A rollout of the rendered objects."""

    digest: str
    """Digest of all objects: another digest is another rollout."""
    started_at: datetime
    """Start of the rollout. The deadline counts from here."""
    completed_at: datetime | None = None
    """Time at which all objects were healthy for the first time. From then on the deadline no longer counts."""


class Failure(Part):
    """The cause that keeps an environment from being ready. It is bounded and contains no secrets."""

    step: str
    """The step that failed: namespace, policy, secrets, approval, build, host, render, apply, route, tls or
    verify."""
    reason: str
    """The cause as one word, for programs."""
    object: str = ""
    """The object that failed, such as Deployment web."""
    message: Annotated[str, Field(max_length=2048)] = ""
    """The cause in a sentence, for people."""
    log_tail: Annotated[str, Field(max_length=8192)] = ""
    """The last lines of the log that explains the failure."""
    hint: Annotated[str, Field(max_length=1024)] = ""
    """The action that resolves the failure."""


class EnvironmentStatus(Status):
    """The observed state of an Environment."""

    phase: Phase = "Pending"
    """The phase of the environment. Degraded: it was ready, lost pods, and recovers by itself. Failed: a person
    must act."""
    url: str | None = None
    """URL of the environment."""
    urls: list[str] = field(default_factory=list)
    """All URLs of the environment."""
    namespace: NamespaceStatus | None = None
    """The namespace of the environment."""
    commit_sha: str | None = None
    """The deployed commit, in full."""
    seen_commit: str | None = None
    """The last requested commit, in full."""
    commit_seen_at: datetime | None = None
    """Time at which that commit was first seen. The lifetime counts from here unless the commit is older."""
    trusted_commits: list[str] | None = None
    """The deployed and the last requested commit, if a branch of the repository was at them. They stay trusted when
    the branch moves on. Absent before the trust of a commit was first decided."""
    image: str | None = None
    """The deployed image, by digest."""
    built_images: list[str] = field(default_factory=list)
    """Images by digest, the latest last, if their Registry deletes them with the environment."""
    expires_at: datetime | None = None
    """Time at which the environment is deleted."""
    kept_until: datetime | None = None
    """Time until which it stays although it has expired, because too many others have at once."""
    rollout: Rollout | None = None
    """The last rollout."""
    redeploy_request: str | None = None
    """The last value of the annotation catalyst.dev/redeploy-requested that was carried out."""
    failure: Failure | None = None
    """The cause that keeps the environment from being ready."""


class Environment(
    CustomResource[EnvironmentSpec, EnvironmentStatus],
    group="catalyst.catalyst.dev",
    version="v1alpha1",
    short_names=["env"],
    categories=["kapsa"],
    columns=[
        printer_column("Project", ".spec.projectRef.name"),
        printer_column("Type", ".spec.type", priority=1),
        printer_column("Phase", ".status.phase"),
        printer_column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        printer_column("URL", ".status.url"),
        printer_column("Commit", ".spec.source.commitSha", priority=1),
        printer_column("Age", ".metadata.creationTimestamp", type="date"),
    ],
):
    """One running instance of a Project, in the project's namespace `<team>-<project>`."""
