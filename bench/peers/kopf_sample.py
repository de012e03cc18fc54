"""The kopf peer: the same two operators as the Kapsa and controller-runtime ones next to it.

As kopf's documentation recommends: asynchronous handlers, status through `patch`, children adopted and
created with an asynchronous client, and watched by event handlers, the lightest kind, so that manual changes
are reverted as by the other peers. Event posting is off, since the other peers post no events either. Run:
`kopf run -A kopf_sample.py`; OWNED=watched creates a Deployment and a Service for each resource, OWNED=blind
creates them without a watch.
"""

from __future__ import annotations

import os
from typing import Any

import kopf

OWNED = os.environ.get("OWNED", "")


def of_sample(meta: kopf.Meta, **_: Any) -> bool:
    return any(owner["kind"] == "Sample" for owner in meta.get("ownerReferences", ()))


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    settings.posting.enabled = False
    settings.watching.server_timeout = 600
    if OWNED:
        from kubernetes_asyncio import client, config

        await config.load_kube_config()
        memo.api = client.ApiClient()
        memo.apps = client.AppsV1Api(memo.api)
        memo.core = client.CoreV1Api(memo.api)


@kopf.on.cleanup()
async def close(memo: kopf.Memo, **_: Any) -> None:
    if OWNED:
        await memo.api.close()


@kopf.on.create("bench.kapsa.dev", "v1", "samples")
@kopf.on.update("bench.kapsa.dev", "v1", "samples")
@kopf.on.resume("bench.kapsa.dev", "v1", "samples")
async def reconcile(
    spec: kopf.Spec, status: kopf.Status, patch: kopf.Patch, memo: kopf.Memo, **about: Any
) -> None:
    if OWNED:
        children = [deployment(about["name"]), service(about["name"])]
        kopf.adopt(children)
        for child in children:
            await create(child, memo)
    if status.get("value") != spec["value"]:
        patch.status["value"] = spec["value"]


if OWNED == "watched":

    @kopf.on.event("apps", "v1", "deployments", when=of_sample)
    @kopf.on.event("", "v1", "services", when=of_sample)
    async def revert(type: str, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:  # noqa: A002 - kopf's own name
        child = (
            deployment(body.metadata.name) if body["kind"] == "Deployment" else service(body.metadata.name)
        )
        child["metadata"] |= {key: body["metadata"][key] for key in ("namespace", "ownerReferences")}
        if type == "DELETED":
            await create(child, memo)
        elif not contains(body["spec"], child["spec"]):
            await replace(child, memo)


def contains(live: Any, desired: Any) -> bool:
    """Return whether the desired fields are set. Other fields belong to the server."""
    if isinstance(desired, dict):
        return all(key in live and contains(live[key], value) for key, value in desired.items())
    if isinstance(desired, list):
        return len(live) == len(desired) and all(map(contains, live, desired))
    return bool(live == desired)


async def create(child: dict[str, Any], memo: kopf.Memo) -> None:
    from kubernetes_asyncio.client import ApiException

    make = {
        "Deployment": memo.apps.create_namespaced_deployment,
        "Service": memo.core.create_namespaced_service,
    }[child["kind"]]
    try:
        await make(child["metadata"]["namespace"], child)
    except ApiException as error:
        if error.status != 409:
            raise


async def replace(child: dict[str, Any], memo: kopf.Memo) -> None:
    patch = {
        "Deployment": memo.apps.patch_namespaced_deployment,
        "Service": memo.core.patch_namespaced_service,
    }[child["kind"]]
    namespace = child["metadata"]["namespace"]
    await patch(child["metadata"]["name"], namespace, child, _content_type="application/merge-patch+json")


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    containers = [{"name": "app", "image": "example.com/app:1"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    return {
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def service(name: str) -> dict[str, Any]:
    return {
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": "None", "selector": {"app": name}, "ports": [{"port": 80, "targetPort": 80}]},
    }
