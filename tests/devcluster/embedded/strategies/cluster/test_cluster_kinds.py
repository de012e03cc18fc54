"""Namespaces, claims, Leases and Events."""

from __future__ import annotations

import pytest

from kapsa.devcluster.wire.status_errors import StatusError
from tests.devcluster.embedded.strategies.conftest import ApiServer


async def test_a_namespace_has_its_name_as_a_label_and_the_finalizer(api: ApiServer) -> None:
    stored = await api.create("namespaces", "team")
    assert stored["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
    assert (stored["spec"], stored["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})


async def test_a_claim_is_protected_and_its_spec_immutable(api: ApiServer) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}
    stored = await api.create("persistentvolumeclaims", "data", spec=spec)
    assert stored["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert stored["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert stored["status"] == {"phase": "Pending"}
    stored["spec"]["accessModes"] = ["ReadWriteMany"]
    with pytest.raises(StatusError, match="spec is immutable after creation except"):
        await api.update("persistentvolumeclaims", stored)


async def test_a_lease_requires_a_positive_duration(api: ApiServer) -> None:
    message = await api.rejection("leases", "l", spec={"leaseDurationSeconds": 0})
    assert message == (
        'Lease.coordination.k8s.io "l" is invalid: spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0'
    )


async def test_an_event_must_be_in_the_namespace_of_its_object(api: ApiServer) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": "elsewhere"}
    message = await api.rejection("events", "e", involvedObject=about)
    assert message == (
        'Event "e" is invalid: involvedObject.namespace: Invalid value: "elsewhere": does not match event.namespace'
    )
