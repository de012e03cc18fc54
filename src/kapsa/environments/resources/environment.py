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

Phase = Literal["Pending", "Building", "Deploying", "Ready", "Failed"]
"""How far an environment is."""


class EnvironmentSource(Part):
    """What it shows."""

    commit_sha: Annotated[str, Field(min_length=7, max_length=67, pattern=r"^[0-9a-fA-F]{7,64}(\.\.\.)?$")]
    """The commit. A shortened one is completed if that is unambiguous."""
    branch: BranchName | None = None
    """The branch that the commit was found on."""
    pr_number: Annotated[int, Field(ge=1, le=2147483647)] | None = None
    """The pull request that the commit was found in."""


class EnvironmentConfig(Part):
    """What the application is configured with."""

    env_vars: Annotated[tuple[EnvVar, ...], Field(map_keys=["name"], max_length=500)] = ()
    """Environment variables of its containers."""
    secret_refs: Annotated[tuple[LocalReference, ...], Field(map_keys=["name"], max_length=100)] = ()
    """Secrets in the Environment's own namespace whose keys become environment variables."""
    config_refs: Annotated[tuple[LocalReference, ...], Field(map_keys=["name"], max_length=100)] = ()
    """ConfigMaps in the Environment's own namespace whose keys become environment variables."""


class EnvironmentRuntime(Part):
    """How it runs. A chart or manifests of the project's own decide what they say something about."""

    replicas: Annotated[int, Field(ge=0, le=100)] = 1
    """How many copies run."""
    resources: ResourceRequirements | None = None
    """What each copy asks for, and may take."""
    ports: Annotated[tuple[Port, ...], Field(map_keys=["name"], max_length=20)] = ()
    """The ports that it listens on; 8080 if none is given."""
    autoscaling: Autoscaling = Autoscaling()
    """Whether the number of copies follows the load."""
    probes: Probes = Probes()
    """How to find out whether it is well."""


class IngressTls(Part):
    """Whether it is reached over https."""

    enabled: bool = True
    """Whether there is a certificate at all."""
    secret_name: ObjectName | None = None
    """A Secret in the environment's namespace that has or gets the certificate; chosen if absent."""


class EnvironmentIngress(Part):
    """How it is reached from outside."""

    enabled: bool = True
    """Whether it is."""
    host: DnsName | None = None
    """The host to ask the domain pool for; one is made from the names if absent."""
    path: Annotated[str, Field(max_length=1024, pattern=r"^/")] = "/"
    """The path below which requests are passed on."""
    class_name: ObjectName | None = None
    """The ingress class; KAPSA_INGRESS_CLASS (nginx) if absent."""
    tls: IngressTls = IngressTls()
    """Whether over https."""
    annotations: Annotated[Mapping[str, Annotated[str, Field(max_length=32768)]], Field(max_length=50)] = {}
    """More annotations of the Ingress. Those that would configure the controller itself are refused."""


class EnvironmentSpec(Spec):
    """What to run."""

    project_ref: LocalReference
    """The Project that it is an instance of."""
    type: EnvironmentType = "development"
    """What it is for."""
    source: EnvironmentSource
    """What it shows."""
    config: EnvironmentConfig = EnvironmentConfig()
    """What it is configured with."""
    runtime: EnvironmentRuntime = EnvironmentRuntime()
    """How it runs."""
    ingress: EnvironmentIngress = EnvironmentIngress()
    """How it is reached."""
    ttl: Duration | None = None
    """How long it stays after its last commit; for ever if absent."""
    suspended: bool = False
    """Whether it sleeps: nothing runs, everything else is kept."""


class Rollout(Part):
    """What is being brought out, and since when."""

    digest: str
    """Stands for all objects of it: another digest is another rollout."""
    started_at: datetime
    """When it began: the deadline counts from here."""


class Failure(Part):
    """The one cause that keeps it from being ready. It is bounded and holds no secret."""

    step: str
    """The step that failed: namespace, policy, secrets, build, host, render, apply, route, tls or verify."""
    reason: str
    """Why, as one word for programs."""
    object: str = ""
    """The object that it is about, such as Deployment web."""
    message: Annotated[str, Field(max_length=2048)] = ""
    """What happened."""
    log_tail: Annotated[str, Field(max_length=8192)] = ""
    """The last lines of the log that tells more."""
    hint: Annotated[str, Field(max_length=1024)] = ""
    """What to do about it."""


class EnvironmentStatus(Status):
    """How far it is, and where it is reached."""

    phase: Phase = "Pending"
    """How far it is."""
    url: str | None = None
    """Where it is reached."""
    urls: list[str] = field(default_factory=list)
    """All the places where it is reached."""
    namespace: NamespaceStatus | None = None
    """The namespace that was made for it."""
    commit_sha: str | None = None
    """The full commit that is deployed."""
    seen_commit: str | None = None
    """The full commit that was asked for last."""
    commit_seen_at: datetime | None = None
    """When that was: its time to live counts from here."""
    image: str | None = None
    """The image that is deployed, by digest."""
    built_images: list[str] = field(default_factory=list)
    """Its images by digest, the latest last, where its Registry says that they are deleted with it."""
    expires_at: datetime | None = None
    """When it goes by itself."""
    rollout: Rollout | None = None
    """What was brought out last."""
    failure: Failure | None = None
    """What keeps it from being ready."""


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
        printer_column("Reason", ".status.failure.reason"),
        printer_column("URL", ".status.url"),
        printer_column("Commit", ".spec.source.commitSha", priority=1),
        printer_column("Age", ".metadata.creationTimestamp", type="date"),
    ],
):
    """One running instance of a project. It lives in the project's namespace, `<team>-<project>`."""
