"""Project: an application, the repository with its source, and its builds, deployments and previews."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import field

from kapsa.environments.resources.duration import Duration
from kapsa.environments.resources.references import DnsLabel, LocalReference, NamespaceStatus, ObjectName
from kapsa.environments.resources.workload import EnvVar, ResourceAmounts, ResourceRequirements
from kapsa.runtime import CustomResource, Field, Part, Quantity, Spec, Status, printer_column, rule

__all__ = [
    "BranchFilter",
    "Build",
    "Credentials",
    "Deployment",
    "EnvironmentSummary",
    "EnvironmentType",
    "PermanentEnvironment",
    "PreviewEnvironments",
    "Project",
    "ProjectDomain",
    "ProjectRegistry",
    "ProjectResources",
    "ProjectSource",
    "ProjectSpec",
    "ProjectStatus",
    "QueuedPreview",
    "Quota",
    "ServiceTarget",
    "TrackedBranch",
]

EnvironmentType = Literal["development", "deployment"]
"""The purpose of an environment: a preview is for development; staging and production are deployments."""
BranchName = Annotated[
    str,
    Field(min_length=1, max_length=255, pattern=r"^[^-\x00-\x20\x7f~^:?*\[\\][^\x00-\x20\x7f~^:?*\[\\]*$"),
]
"""A git branch. A leading dash would be read as an option, and git itself forbids the other characters. The
pattern avoids \\s: the API server matches ASCII blanks with it, Python those of all scripts, which git
allows.
"""
BranchGlob = Annotated[str, Field(min_length=1, max_length=255)]
Path = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1024,
        pattern=r"^[^/\\]",
        rules=[
            rule(
                "!self.split('/').exists(part, part == '..')",
                "must stay inside the repository: '..' is not allowed",
            )
        ],
    ),
]
"""A path inside the repository."""


class Credentials(Part):
    """Credentials for the git server."""

    secret_ref: LocalReference
    """A Secret in the project's namespace: username and password, or ssh-privatekey and known_hosts."""


class ProjectSource(Part):
    """The repository with the source."""

    repository_url: Annotated[
        str,
        Field(
            min_length=1,
            max_length=2048,
            pattern=r"^((https?|ssh|file)://|[A-Za-z0-9_][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:)[^-\x00-\x20\x7f][^\x00-\x20\x7f]*$",
            rules=[
                rule(
                    "!self.matches('^[a-z]+://[^/]*:[^/]*@')",
                    "must not contain a password: use a Secret in credentials.secretRef",
                )
            ],
        ),
    ]
    """URL of the repository over https or ssh. Other protocols work only if the operator's settings allow
    them."""
    branch: BranchName = "main"
    """The default branch."""
    poll_interval: (
        Annotated[Duration, Field(rules=[rule("duration(self) >= duration('60s')", "must be 60s or longer")])]
        | None
    ) = None
    """Interval between polls of the repository, at least 60s. Defaults to KAPSA_DEFAULT_POLL_INTERVAL
    (300s)."""
    credentials: Credentials | None = None
    """Credentials for the git server. A public repository needs none."""


class ServiceTarget(Part):
    """The Service that receives requests from outside the cluster."""

    name: Annotated[str, Field(max_length=63)] = ""
    """Name of the Service. Defaults to the only Service that is deployed."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of the Service. Defaults to its first port."""


class Deployment(Part):
    """The deployment of the application."""

    type: Literal["helm", "manifest", "kustomize", "image"]
    """A Helm chart, plain manifests, a kustomization, or the image alone."""
    path: Path = "."
    """Path of the chart, the manifests or the kustomization in the repository."""
    values: Mapping[str, Any] = {}
    """Values for the Helm chart, in the form of its values.yaml."""
    service: ServiceTarget | None = None
    """The Service that receives requests. Required if several are deployed."""


class Build(
    Part,
    rules=[
        rule(
            "!has(self.engine) || (self.strategy == 'buildpack') == (self.engine == 'kpack') || self.strategy == 'none'",
            "kpack requires strategy buildpack; buildkit and kaniko require strategy dockerfile",
            field_path=".engine",
        )
    ],
):
    """The build of the image."""

    strategy: Literal["dockerfile", "buildpack", "none"] = "dockerfile"
    """Build from a Dockerfile, with buildpacks, or not at all."""
    engine: Literal["buildkit", "kaniko", "kpack"] | None = None
    """The build engine. Defaults to KAPSA_BUILD_ENGINE (buildkit) for a Dockerfile and to kpack for
    buildpacks."""
    dockerfile: Path = "Dockerfile"
    """Path of the Dockerfile, relative to the context."""
    context: Path = "."
    """Path of the build context in the repository."""
    args: Annotated[Mapping[str, Annotated[str, Field(max_length=32768)]], Field(max_length=100)] = {}
    """Build arguments. They are recorded in the history of the image: never put secrets here."""
    env: Annotated[tuple[EnvVar, ...], Field(map_keys=["name"], max_length=100)] = ()
    """Environment variables of the build."""
    resources: ResourceRequirements | None = None
    """Resources of the build."""


class ProjectRegistry(Part):
    """The repository of the project's images."""

    name: ObjectName | None = None
    """Name of the Registry. Without one, the registry in imageRepository is used without credentials."""
    image_repository: Annotated[
        str, Field(min_length=1, max_length=255, pattern=r"^[a-z0-9][a-z0-9._:/-]*[a-z0-9]$")
    ]
    """The image repository, with or without the host of the registry: org/app or
    registry.example.com/org/app."""


class ProjectDomain(Part):
    """The hosts of the project's environments."""

    subdomain: DnsLabel | None = None
    """Part of each host of this project. Defaults to the name of the project where a host needs it to be
    unique."""
    domain_pool_ref: LocalReference | None = None
    """The DomainPool that allocates the hosts. Defaults to the default pool of the cluster."""


class Quota(Part):
    """The total resources of an environment. The operator's settings limit how far they may be raised."""

    cpu: Quantity | None = None
    """Total CPU of all pods. Defaults to KAPSA_QUOTA_CPU (8)."""
    memory: Quantity | None = None
    """Total memory of all pods. Defaults to KAPSA_QUOTA_MEMORY (16Gi)."""
    storage: Quantity | None = None
    """Total storage that volumes request. Defaults to KAPSA_QUOTA_STORAGE (50Gi)."""
    ephemeral_storage: Quantity | None = None
    """Total storage of all pods on the disks of their nodes. Defaults to KAPSA_QUOTA_EPHEMERAL_STORAGE (64Gi)."""
    pods: Annotated[int, Field(ge=0, le=10000)] | None = None
    """Maximum number of pods. Defaults to KAPSA_QUOTA_PODS (50)."""
    objects: Annotated[int, Field(ge=1, le=10000)] | None = None
    """Maximum number of objects of each kind. Defaults to KAPSA_QUOTA_OBJECTS (100)."""


class ProjectResources(Part):
    """The resources of each environment."""

    default_quota: Quota | None = None
    """Quota of each environment. A field that is absent has the operator's default."""
    limits: ResourceAmounts | None = None
    """Default limits of containers that set none."""


class PermanentEnvironment(Part):
    """A permanent environment, such as staging."""

    name: DnsLabel
    """Name of the environment and of its Environment resource."""
    branch: BranchName
    """The branch to deploy."""
    type: EnvironmentType = "deployment"
    """The purpose of the environment."""
    auto_sync: bool = False
    """True to deploy each new commit of the branch. Otherwise the commit is set by people."""


class BranchFilter(Part):
    """A filter of branches: a branch must match an include pattern, if there are any, and no exclude
    pattern."""

    include: Annotated[tuple[BranchGlob, ...], Field(max_length=100)] = ()
    """Glob patterns such as feature/*."""
    exclude: Annotated[tuple[BranchGlob, ...], Field(max_length=100)] = ()
    """Glob patterns such as dependabot/*."""


class PreviewEnvironments(Part):
    """Environments that are created and deleted with branches and pull requests."""

    enabled: bool = False
    """True to create preview environments."""
    ttl: Duration = Duration("168h")
    """Lifetime of a preview after its last commit. A branch without a commit in this time gets no preview."""
    branches: BranchFilter = BranchFilter()
    """The branches that get a preview."""
    pull_requests: bool = True
    """True to create previews of pull requests, too."""
    max_active: Annotated[int, Field(ge=1, le=1000)] = 10
    """Maximum number of previews at a time; the rest wait in a queue. A lower number deletes no preview."""
    trust: Literal["none", "repository", "all"] = "repository"
    """The pull requests that run without approval: none, those whose commit was the head of a branch of the
    repository when it was requested, or all. Nothing of the others runs until their commit is approved."""


class ProjectSecret(Part):
    """A Secret that is copied into environments."""

    name: ObjectName
    """Name of the Secret in the project's namespace, and of its copies."""


class ProjectSpec(
    Spec,
    rules=[
        rule(
            "!has(self.build) || self.build.strategy == 'none' || has(self.registry)",
            "a build needs a registry to push to: set registry.imageRepository, or set build.strategy to none",
            field_path=".build",
        ),
    ],
):
    """The desired state of a Project."""

    source: ProjectSource
    """The repository with the source."""
    deployment: Deployment
    """The deployment of the application."""
    build: Build | None = None
    """The build of the image. If absent, no image is built."""
    registry: ProjectRegistry | None = None
    """The repository of the images."""
    domain: ProjectDomain = ProjectDomain()
    """The hosts of the environments."""
    resources: ProjectResources = ProjectResources()
    """The resources of each environment."""
    environments: Annotated[tuple[PermanentEnvironment, ...], Field(map_keys=["name"], max_length=50)] = ()
    """The permanent environments."""
    preview_environments: PreviewEnvironments = PreviewEnvironments()
    """The preview environments."""
    secrets: Annotated[tuple[ProjectSecret, ...], Field(map_keys=["name"], max_length=100)] = ()
    """Secrets in this namespace that are copied into each trusted environment."""


class EnvironmentSummary(Part):
    """A summary of one environment of the project."""

    name: str
    """Name of the environment."""
    type: EnvironmentType = "development"
    """The purpose of the environment."""
    ready: bool = False
    """True if the environment is ready."""
    url: str | None = None
    """URL of the environment."""


class QueuedPreview(Part):
    """A preview that waits because maxActive is reached."""

    name: str
    """Name of the future Environment."""
    branch: str = ""
    """The branch or pull request."""
    position: int
    """Position in the queue, starting at 1."""


class TrackedBranch(Part):
    """A branch or pull request that gets a preview, with its state in the last listings of the repository."""

    name: str
    """Name of its Environment."""
    branch: str = ""
    """The branch. For a pull request, the branch at its commit; empty if the commit is in a fork."""
    pr_number: int | None = None
    """The number of the pull request."""
    commit: str
    """The commit in the last listing."""
    seen_at: datetime
    """Time of that commit, or at which it was first seen if the repository does not reveal it. The lifetime of the
    preview counts from here."""
    missing: int = 0
    """Number of complete listings in a row without it."""


class ProjectStatus(Status):
    """The observed state of a Project."""

    namespace: NamespaceStatus | None = None
    """The namespace of its Environments, `<team>-<project>`."""

    latest_commit: str | None = None
    """The commit at the head of the project's branch."""
    latest_image: str | None = None
    """The last image that was built, by digest."""
    environments: Annotated[list[EnvironmentSummary], Field(map_keys=["name"])] = field(default_factory=list)
    """The existing environments."""
    queue: Annotated[list[QueuedPreview], Field(map_keys=["name"])] = field(default_factory=list)
    """The previews that wait because maxActive is reached."""
    last_pull_request: int | None = None
    """Highest number of a pull request in any listing. Servers list closed pull requests forever: only those
    with a higher number, and those at the head of a branch, count as open."""
    tracked: Annotated[list[TrackedBranch], Field(map_keys=["name"])] = field(default_factory=list)
    """The branches and pull requests that get previews."""


class Project(
    CustomResource[ProjectSpec, ProjectStatus],
    group="catalyst.catalyst.dev",
    version="v1alpha1",
    short_names=["proj"],
    categories=["kapsa"],
    columns=[
        printer_column("Repository", ".spec.source.repositoryUrl"),
        printer_column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        printer_column("Commit", ".status.latestCommit", priority=1),
        printer_column("Age", ".metadata.creationTimestamp", type="date"),
    ],
):
    """An application with its environments, in the namespace of its team."""
