"""ConfigMaps, Secrets, namespaces, claims, Ingresses and the rest."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.devcluster.wire.status_errors import StatusError
from kapsa.schemas.quantities import canonical, parse
from tests.devcluster.embedded.strategies.conftest import ApiServer


async def test_string_data_of_a_secret_becomes_data(api: ApiServer) -> None:
    stored = await api.create("secrets", "s", stringData={"a": "hello"}, data={"a": "eA==", "b": "eQ=="})
    assert (stored["data"], stored["type"]) == ({"a": "aGVsbG8=", "b": "eQ=="}, "Opaque")
    assert "stringData" not in stored


async def test_an_immutable_config_map_stays_as_it_is(api: ApiServer) -> None:
    stored = await api.create("configmaps", "c", immutable=True, data={"a": "1"})
    stored["data"] = {"a": "2"}
    del stored["immutable"]
    with pytest.raises(StatusError) as refused:
        await api.update("configmaps", stored)
    assert refused.value.message == (
        'ConfigMap "c" is invalid: [immutable: Forbidden: field is immutable when `immutable` is set, '
        "data: Forbidden: field is immutable when `immutable` is set]"
    )


async def test_the_type_of_a_secret_does_not_change(api: ApiServer) -> None:
    stored = await api.create("secrets", "s")
    with pytest.raises(StatusError, match=r'type: Invalid value: "other": field is immutable'):
        await api.update("secrets", {**stored, "type": "other"})


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("kubernetes.io/tls", "data[tls.crt]: Required value"),
        ("kubernetes.io/ssh-auth", "data[ssh-privatekey]"),
    ],
)
async def test_a_secret_of_a_known_type_needs_its_keys(api: ApiServer, kind: str, missing: str) -> None:
    assert missing in await api.rejection("secrets", "s", type=kind)


async def test_a_namespace_carries_its_name_and_the_finalizer(api: ApiServer) -> None:
    stored = await api.create("namespaces", "team")
    assert stored["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
    assert (stored["spec"], stored["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})


async def test_a_claim_is_protected_and_its_spec_fixed(api: ApiServer) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}
    stored = await api.create("persistentvolumeclaims", "data", spec=spec)
    assert stored["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert stored["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert stored["status"] == {"phase": "Pending"}
    stored["spec"]["accessModes"] = ["ReadWriteMany"]
    with pytest.raises(StatusError, match="spec is immutable after creation except"):
        await api.update("persistentvolumeclaims", stored)


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({}, "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"),
        (
            {
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {"path": "/", "backend": {"service": {"name": "x", "port": {"number": 1}}}}
                            ]
                        }
                    }
                ]
            },
            "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified",
        ),
        (
            {
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {
                                    "path": "x",
                                    "pathType": "Prefix",
                                    "backend": {"service": {"name": "x", "port": {"number": 1}}},
                                }
                            ]
                        }
                    }
                ]
            },
            'spec.rules[0].http.paths[0].path: Invalid value: "x": must be an absolute path',
        ),
    ],
)
async def test_what_is_wrong_with_an_ingress(api: ApiServer, spec: dict[str, Any], fault: str) -> None:
    message = await api.rejection("ingresses", "web", spec=spec)
    assert message == f'Ingress.networking.k8s.io "web" is invalid: {fault}'


async def test_a_network_policy_is_filled_in(api: ApiServer) -> None:
    stored = await api.create(
        "networkpolicies", "np", spec={"podSelector": {}, "egress": [{"ports": [{"port": 53}]}]}
    )
    assert stored["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert stored["spec"]["egress"] == [{"ports": [{"protocol": "TCP", "port": 53}]}]


async def test_the_role_of_a_binding_does_not_change(api: ApiServer) -> None:
    stored = await api.create("rolebindings", "rb", roleRef={"kind": "Role", "name": "a"})
    assert stored["roleRef"]["apiGroup"] == "rbac.authorization.k8s.io"
    stored["roleRef"]["name"] = "b"
    with pytest.raises(StatusError, match="cannot change roleRef"):
        await api.update("rolebindings", stored)


async def test_a_lease_lasts_longer_than_nothing(api: ApiServer) -> None:
    message = await api.rejection("leases", "l", spec={"leaseDurationSeconds": 0})
    assert message == (
        'Lease.coordination.k8s.io "l" is invalid: spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0'
    )


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("1000m", "1"),
        ("1.5", "1500m"),
        ("0.1", "100m"),
        ("1024Mi", "1Gi"),
        ("1500Mi", "1500Mi"),
        ("1024", "1024"),
        ("1000k", "1M"),
        ("1e3", "1e3"),
        ("0", "0"),
        ("0.5Gi", "512Mi"),
        (2, "2"),
    ],
)
def test_quantities_have_one_form(given: str | int, stored: str) -> None:
    assert canonical(given) == stored
    assert parse(stored) == parse(given)


def test_what_is_no_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="quantities must match the regular expression"):
        parse("many")


async def test_an_event_belongs_to_the_namespace_of_what_it_is_about(api: ApiServer) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": "elsewhere"}
    message = await api.rejection("events", "e", involvedObject=about)
    assert message == (
        'Event "e" is invalid: involvedObject.namespace: Invalid value: "elsewhere": does not match event.namespace'
    )


async def test_a_quota_counts_known_things(api: ApiServer) -> None:
    message = await api.rejection("resourcequotas", "q", spec={"hard": {"nonsense": "1", "pods": "1500m"}})
    assert message == (
        'ResourceQuota "q" is invalid: [spec.hard[nonsense]: Invalid value: "nonsense": '
        "must be a standard resource type or fully qualified, "
        'spec.hard[nonsense]: Invalid value: "nonsense": must be a standard resource for quota, '
        'spec.hard[pods]: Invalid value: "1500m": must be an integer]'
    )
