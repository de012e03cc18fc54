"""Kinds with few rules: ingresses, claims, quotas, roles, budgets, autoscalers, events."""

from __future__ import annotations

from tests.behaviour.conformance.cases.requests import case, merge, named, post

INGRESSES = "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies"
CLAIMS = "/api/v1/namespaces/{ns}/persistentvolumeclaims"
ACCOUNTS = "/api/v1/namespaces/{ns}/serviceaccounts"
QUOTAS = "/api/v1/namespaces/{ns}/resourcequotas"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings"
BUDGETS = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
SCALERS = "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers"
EVENTS = "/apis/events.k8s.io/v1/namespaces/{ns}/events"


CASES = [
    case(
        "an ingress is accepted",
        post(
            INGRESSES,
            named(
                {
                    "rules": [
                        {
                            "host": "a.example.com",
                            "http": {
                                "paths": [
                                    {
                                        "path": "/",
                                        "pathType": "Prefix",
                                        "backend": {"service": {"name": "a", "port": {"number": 80}}},
                                    }
                                ]
                            },
                        }
                    ]
                }
            ),
        ),
    ),
    case(
        "an ingress without a path type is rejected",
        post(
            INGRESSES,
            named(
                {
                    "rules": [
                        {
                            "http": {
                                "paths": [
                                    {
                                        "path": "/",
                                        "backend": {"service": {"name": "a", "port": {"number": 80}}},
                                    }
                                ]
                            }
                        }
                    ]
                }
            ),
        ),
    ),
    case(
        "an ingress with a bad host is rejected",
        post(
            INGRESSES,
            named(
                {
                    "rules": [
                        {
                            "host": "A_b",
                            "http": {
                                "paths": [
                                    {
                                        "path": "/",
                                        "pathType": "Prefix",
                                        "backend": {"service": {"name": "a", "port": {"number": 80}}},
                                    }
                                ]
                            },
                        }
                    ]
                }
            ),
        ),
    ),
    case("an ingress without rules or backend is rejected", post(INGRESSES, named({}))),
    case("a network policy gets its types", post(POLICIES, named({"podSelector": {}}))),
    case(
        "a claim gets its volume mode",
        post(
            CLAIMS, named({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})
        ),
    ),
    case(
        "a claim without access modes is rejected",
        post(CLAIMS, named({"resources": {"requests": {"storage": "1Gi"}}})),
    ),
    case("a service account is accepted", post(ACCOUNTS, {"metadata": {"name": "robot"}})),
    case("a quota is accepted", post(QUOTAS, named({"hard": {"pods": "10", "requests.cpu": "1500m"}}))),
    case("a quota with a bad resource is rejected", post(QUOTAS, named({"hard": {"nonsense": "1"}}))),
    case(
        "a role is accepted",
        post(
            ROLES,
            {
                "metadata": {"name": "one"},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
            },
        ),
    ),
    case(
        "a role without verbs is rejected",
        post(
            ROLES,
            {"metadata": {"name": "one"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": []}]},
        ),
    ),
    case(
        "a role binding gets its subject's defaults",
        post(
            BINDINGS,
            {
                "metadata": {"name": "one"},
                "roleRef": {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"},
                "subjects": [{"kind": "User", "name": "u"}],
            },
        ),
    ),
    case(
        "a role binding's role is immutable",
        post(
            BINDINGS,
            {
                "metadata": {"name": "one"},
                "roleRef": {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"},
            },
        ),
        merge(f"{BINDINGS}/one", {"roleRef": {"name": "s"}}),
    ),
    case(
        "a disruption budget is accepted",
        post(BUDGETS, named({"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}})),
    ),
    case(
        "a disruption budget with both limits is rejected",
        post(BUDGETS, named({"minAvailable": 1, "maxUnavailable": 1, "selector": {}})),
    ),
    case(
        "a pod autoscaler gets its defaults",
        post(
            SCALERS,
            named(
                {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "one"},
                    "maxReplicas": 3,
                }
            ),
        ),
    ),
    case(
        "a pod autoscaler without a maximum is rejected",
        post(SCALERS, named({"scaleTargetRef": {"kind": "Deployment", "name": "one"}})),
    ),
    case(
        "an event is accepted",
        post(
            EVENTS,
            {
                "metadata": {"name": "one"},
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingController": "x.io/c",
                "reportingInstance": "i",
                "action": "A",
                "reason": "R",
                "type": "Normal",
                "regarding": {"kind": "Pod", "namespace": "{ns}", "name": "p"},
            },
        ),
    ),
    case(
        "an event without an action is rejected",
        post(
            EVENTS,
            {
                "metadata": {"name": "one"},
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingController": "x.io/c",
                "reportingInstance": "i",
                "reason": "R",
                "type": "Normal",
                "regarding": {"kind": "Pod", "namespace": "{ns}", "name": "p"},
            },
        ),
    ),
]
