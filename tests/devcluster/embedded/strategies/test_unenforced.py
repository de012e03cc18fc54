"""Kinds that the embedded engine stores without effect: each write is answered with a warning."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.devcluster.embedded.server import Server
from tests.devcluster.embedded.api import Api

FLOW_CONTROL = "/apis/flowcontrol.apiserver.k8s.io/v1"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
LEVEL = {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
API_SERVICE = {"group": "a.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100}
WRITES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "an aggregated API": (
        API_SERVICES,
        "v1.a.example.com",
        {**API_SERVICE, "service": {"name": "a", "namespace": "default"}},
        "no request reaches the service, and its group is answered with 404",
    ),
    "a priority level": (
        f"{FLOW_CONTROL}/prioritylevelconfigurations",
        "one",
        LEVEL,
        "priority and fairness limit no request",
    ),
    "a flow schema": (
        f"{FLOW_CONTROL}/flowschemas",
        "one",
        {"priorityLevelConfiguration": {"name": "global-default"}},
        "priority and fairness limit no request",
    ),
    "an autoscaler": (
        "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
        "one",
        {"maxReplicas": 3, "scaleTargetRef": TARGET},
        "there are no metrics, and nothing is scaled",
    ),
    "a range of addresses": (
        "/apis/networking.k8s.io/v1/servicecidrs",
        "one",
        {"cidrs": ["10.99.0.0/24"]},
        "Services get addresses of the default range alone",
    ),
    "an address": (
        "/apis/networking.k8s.io/v1/ipaddresses",
        "10.96.0.77",
        {"parentRef": {"resource": "services", "namespace": "default", "name": "web"}},
        "the address is not reserved, and Services have no IPAddress objects",
    ),
}


@pytest.mark.parametrize(("path", "name", "spec", "text"), WRITES.values(), ids=WRITES)
async def test_a_write_of_what_is_only_stored_is_answered_with_a_warning(
    path: str, name: str, spec: dict[str, Any], text: str
) -> None:
    api = Api(Server())
    created = await api.post(path, {"metadata": {"name": name}, "spec": spec})
    assert created.status == 201, created.body
    assert created.headers["warning"] == f'299 - "not enforced by the embedded engine: {text}"'
    labelled = {**created.body, "metadata": {**created.meta, "labels": {"a": "b"}}}
    unchanged = await api.put(f"{path}/{name}", labelled)
    assert (unchanged.status, unchanged.headers.get("warning")) == (200, None)


async def test_an_api_service_without_a_service_needs_no_warning() -> None:
    api = Api(Server())
    created = await api.post(API_SERVICES, {"metadata": {"name": "v1.a.example.com"}, "spec": API_SERVICE})
    assert (created.status, created.headers.get("warning")) == (201, None)
