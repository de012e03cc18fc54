"""Ingresses and NetworkPolicies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.embedded.strategies.conftest import ApiServer


@pytest.mark.parametrize(
    ("spec", "error"),
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
async def test_an_invalid_ingress_is_rejected(api: ApiServer, spec: dict[str, Any], error: str) -> None:
    message = await api.rejection("ingresses", "web", spec=spec)
    assert message == f'Ingress.networking.k8s.io "web" is invalid: {error}'


async def test_a_network_policy_is_defaulted(api: ApiServer) -> None:
    stored = await api.create(
        "networkpolicies", "np", spec={"podSelector": {}, "egress": [{"ports": [{"port": 53}]}]}
    )
    assert stored["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert stored["spec"]["egress"] == [{"ports": [{"protocol": "TCP", "port": 53}]}]
