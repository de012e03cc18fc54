"""Pod Security levels of namespaces, on the embedded server alone."""

from __future__ import annotations

import pytest_asyncio

from kapsa.devcluster.embedded.server import Server
from tests.devcluster.embedded.api import PODS, Api

NAMESPACE = "/api/v1/namespaces/default"


@pytest_asyncio.fixture
async def api() -> Api:
    return Api(Server())


def pod(name: str = "one", **context: object) -> dict[str, object]:
    container = {"name": "c", "image": "i", "securityContext": context}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


async def enforce(api: Api, level: str) -> None:
    await api.merge(NAMESPACE, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}})


async def test_the_baseline_level_rejects_a_privileged_container(api: Api):
    await enforce(api, "baseline")
    answer = await api.post(PODS, pod(privileged=True))
    assert answer.status == 403
    assert answer.message == (
        'pods "one" is forbidden: violates PodSecurity "baseline:latest": privileged '
        '(container "c" must not set securityContext.privileged=true)'
    )


async def test_a_namespace_without_labels_accepts_a_privileged_container(api: Api):
    assert (await api.post(PODS, pod(privileged=True))).status == 201


async def test_an_unknown_level_is_invalid(api: Api):
    labels = {"pod-security.kubernetes.io/enforce": "strict"}
    answer = await api.merge(NAMESPACE, {"metadata": {"labels": labels}})
    assert answer.status == 422
    assert "must be one of privileged, baseline, restricted" in answer.message
