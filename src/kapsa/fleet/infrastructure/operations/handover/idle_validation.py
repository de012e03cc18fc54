"""Evidence about a release at zero replicas: it would start if it were scaled up, and nothing of it acts yet."""

from collections.abc import Iterable, Mapping
from typing import Any

from kapsa.adapters.errors import Refused
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck
from kapsa.fleet.infrastructure.operations.crds.crd_plan import CRD
from kapsa.fleet.infrastructure.operations.crds.crd_record import read_record
from kapsa.fleet.infrastructure.operations.handover.controllers import unstoppable
from kapsa.fleet.infrastructure.operations.handover.idle_marks import desired_replicas, is_idle
from kapsa.fleet.infrastructure.operations.release_objects import ReleaseObjects, kind_of
from kapsa.runtime import ApiError, Client, NotFound

__all__ = ["validate_idle"]

Manifest = Mapping[str, Any]
_LONGEST = 500


async def validate_idle(client: Client, release: ReleaseObjects) -> tuple[HealthCheck, ...]:
    """Return the checks of a release at rest.

    Pods: each controller is at zero, its image is a reference, and a pod of it passes admission as a dry run.
    Webhooks: none is called yet. Resources: the account of a controller may watch the kinds of the chart.
    """
    pods = [check for each in release.controllers() if (check := await _controller(client, release, each))]
    if reason := unstoppable(release):
        pods.append(_failing(CheckKind.PODS, "CannotStop", reason))
    if not list(release.controllers()):
        pods.append(
            _failing(CheckKind.PODS, "NoController", f"{release.release} has no Deployment or StatefulSet")
        )
    return (
        _first(pods, CheckKind.PODS, "every controller is at zero and would be admitted"),
        _first(
            await _webhooks(client, release), CheckKind.WEBHOOKS, "no webhook is called before the switch"
        ),
        _first(await _rights(client, release), CheckKind.RESOURCES, "the controllers may watch their kinds"),
    )


async def _controller(client: Client, release: ReleaseObjects, controller: Manifest) -> HealthCheck | None:
    """Return what keeps a controller from starting later, or that it runs already; None if all is well."""
    name, namespace = str(controller["metadata"]["name"]), release.namespace_of(controller)
    where = f"{controller['kind']} {namespace}/{name}"
    try:
        live = await client.get(kind_of(controller), name, namespace=namespace)
    except NotFound:
        return _failing(CheckKind.PODS, "NotInstalled", f"{where} does not exist")
    if live["spec"].get("replicas", 1):
        message = (
            f"{where} has {live['spec'].get('replicas', 1)} replicas before the hand-over, and must have none"
        )
        return _failing(CheckKind.PODS, "NotIdle", message)
    if not desired_replicas(live):
        return None  # switched off by its values
    template = live["spec"]["template"]
    return _image_problem(where, template) or await _admission_problem(client, where, namespace, template)


def _image_problem(where: str, template: Manifest) -> HealthCheck | None:
    spec = template.get("spec") or {}
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        try:
            ImageReference.parse(str(container.get("image", "")))
        except Refused as error:
            return _failing(CheckKind.PODS, "InvalidImageName", f"{where}: {error}")
    return None


async def _admission_problem(
    client: Client, where: str, namespace: str, template: Manifest
) -> HealthCheck | None:
    """Create a pod of the template as a dry run: its account, quotas, pod security and policies are judged."""
    metadata = template.get("metadata") or {}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "kapsa-probe-",
            "namespace": namespace,
            "labels": dict(metadata.get("labels") or {}),
            "annotations": dict(metadata.get("annotations") or {}),
        },
        "spec": template["spec"],
    }
    try:
        await client.create(pod, dry_run=True)
    except ApiError as error:
        if error.retryable:
            raise
        return _failing(CheckKind.PODS, "PodRejected", f"{where}: {error}")
    return None


async def _webhooks(client: Client, release: ReleaseObjects) -> list[HealthCheck]:
    checks: list[HealthCheck] = []
    for config in release.webhook_configurations():
        name = str(config["metadata"]["name"])
        try:
            live = await client.get(kind_of(config), name)
        except NotFound:
            checks.append(
                _failing(CheckKind.WEBHOOKS, "NotInstalled", f"{config['kind']} {name} does not exist")
            )
            continue
        if not all(is_idle(each) for each in live.get("webhooks") or ()):
            message = (
                f"{config['kind']} {name} calls a controller that does not run: its webhooks must be at rest"
            )
            checks.append(_failing(CheckKind.WEBHOOKS, "WebhookNotIdle", message))
    return checks


async def _rights(client: Client, release: ReleaseObjects) -> list[HealthCheck]:
    """Return the kinds of the chart that no account of its controllers may watch."""
    accounts = sorted({_account(release, each) for each in release.controllers()})
    checks = []
    for group, resource in await _kinds(client, release):
        if not [each for each in accounts if await _may_watch(client, each, group, resource)]:
            message = f"no account of {release.release} may watch {resource}.{group}: {', '.join(accounts)}"
            checks.append(_failing(CheckKind.RESOURCES, "MissingRights", message))
    return checks


def _account(release: ReleaseObjects, controller: Manifest) -> str:
    spec = ((controller.get("spec") or {}).get("template") or {}).get("spec") or {}
    name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    return f"system:serviceaccount:{release.namespace_of(controller)}:{name}"


async def _kinds(client: Client, release: ReleaseObjects) -> list[tuple[str, str]]:
    """Return group and resource of the kinds whose CRDs were applied for the release."""
    kinds: list[tuple[str, str]] = []
    async for page in client.pages(CRD, limit=500, metadata_only=True):
        for each in page.items:
            record = read_record(each)
            if record is not None and record.current.release == str(release.release):
                resource, _, group = str(each["metadata"]["name"]).partition(".")
                kinds.append((group, resource))
    return kinds


async def _may_watch(client: Client, account: str, group: str, resource: str) -> bool:
    """Return whether an account may watch a resource, in all namespaces or in its own."""
    namespace = account.split(":")[2]
    for scope in ("", namespace):
        review = await client.create(_review(account, group, resource, scope))
        if (review.get("status") or {}).get("allowed") is True:
            return True
    return False


def _review(account: str, group: str, resource: str, namespace: str) -> dict[str, Any]:
    own = f"system:serviceaccounts:{account.split(':')[2]}"
    attributes = {"group": group, "resource": resource, "verb": "watch", "namespace": namespace}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {
            "user": account,
            "groups": ["system:serviceaccounts", own, "system:authenticated"],
            "resourceAttributes": attributes,
        },
    }


def _failing(kind: CheckKind, reason: str, message: str) -> HealthCheck:
    # A release at rest does not change by itself: one look is enough.
    return HealthCheck(kind, Evidence.FAILING, reason, " ".join(message.split())[:_LONGEST], conclusive=True)


def _first(checks: Iterable[HealthCheck], kind: CheckKind, passed: str) -> HealthCheck:
    return next(iter(checks), HealthCheck(kind, Evidence.HEALTHY, "Passed", passed))
