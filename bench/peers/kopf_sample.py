"""The kopf peer: the same two operators as the Kapsa and controller-runtime ones beside it.

As kopf's documentation recommends: asynchronous handlers, status through `patch`, children adopted and created with
an asynchronous client. Event posting is off, as the other peers post none here. Run: `kopf run -A kopf_sample.py`;
OWNED=1 makes a Deployment and a Service each.
"""

from __future__ import annotations

import os
from typing import Any

import kopf

OWNED = os.environ.get("OWNED") == "1"


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
        await children(about["name"], about["namespace"], memo)
    if status.get("value") != spec["value"]:
        patch.status["value"] = spec["value"]


async def children(name: str, namespace: str, memo: kopf.Memo) -> None:
    from kubernetes_asyncio.client import ApiException

    labels = {"app": name}
    containers = [{"name": "app", "image": "example.com/app:1"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    deployment = {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    service = {
        "metadata": {"name": name},
        "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 80}]},
    }
    kopf.adopt([deployment, service])
    for create, body in (
        (memo.apps.create_namespaced_deployment, deployment),
        (memo.core.create_namespaced_service, service),
    ):
        try:
            await create(namespace, body)
        except ApiException as error:
            if error.status != 409:
                raise
