"""Kinds with few rules: ingresses, claims, quotas, roles, budgets, autoscalers, events."""

from __future__ import annotations

from tests.behaviour.conformance.cases.requests import case, get, merge, named, post
from tests.behaviour.conformance.exchange import Case

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
CORE_EVENTS = "/api/v1/namespaces/{ns}/events"
FIRST_VERSION_SCALERS = "/apis/autoscaling/v1/namespaces/{ns}/horizontalpodautoscalers"
CONTROLLER = {"apiVersion": "v1", "kind": "ReplicationController", "name": "one"}
EVENT = {
    "metadata": {"name": "one"},
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingController": "x.io/c",
    "reportingInstance": "i",
    "action": "A",
    "reason": "R",
    "type": "Normal",
    "regarding": {"kind": "Pod", "namespace": "{ns}", "name": "p", "uid": "u-1", "apiVersion": "v1"},
}


def selected(sentence: str, *selectors: str) -> Case:
    """Return a case that reads an event by each selector, of events.k8s.io and of the core group in turn."""
    reads = [get(EVENTS, f"fieldSelector={selector}") for selector in selectors]
    return case(sentence, post(EVENTS, EVENT), *reads)


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
    case(
        "an autoscaler of a replication controller is accepted",
        post(SCALERS, named({"scaleTargetRef": CONTROLLER, "maxReplicas": 3})),
        get(f"{FIRST_VERSION_SCALERS}/one"),
    ),
    case(
        "an autoscaler of a replication controller in the first version is accepted",
        post(FIRST_VERSION_SCALERS, named({"scaleTargetRef": CONTROLLER, "maxReplicas": 3})),
        get(f"{SCALERS}/one"),
    ),
    case(
        "an autoscaler of a replication controller without a version is accepted",
        post(
            SCALERS,
            named({"scaleTargetRef": {"kind": "ReplicationController", "name": "a"}, "maxReplicas": 1}),
        ),
    ),
    case(
        "an autoscaler of a deployment of the core group is rejected",
        post(
            SCALERS,
            named(
                {
                    "scaleTargetRef": {"apiVersion": "v1", "kind": "Deployment", "name": "one"},
                    "maxReplicas": 3,
                }
            ),
        ),
    ),
    case(
        "an autoscaler cannot move to a deployment of the core group",
        post(SCALERS, named({"scaleTargetRef": CONTROLLER, "maxReplicas": 3})),
        merge(f"{SCALERS}/one", {"spec": {"scaleTargetRef": {"kind": "Deployment"}}}),
    ),
    selected("an event by the kind it regards", "regarding.kind=Pod", "regarding.kind=Node"),
    selected(
        "an event by the name it regards",
        "regarding.name=p",
        "regarding.name=q",
        "regarding.name!=p",
        "regarding.name=p,regarding.uid=u-1",
    ),
    selected(
        "an event by the rest that it regards",
        "regarding.namespace={ns}",
        "regarding.apiVersion=v1",
        "regarding.apiVersion=v2",
        "regarding.fieldPath=",
        "regarding.resourceVersion=",
    ),
    selected(
        "an event by its reporter",
        "reportingController=x.io/c",
        "reportingController=y",
        "type=Normal",
        "reason=S",
    ),
    selected(
        "an event by the fields of the other group",
        "involvedObject.kind=Pod",
        "reportingComponent=x",
        "source=x",
    ),
    case(
        "an event of events.k8s.io by the fields of the core group",
        post(EVENTS, EVENT),
        get(CORE_EVENTS, "fieldSelector=involvedObject.name=p,reportingComponent=x.io/c,source=x.io/c"),
        get(CORE_EVENTS, "fieldSelector=regarding.name=p"),
    ),
]
