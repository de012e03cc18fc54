"""A proof that the webhooks of a release answer: writes through them as dry runs, judged by the API server itself."""

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from kapsa.fleet.infrastructure.operations.crds.crd_plan import CRD
from kapsa.fleet.infrastructure.operations.release_objects import ReleaseObjects
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterNotReady
from kapsa.runtime import ApiError, Client, NotFound, UnknownKind

__all__ = ["prove_conversion", "prove_webhooks"]

_SLICE = "discovery.k8s.io/v1/EndpointSlice"
_FAILED_CALLS = ("failed calling webhook", "conversion webhook for", "failed to call webhook")
PROBE = "fleet.kapsa-project.io/probe"


async def prove_webhooks(client: Client, release: ReleaseObjects) -> None:
    """Write through each webhook of a release, without storing anything.

    Raises `ClusterNotReady` if no pod serves one, or the API server cannot call it. A webhook that answers no has
    answered.
    """
    webhooks = [each for config in release.webhook_configurations() for each in config.get("webhooks") or ()]
    for service in sorted({service for each in webhooks if (service := _service(each))}):
        await _require_endpoints(client, service)
    definitions = await _definitions(client, webhooks)
    for crd in definitions:
        await _probe(client, crd)


async def prove_conversion(client: Client, crd: Mapping[str, Any]) -> None:
    """Read a resource of a CRD in every served version. Raises `ClusterNotReady` if a conversion fails."""
    service = _service(
        {"clientConfig": ((crd["spec"].get("conversion") or {}).get("webhook") or {}).get("clientConfig")}
    )
    if service is not None:
        await _require_endpoints(client, service)
    for kind in _kinds(crd):
        try:
            async for _ in client.pages(kind, limit=1):
                break
        except (NotFound, UnknownKind):
            continue
        except ApiError as error:
            _raise_if_not_called(error)


async def _require_endpoints(client: Client, service: tuple[str, str]) -> None:
    namespace, name = service
    selector = {"kubernetes.io/service-name": name}
    slices = await client.list(_SLICE, namespace=namespace, label_selector=selector)
    for each in slices:
        for endpoint in each.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready") is not False:
                return
    raise ClusterNotReady(f"no pod serves the webhooks of Service {namespace}/{name} yet")


async def _definitions(client: Client, webhooks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the CRDs whose resources the webhooks are called for."""
    rules = [rule for webhook in webhooks for rule in webhook.get("rules") or ()]
    names = {
        f"{resource.partition('/')[0]}.{group}"
        for rule in rules
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
        if group not in ("", "*") and resource.partition("/")[0] != "*"
    }
    crds = []
    for name in sorted(names):
        try:
            crds.append(await client.get(CRD, name))
        except NotFound:
            continue
    return crds


async def _probe(client: Client, crd: Mapping[str, Any]) -> None:
    """Change a resource, and create a copy of it, as dry runs. Without any resource, create an empty one."""
    for kind in _kinds(crd)[:1]:
        page = await anext(aiter(client.pages(kind, limit=1)))
        if page.items:
            await _update(client, kind, page.items[0])
        await _create(client, crd, kind, page.items[0] if page.items else {})


async def _update(client: Client, kind: str, resource: Mapping[str, Any]) -> None:
    metadata = resource["metadata"]
    patch = {"metadata": {"annotations": {PROBE: secrets.token_hex(4)}}}
    try:
        await client.patch(
            kind, metadata["name"], patch, namespace=metadata.get("namespace", ""), dry_run=True
        )
    except ApiError as error:
        _raise_if_not_called(error)


async def _create(client: Client, crd: Mapping[str, Any], kind: str, resource: Mapping[str, Any]) -> None:
    api_version, _, name = kind.rpartition("/")
    metadata: dict[str, Any] = {"name": f"kapsa-probe-{secrets.token_hex(4)}"}
    if crd["spec"]["scope"] == "Namespaced":
        metadata["namespace"] = (resource.get("metadata") or {}).get("namespace") or "default"
    content = {key: value for key, value in resource.items() if key not in ("metadata", "status")}
    body = {**content, "apiVersion": api_version, "kind": name, "metadata": metadata}
    try:
        await client.create(body, dry_run=True)
    except ApiError as error:
        _raise_if_not_called(error)


def _raise_if_not_called(error: ApiError) -> None:
    """Raise unless the error is an answer: a webhook that denies, or a schema that does, was reached."""
    text = str(error)
    if any(each in text for each in _FAILED_CALLS):
        raise ClusterNotReady(f"a webhook does not answer: {text[:500]}") from error
    if error.retryable:
        raise error


def _kinds(crd: Mapping[str, Any]) -> list[str]:
    spec = crd["spec"]
    served = sorted(
        (each for each in spec["versions"] if each.get("served")), key=lambda each: not each["storage"]
    )
    return [f"{spec['group']}/{each['name']}/{spec['names']['kind']}" for each in served]


def _service(webhook: Mapping[str, Any]) -> tuple[str, str] | None:
    service = (webhook.get("clientConfig") or {}).get("service")
    return (str(service["namespace"]), str(service["name"])) if service else None
