"""A scenario with every kind of write of the operator, with fakes for the ports."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kapsa.adapters.http.client import HttpResponse
from kapsa.environments.build.engines import BuildEngines
from kapsa.environments.hosts.choice import BUILT_IN
from kapsa.environments.hosts.routes import CERTIFICATE, GATEWAY, HTTP_ROUTE
from kapsa.environments.namespace_objects.children import KPACK_IMAGE
from kapsa.environments.operator import ExternalSystems, make_operator
from kapsa.environments.render.filter import ALLOWED_KINDS
from kapsa.environments.resources import DomainPool, Environment, PreviewEnvironment, Project, Registry
from kapsa.environments.settings import Settings
from kapsa.environments.tenancy.team_access import ROLE_BINDING
from kapsa.runtime import Operator
from tests.environments.fakes import FakeGit, FakeImages, FakeProber, FakeRenderer
from tests.environments.open_kinds import open_kind
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant

__all__ = ["FullScenario"]

REPOSITORY = "https://git.example.com/org/app"
PULL_SECRET = "kapsa-registry"
_POD = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
_ONCE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": "app:1"}]}}
_SPECS: Mapping[str, dict[str, Any]] = {
    "ServiceAccount": {},
    "ConfigMap": {"data": {"a": "b"}},
    "Secret": {"stringData": {"a": "b"}},
    "PersistentVolumeClaim": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    "Service": {"spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]}},
    "Deployment": {"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": _POD}},
    "StatefulSet": {
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "serviceName": "x", "template": _POD}
    },
    "DaemonSet": {"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": _POD}},
    "Job": {"spec": {"template": _ONCE}},
    "CronJob": {"spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": _ONCE}}}},
    "HorizontalPodAutoscaler": {
        "spec": {
            "maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"},
        }
    },
    "PodDisruptionBudget": {"spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "x"}}}},
    "Ingress": {"spec": {"defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}}},
}


class _OpenRegistry:
    """A registry that accepts all credentials."""

    async def fetch(self, method: str, url: str, **options: Any) -> HttpResponse:
        return HttpResponse(200, {"docker-distribution-api-version": "registry/2.0"})


class FullScenario:
    """A tenant that uses every feature."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.client = sandbox.client
        self.clock = sandbox.clock
        self.tenant = Tenant(sandbox)
        self.git, self.images, self.renderer = FakeGit(), FakeImages(), FakeRenderer()
        # In a cluster the lease and the certificates are in the pod's namespace; here, in the client's.
        self.settings = Settings(namespace=self.client.namespace, cluster_issuer="", webhooks_enabled=True)
        self.operator = self._make(self.settings)
        self.before_restart: Callable[[], object] = lambda: None
        """Called before the operator stops, since its metrics are lost then."""

    def _make(self, settings: Settings) -> Operator:
        systems = ExternalSystems(
            git=self.git,
            commit_times=self.git,
            commits=self.git,
            renderer=self.renderer,
            builds=BuildEngines(settings),
            images=self.images,
            http=_OpenRegistry(),
            prober=FakeProber(),
        )
        return make_operator(settings, systems, rng=random.Random(1))

    async def run(self) -> None:
        """Run the whole scenario."""
        await self._prepare()
        await self.sandbox.start(self.operator)
        await self._build_and_deploy()
        await self._apply_and_prune_every_kind()
        await self._fail_a_build()
        await self._build_with_kpack()
        await self._drift()
        await self._change_settings()
        await self._expire_a_preview()
        await self._preview_a_branch()

    async def delete_project(self) -> None:
        """Delete the project, with an object whose finalizer delays the deletion."""
        metadata = {
            "name": "stuck",
            "namespace": self.tenant.namespace_of("one"),
            "finalizers": ["example.com/wait"],
        }
        await self.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        await self.client.delete(Project, "app", namespace=self.tenant.name)
        await self.clock.sleep(10 * self.settings.deletion_report_after)
        patch = {"metadata": {"finalizers": None}}
        await self.client.patch("v1/ConfigMap", "stuck", patch, namespace=self.tenant.namespace_of("one"))
        await self.sandbox.gone(Project, "app", seconds=600)

    # -- parts of the scenario ---------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        for kind in (KPACK_IMAGE, GATEWAY, HTTP_ROUTE, CERTIFICATE):
            await self.client.create(open_kind(kind))
        await self.sandbox.make_namespace("ingress")
        api_version, _, kind = GATEWAY.rpartition("/")
        metadata = {"name": "public", "namespace": "ingress"}
        await self.client.create({"apiVersion": api_version, "kind": kind, "metadata": metadata})
        await self._secret("login", self.settings.namespace, username="a", password="b")
        await self._secret("git", self.tenant.name, username="a", password="b")
        await self._secret("shared", self.tenant.name, key="value")
        await self.client.create(_team_binding(self.tenant.name, "jane"))
        login = {"secretRef": {"name": "login", "namespace": self.settings.namespace}}
        pull = {"secretRef": {"name": "pull", "namespace": self.settings.namespace}}
        await self._secret("pull", self.settings.namespace, username="c", password="d")
        spec = {
            "endpoint": "registry.example.com",
            "auth": login,
            "imagePullSecret": pull,
            "repositories": [{"prefixes": ["org"]}],
        }
        await self.sandbox.apply(Registry, "images", spec)

    async def _secret(self, name: str, namespace: str, **values: str) -> None:
        metadata = {"name": name, "namespace": namespace}
        await self.client.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values}
        )

    async def _project(self, **more: Any) -> None:
        await self.tenant.project(
            **{
                "source": {"repositoryUrl": REPOSITORY, "credentials": {"secretRef": {"name": "git"}}},
                "registry": {"name": "images", "imageRepository": "org/app"},
                "build": {"strategy": "dockerfile"},
                "secrets": [{"name": "shared"}],
                "resources": {"defaultQuota": {"cpu": "20", "memory": "40Gi"}},
                **more,
            }
        )

    async def _build_and_deploy(self) -> None:
        await self._project()
        await self.tenant.environment(commit="one")
        await self._built()
        await self.tenant.ready()

    async def _built(self) -> None:
        """Push the image once its build Job is done."""
        await self.tenant.reaches("one", "BuildReady", "False", "ImageNotPushed")
        for image in self.images.asked:
            self.images.push(image)

    async def _apply_and_prune_every_kind(self) -> None:
        plain = self.renderer.objects
        self.renderer.objects = [_object_of(kind) for kind in ALLOWED_KINDS]
        await self._pushed("two")
        await self.tenant.reaches("one", "DeploymentReady", "True")
        await self._lose_the_pull_secret()
        self.renderer.objects = plain
        await self._pushed("three")
        await self.tenant.ready()

    async def _lose_the_pull_secret(self) -> None:
        """Delete the copied pull secret. Before it is made again, everything that could read it is looked at."""
        namespace = self.tenant.namespace_of("one")
        await self.client.delete("v1/Secret", PULL_SECRET, namespace=namespace)
        await self.sandbox.at_rest(10)
        await self.client.get("v1/Secret", PULL_SECRET, namespace=namespace)

    async def _pushed(self, text: str) -> None:
        """Set a commit whose image already exists."""
        self.images.digests = _EveryImage(self.images.digests)
        await self.tenant.environment(commit=text)

    async def _fail_a_build(self) -> None:
        self.images.digests = {}
        self.sandbox.harness.cluster.workloads.crash(f"{self.settings.build_namespace}/*")
        await self.tenant.environment(commit="broken")
        await self.tenant.reaches("one", "BuildReady", "False", "BuildFailed", seconds=600)
        self.sandbox.harness.cluster.workloads.heal()

    async def _build_with_kpack(self) -> None:
        await self._project(build={"strategy": "buildpack"})
        await self.tenant.environment(commit="buildpacks")
        await self.tenant.reaches("one", "BuildReady", "False", "Building")
        await self._project(build=None)
        await self._pushed("four")
        await self.tenant.ready()

    async def _drift(self) -> None:
        for name in (self.tenant.home, self.tenant.namespace_of("one")):
            patch = {"metadata": {"labels": {"catalyst.dev/team": "other"}}}
            await self.client.patch("v1/Namespace", name, patch)
        await self.client.apply(_team_binding(self.tenant.name, "joe"), force=True)
        await self.sandbox.at_rest(10)
        await self.client.delete(ROLE_BINDING, "developers", namespace=self.tenant.name)
        for services in ([{"name": "database", "cidrs": ["10.20.0.0/28"]}], None):
            await self.client.patch(DomainPool, BUILT_IN, {"spec": {"sharedServices": services}})
            await self.sandbox.at_rest(10)
        await self._project(build=None, secrets=[], resources={})
        certificates = {"data": {"ca.crt": None}}
        await self.client.patch(
            "v1/Secret", "kapsa-webhook-certificates", certificates, namespace=self.settings.namespace
        )
        await self.sandbox.at_rest(100)

    async def _change_settings(self) -> None:
        """Run an operator with other settings, then the first one again."""
        other = msgspec.structs.replace(
            self.settings,
            preview_domain="other.example.com",
            route_kind="HTTPRoute",
            gateway="ingress/public",
            **dict.fromkeys(
                (
                    f"quota_{name}"
                    for name in ("cpu", "memory", "storage", "ephemeral_storage", "pods", "objects")
                ),
                "",
            ),
        )
        for settings in (other, self.settings):
            self.before_restart()
            await self.sandbox.harness.stop()
            await self.sandbox.start(self._make(settings))
            await self.tenant.environment(
                commit="four", config={"envVars": [{"name": "A", "value": settings.gateway}]}
            )
            await self.tenant.environment("two", commit="four")
            if settings.route_kind == "HTTPRoute":
                await self._accept_routes("one", "two")
            await self.tenant.ready("two")
            await self.sandbox.at_rest()
            await self.tenant.ready()

    async def _accept_routes(self, *environments: str) -> None:
        """Write the status of routes, as the controller of their Gateway does."""
        reference = {"name": "public", "namespace": "ingress"}
        parent = {"parentRef": reference, "conditions": [{"type": "Accepted", "status": "True"}]}
        for name in environments:
            namespace = self.tenant.namespace_of(name)
            await self.sandbox.exists(HTTP_ROUTE, "kapsa", namespace=namespace)
            status = {"status": {"parents": [parent]}}
            await self.client.patch(HTTP_ROUTE, "kapsa", status, namespace=namespace, subresource="status")

    async def _expire_a_preview(self) -> None:
        spec = {"pr_number": 7, "branch_name": "x", "image": "a", "image_tag": "b", "ttl_seconds": 60}
        await self.sandbox.apply(PreviewEnvironment, "seven", spec)
        await self.sandbox.condition(PreviewEnvironment, "seven")
        await self.sandbox.gone(PreviewEnvironment, "seven", seconds=600)

    async def _preview_a_branch(self) -> None:
        self.git.push("feature")
        previews = {"enabled": True, "ttl": "60s", "pullRequests": False}
        await self._project(build=None, previewEnvironments=previews)
        await self.sandbox.until(
            lambda: self.sandbox.get(Environment, "feature", namespace=self.tenant.home),
            "the branch has a preview",
            seconds=600,
        )
        await self.sandbox.gone(Environment, "feature", namespace=self.tenant.home, seconds=600)


def _team_binding(namespace: str, user: str) -> dict[str, Any]:
    """Return the binding of a user to edit in the namespace of the team."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "developers", "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


class _EveryImage(dict[str, str]):
    """The digests of a registry that has every image."""

    def get(self, image: str, default: Any = None) -> Any:
        return super().get(image) or f"sha256:{'0' * 64}"


def _object_of(kind: str) -> dict[str, Any]:
    api_version, _, name = kind.rpartition("/")
    return {"apiVersion": api_version, "kind": name, "metadata": {"name": "x"}, **_SPECS[name]}
