"""Project: an application, where its source is, and how it is built, deployed and previewed."""

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
"""A preview is for development, staging and production are deployments."""
BranchName = Annotated[
    str,
    Field(min_length=1, max_length=255, pattern=r"^[^-\x00-\x20\x7f~^:?*\[\\][^\x00-\x20\x7f~^:?*\[\\]*$"),
]
"""A git branch. A leading dash would be read as an option, and git itself allows none of the others. No \\s here: the API
server takes it for the blanks of ASCII and Python for those of all scripts, which git does allow."""
BranchGlob = Annotated[str, Field(min_length=1, max_length=255)]
Path = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1024,
        pattern=r"^[^/\\]",
        rules=[
            rule("!self.split('/').exists(part, part == '..')", "must stay inside the repository: no '..'")
        ],
    ),
]
"""A path inside the repository."""


class Credentials(Part):
    """Who we are to the git server."""

    secret_ref: LocalReference
    """A Secret in the project's namespace: username and password (or token), or ssh-privatekey and known_hosts."""


class ProjectSource(Part):
    """Where the source is."""

    repository_url: Annotated[
        str,
        Field(
            min_length=1,
            max_length=2048,
            pattern=r"^((https?|ssh|file)://|[A-Za-z0-9_][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:)[^-\x00-\x20\x7f][^\x00-\x20\x7f]*$",
            rules=[
                rule(
                    "!self.matches('^[a-z]+://[^/]*:[^/]*@')",
                    "must hold no password: name a Secret in credentials.secretRef",
                )
            ],
        ),
    ]
    """The repository over https or ssh. Other protocols work only where the operator's settings allow them."""
    branch: BranchName = "main"
    """The branch that is meant where none is named."""
    poll_interval: (
        Annotated[Duration, Field(rules=[rule("duration(self) >= duration('60s')", "must be 60s or longer")])]
        | None
    ) = None
    """How often the repository is looked at, at least 60s; KAPSA_DEFAULT_POLL_INTERVAL (300s) if absent."""
    credentials: Credentials | None = None
    """How to log in; a public repository needs none."""


class ServiceTarget(Part):
    """The Service that requests from outside go to."""

    name: Annotated[str, Field(max_length=63)] = ""
    """Its name; if empty it is the only Service there is."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Its port; its first one if absent."""


class Deployment(Part):
    """How the application is deployed."""

    type: Literal["helm", "manifest", "kustomize", "image"]
    """A Helm chart, plain manifests, a kustomization, or no more than the image."""
    path: Path = "."
    """Where the chart, the manifests or the kustomization is in the repository."""
    values: Mapping[str, Any] = {}
    """Values for the Helm chart, as its values.yaml has them."""
    service: ServiceTarget | None = None
    """Which Service requests go to, where there are several."""


class Build(
    Part,
    rules=[
        rule(
            "!has(self.engine) || (self.strategy == 'buildpack') == (self.engine == 'kpack') || self.strategy == 'none'",
            "kpack builds with buildpacks and buildkit and kaniko from a Dockerfile: choose the other strategy or engine",
            field_path=".engine",
        )
    ],
):
    """How the image is built."""

    strategy: Literal["dockerfile", "buildpack", "none"] = "dockerfile"
    """From a Dockerfile, with buildpacks, or not at all."""
    engine: Literal["buildkit", "kaniko", "kpack"] | None = None
    """What builds it: buildkit unless told for a Dockerfile, kpack for buildpacks."""
    dockerfile: Path = "Dockerfile"
    """The Dockerfile, as a path from the context."""
    context: Path = "."
    """The directory that is built, as a path in the repository."""
    args: Annotated[Mapping[str, Annotated[str, Field(max_length=32768)]], Field(max_length=100)] = {}
    """Build arguments. They end up in the image's history: no secrets."""
    env: Annotated[tuple[EnvVar, ...], Field(map_keys=["name"], max_length=100)] = ()
    """Environment variables of the build."""
    resources: ResourceRequirements | None = None
    """What the build may use."""


class ProjectRegistry(Part):
    """Where images go."""

    name: ObjectName | None = None
    """The Registry; without one the repository's own host is asked, without logging in."""
    image_repository: Annotated[
        str, Field(min_length=1, max_length=255, pattern=r"^[a-z0-9][a-z0-9._:/-]*[a-z0-9]$")
    ]
    """The repository, with or without the registry's host: org/app or registry.example.com/org/app."""


class ProjectDomain(Part):
    """Under which name the environments are reached."""

    subdomain: DnsLabel | None = None
    """Part of every host of this project; the project's name where one is needed, if absent."""
    domain_pool_ref: LocalReference | None = None
    """The DomainPool that hosts are taken from; the cluster's default if absent."""


class Quota(Part):
    """What an environment may use in all."""

    cpu: Quantity | None = None
    """CPU of all its pods together."""
    memory: Quantity | None = None
    """Memory of all its pods together."""
    pods: Annotated[int, Field(ge=0, le=10000)] | None = None
    """How many pods it may have."""


class ProjectResources(Part):
    """How much each environment gets."""

    default_quota: Quota | None = None
    """The quota of each environment; none if absent."""
    limits: ResourceAmounts | None = None
    """What a container may take that says nothing itself."""


class PermanentEnvironment(Part):
    """An environment that stays, such as staging."""

    name: DnsLabel
    """Its name, which is also that of its Environment."""
    branch: BranchName
    """The branch that it shows."""
    type: EnvironmentType = "deployment"
    """What it is for."""
    auto_sync: bool = False
    """Whether it follows its branch; else its commit stays as somebody set it."""


class BranchFilter(Part):
    """Which branches get a preview: those that match an include (any, if there is none) and no exclude."""

    include: Annotated[tuple[BranchGlob, ...], Field(max_length=100)] = ()
    """Globs such as feature/*."""
    exclude: Annotated[tuple[BranchGlob, ...], Field(max_length=100)] = ()
    """Globs such as dependabot/*."""


class PreviewEnvironments(Part):
    """Environments that come and go with branches and pull requests."""

    enabled: bool = False
    """Whether there are any."""
    ttl: Duration = Duration("168h")
    """How long a preview stays after its last commit."""
    branches: BranchFilter = BranchFilter()
    """Which branches get one."""
    pull_requests: bool = True
    """Whether pull requests get one, too."""
    max_active: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many there may be at a time; the rest wait in a queue. No limit if absent."""
    trust: Literal["none", "repository", "all"] = "repository"
    """Whose pull requests get the project's secrets without approval: nobody's, those whose commit is also on a
    branch of the repository, or everybody's. The others' get none until their very commit is approved."""


class ProjectSecret(Part):
    """A Secret that environments get."""

    name: ObjectName
    """Its name in the project's namespace, and in theirs."""


class ProjectSpec(
    Spec,
    rules=[
        rule(
            "!has(self.build) || self.build.strategy == 'none' || has(self.registry)",
            "a build needs a registry to push to: set registry.imageRepository, or build.strategy to none",
            field_path=".build",
        ),
    ],
):
    """What to deploy, from where, and how."""

    source: ProjectSource
    """Where the source is."""
    deployment: Deployment
    """How it is deployed."""
    build: Build | None = None
    """How the image is built; it is not built if absent."""
    registry: ProjectRegistry | None = None
    """Where the image is."""
    domain: ProjectDomain = ProjectDomain()
    """Under which name it is reached."""
    resources: ProjectResources = ProjectResources()
    """How much each environment gets."""
    environments: Annotated[tuple[PermanentEnvironment, ...], Field(map_keys=["name"], max_length=50)] = ()
    """The environments that stay."""
    preview_environments: PreviewEnvironments = PreviewEnvironments()
    """The environments that come and go."""
    secrets: Annotated[tuple[ProjectSecret, ...], Field(map_keys=["name"], max_length=100)] = ()
    """Secrets in this namespace that every environment gets a copy of, if it is trusted."""


class EnvironmentSummary(Part):
    """One of the project's environments, in short."""

    name: str
    """Its name."""
    type: EnvironmentType = "development"
    """What it is for."""
    ready: bool = False
    """Whether it is ready."""
    url: str | None = None
    """Where it is reached."""


class QueuedPreview(Part):
    """A preview that waits because maxActive is reached."""

    name: str
    """The name that its Environment will have."""
    branch: str = ""
    """The branch or pull request that it is for."""
    position: int
    """Its place in the queue, from 1."""


class TrackedBranch(Part):
    """A branch or pull request that gets a preview, and what the listings of the repository said of it."""

    name: str
    """The name of its Environment."""
    branch: str = ""
    """The branch; of a pull request the one that is at its commit, and empty if that is in a fork."""
    pr_number: int | None = None
    """The pull request."""
    commit: str
    """The commit that it was at when it was last listed."""
    seen_at: datetime
    """When it was first seen at that commit: the preview's time to live counts from here."""
    missing: int = 0
    """How many complete listings in a row it was missing from."""


class ProjectStatus(Status):
    """What was found in the repository, and what became of it."""

    namespace: NamespaceStatus | None = None
    """The namespace of its Environments, `<team>-<project>`."""

    latest_commit: str | None = None
    """The commit at the head of the project's branch."""
    latest_image: str | None = None
    """The image that was built last, by digest."""
    environments: Annotated[list[EnvironmentSummary], Field(map_keys=["name"])] = field(default_factory=list)
    """The environments there are."""
    queue: Annotated[list[QueuedPreview], Field(map_keys=["name"])] = field(default_factory=list)
    """The previews that wait for their turn."""
    last_pull_request: int | None = None
    """The highest number of a pull request that was ever listed. Servers list closed ones for ever: only those with a
    higher number, and those at the head of a branch, are taken for open ones."""
    tracked: Annotated[list[TrackedBranch], Field(map_keys=["name"])] = field(default_factory=list)
    """The branches and pull requests that previews are for."""


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
    """An application with its environments. It lives in its team's namespace."""
