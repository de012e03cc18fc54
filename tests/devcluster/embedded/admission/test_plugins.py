"""LimitRanges, PriorityClasses and service accounts, on the embedded server alone."""

from __future__ import annotations

import pytest_asyncio

from kapsa.devcluster.embedded.server import Server
from tests.devcluster.embedded.api import PODS, Api

LIMITS = "/api/v1/namespaces/default/limitranges"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest_asyncio.fixture
async def api() -> Api:
    return Api(Server())


def pod(**spec: object) -> dict[str, object]:
    return {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


async def test_a_limit_range_sets_defaults_and_notes_them(api: Api):
    limit = {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}}
    await api.post(LIMITS, {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})
    created = (await api.post(PODS, pod())).body
    expected = {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}
    assert created["spec"]["containers"][0]["resources"] == expected
    note = "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    assert created["metadata"]["annotations"] == {"kubernetes.io/limit-ranger": note}


async def test_a_container_above_the_maximum_is_rejected(api: Api):
    limit = {"type": "Pod", "max": {"cpu": "1"}}
    await api.post(LIMITS, {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})
    answer = await api.post(PODS, pod())
    assert (answer.status, answer.message) == (
        403,
        'pods "one" is forbidden: maximum cpu usage per Pod is 1.  No limit is specified',
    )


async def test_an_unknown_priority_class_is_rejected(api: Api):
    answer = await api.post(PODS, pod(priorityClassName="none"))
    assert (answer.status, answer.message) == (
        403,
        'pods "one" is forbidden: no PriorityClass with name none was found',
    )


async def test_the_default_priority_class_is_set(api: Api):
    await api.post(CLASSES, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    spec = (await api.post(PODS, pod())).body["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 7)
