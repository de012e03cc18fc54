"""Namespaces: their initial objects, and their termination."""

from __future__ import annotations

import pytest

from kapsa.devcluster.wire.status_errors import StatusError
from tests.devcluster.embedded.controllers.client import ObjectClient, condition, workload

pytestmark = pytest.mark.virtual_time


async def test_each_namespace_has_a_service_account_and_the_root_certificate(client: ObjectClient) -> None:
    await client.create("namespaces", "fresh")
    await client.settle()
    for namespace in ("default", "kube-system", "fresh"):
        assert client.find("serviceaccounts", "default", namespace) is not None
        assert "ca.crt" in client.get("configmaps", "kube-root-ca.crt", namespace)["data"]
    await client.delete("serviceaccounts", "default", namespace="fresh")
    await client.settle()
    assert client.find("serviceaccounts", "default", "fresh") is not None


async def test_deleting_a_namespace_deletes_its_content(client: ObjectClient) -> None:
    await client.create("namespaces", "doomed")
    await client.create("deployments", "web", workload(2), metadata={"namespace": "doomed"})
    await client.create("configmaps", "settings", metadata={"namespace": "doomed"})
    await client.settle()
    await client.delete("namespaces", "doomed")
    await client.settle()
    assert client.find("namespaces", "doomed") is None
    for resource in ("deployments", "replicasets", "pods", "configmaps", "serviceaccounts", "events"):
        assert client.names(resource, "doomed") == []


async def test_a_namespace_that_cannot_terminate_reports_its_remaining_content(client: ObjectClient) -> None:
    await client.create("namespaces", "stuck")
    await client.settle()
    await client.create(
        "configmaps",
        "held",
        metadata={"namespace": "stuck", "finalizers": ["example.com/a", "example.com/b"]},
    )
    await client.create("secrets", "held", metadata={"namespace": "stuck", "finalizers": ["example.com/a"]})
    await client.delete("namespaces", "stuck")
    await client.settle()
    namespace = client.get("namespaces", "stuck")
    assert namespace["status"]["phase"] == "Terminating"
    assert namespace["spec"]["finalizers"] == ["kubernetes"]
    content, finalizers = (
        condition(namespace, "NamespaceContentRemaining"),
        condition(namespace, "NamespaceFinalizersRemaining"),
    )
    assert (content["status"], content["reason"]) == ("True", "SomeResourcesRemain")
    assert content["message"] == (
        "Some resources are remaining: configmaps. has 1 resource instances, secrets. has 1 resource instances"
    )
    assert (finalizers["status"], finalizers["reason"]) == ("True", "SomeFinalizersRemain")
    assert finalizers["message"] == (
        "Some content in the namespace has finalizers remaining: "
        "example.com/a in 2 resource instances, example.com/b in 1 resource instances"
    )
    for fine in ("NamespaceDeletionDiscoveryFailure", "NamespaceDeletionContentFailure"):
        assert condition(namespace, fine)["status"] == "False"
    for resource in ("configmaps", "secrets"):
        held = client.get(resource, "held", "stuck")
        held["metadata"]["finalizers"] = []
        await client.update(resource, held)
    await client.settle()
    assert client.find("namespaces", "stuck") is None


async def test_nothing_new_is_created_in_a_terminating_namespace(client: ObjectClient) -> None:
    await client.create("namespaces", "stuck")
    await client.create(
        "configmaps", "held", metadata={"namespace": "stuck", "finalizers": ["example.com/a"]}
    )
    await client.delete("namespaces", "stuck")
    await client.settle()
    with pytest.raises(StatusError, match="because it is being terminated") as rejected:
        await client.create("configmaps", "late", metadata={"namespace": "stuck"})
    assert rejected.value.code == 403
