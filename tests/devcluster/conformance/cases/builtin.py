"""Built-in kinds: defaults, validation, subresources; custom resource definitions themselves."""

from __future__ import annotations

from typing import Any

from tests.devcluster.conformance.cases.definitions import definition
from tests.devcluster.conformance.cases.words import (
    CRDS,
    DEPLOYMENTS,
    PODS,
    SERVICES,
    case,
    delete,
    deployment,
    get,
    merge,
    pod,
    post,
    put,
    service,
    strategic,
)
from tests.devcluster.conformance.exchange import Case

DEPLOYED = f"{DEPLOYMENTS}/one"
JOBS = "/apis/batch/v1/namespaces/{ns}/jobs"
CRONJOBS = "/apis/batch/v1/namespaces/{ns}/cronjobs"
STATEFULSETS = "/apis/apps/v1/namespaces/{ns}/statefulsets"
DAEMONSETS = "/apis/apps/v1/namespaces/{ns}/daemonsets"
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
TEMPLATE = deployment()["spec"]["template"]


def named(spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "one"}, "spec": spec}


def crd(sentence: str, plural: str, kind: str, change: Any = None, **version: Any) -> Case:
    body = definition(plural, kind, group="{ns}.kapsa.dev", **version)
    if change:
        change(body)
    path = f"{CRDS}/{plural}.{{ns}}.kapsa.dev"
    return case(sentence, post(CRDS, body), get(path, until="InitialNamesAccepted"), delete(path))


def schema(spec: Any) -> dict[str, Any]:
    return {"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}


CASES = [
    case("a deployment gets its defaults", post(DEPLOYMENTS, deployment())),
    case(
        "a deployment's pod template gets its defaults",
        post(
            DEPLOYMENTS,
            deployment(
                containers=[
                    {
                        "name": "a",
                        "image": "a",
                        "ports": [{"containerPort": 80}],
                        "readinessProbe": {"httpGet": {"port": 80}},
                        "resources": {"limits": {"cpu": "1", "memory": "128Mi"}},
                    }
                ]
            ),
        ),
    ),
    case(
        "a deployment's volumes get their defaults",
        post(
            DEPLOYMENTS,
            {
                **deployment(),
                "spec": {
                    **deployment()["spec"],
                    "template": {
                        **TEMPLATE,
                        "spec": {
                            **TEMPLATE["spec"],
                            "volumes": [
                                {"name": "a", "configMap": {"name": "c"}},
                                {"name": "b", "secret": {"secretName": "s"}},
                                {"name": "e", "emptyDir": {}},
                            ],
                        },
                    },
                },
            },
        ),
    ),
    case(
        "a deployment starts at generation 1",
        post(DEPLOYMENTS, deployment()),
        merge(DEPLOYED, {"spec": {"replicas": 3}}),
        merge(DEPLOYED, {"metadata": {"labels": {"a": "b"}}}),
    ),
    case(
        "a deployment's status given at create is dropped",
        post(DEPLOYMENTS, {**deployment(), "status": {"replicas": 5}}),
    ),
    case(
        "a deployment's status is written by its subresource",
        post(DEPLOYMENTS, deployment()),
        merge(f"{DEPLOYED}/status", {"status": {"replicas": 1, "observedGeneration": 1}}),
    ),
    case(
        "a deployment's spec is not written by the status subresource",
        post(DEPLOYMENTS, deployment()),
        merge(f"{DEPLOYED}/status", {"spec": {"replicas": 9}}),
    ),
    case("a deployment's scale is read", post(DEPLOYMENTS, deployment(replicas=2)), get(f"{DEPLOYED}/scale")),
    case(
        "a deployment's scale is written",
        post(DEPLOYMENTS, deployment()),
        put(
            f"{DEPLOYED}/scale",
            {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": "one", "namespace": "{ns}"},
                "spec": {"replicas": 4},
            },
        ),
        get(DEPLOYED),
    ),
    case(
        "a deployment's scale is patched",
        post(DEPLOYMENTS, deployment()),
        merge(f"{DEPLOYED}/scale", {"spec": {"replicas": 4}}),
    ),
    case(
        "a deployment's scale set to what it is already",
        post(DEPLOYMENTS, deployment(replicas=2), "fieldManager=alpha"),
        merge(f"{DEPLOYED}/scale", {"spec": {"replicas": 2}}, "fieldManager=alpha"),
        get(DEPLOYED),
    ),
    case(
        "a deployment's scale refuses a negative",
        post(DEPLOYMENTS, deployment()),
        merge(f"{DEPLOYED}/scale", {"spec": {"replicas": -1}}),
    ),
    case(
        "a deployment without a selector is refused",
        post(DEPLOYMENTS, {**deployment(), "spec": {"template": TEMPLATE}}),
    ),
    case(
        "a deployment whose selector does not match is refused",
        post(DEPLOYMENTS, deployment(selector={"matchLabels": {"other": "x"}})),
    ),
    case(
        "a deployment's selector is immutable",
        post(DEPLOYMENTS, deployment()),
        merge(
            DEPLOYED,
            {
                "spec": {
                    "selector": {"matchLabels": {"app": "one", "more": "x"}},
                    "template": {"metadata": {"labels": {"more": "x"}}},
                }
            },
        ),
    ),
    case("a deployment with negative replicas is refused", post(DEPLOYMENTS, deployment(replicas=-1))),
    case(
        "a deployment without containers is refused",
        post(
            DEPLOYMENTS,
            {
                **deployment(),
                "spec": {
                    **deployment()["spec"],
                    "template": {"metadata": {"labels": {"app": "one"}}, "spec": {"containers": []}},
                },
            },
        ),
    ),
    case(
        "a deployment with an unknown strategy is refused",
        post(DEPLOYMENTS, deployment(strategy={"type": "Sudden"})),
    ),
    case(
        "a deployment with Recreate and rolling parameters is refused",
        post(DEPLOYMENTS, deployment(strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}})),
    ),
    case("a pod gets its defaults", post(PODS, pod())),
    case("a pod without containers is refused", post(PODS, {**pod(), "spec": {}})),
    case("a container without a name is refused", post(PODS, pod(containers=[{"image": "a"}]))),
    case("a container without an image is refused", post(PODS, pod(containers=[{"name": "a"}]))),
    case(
        "two containers of one name are refused",
        post(PODS, pod(containers=[{"name": "a", "image": "a"}, {"name": "a", "image": "b"}])),
    ),
    case(
        "a container with a bad port is refused",
        post(PODS, pod(containers=[{"name": "a", "image": "a", "ports": [{"containerPort": 0}]}])),
    ),
    case(
        "a container with a bad env name is refused",
        post(PODS, pod(containers=[{"name": "a", "image": "a", "env": [{"name": "", "value": "x"}]}])),
    ),
    case(
        "a container with an unknown pull policy is refused",
        post(PODS, pod(containers=[{"name": "a", "image": "a", "imagePullPolicy": "Maybe"}])),
    ),
    case("a pod with an unknown restart policy is refused", post(PODS, pod(restartPolicy="Maybe"))),
    case(
        "a volume mount without its volume is refused",
        post(
            PODS,
            pod(containers=[{"name": "a", "image": "a", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]),
        ),
    ),
    case(
        "a request above its limit is refused",
        post(
            PODS,
            pod(
                containers=[
                    {
                        "name": "a",
                        "image": "a",
                        "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
                    }
                ]
            ),
        ),
    ),
    case(
        "a bad quantity is refused",
        post(PODS, pod(containers=[{"name": "a", "image": "a", "resources": {"limits": {"cpu": "much"}}}])),
    ),
    case(
        "a quantity is made canonical",
        post(
            PODS,
            pod(
                containers=[
                    {"name": "a", "image": "a", "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}}}
                ]
            ),
        ),
    ),
    case(
        "a pod's image can be changed",
        post(PODS, pod()),
        strategic(f"{PODS}/one", {"spec": {"containers": [{"name": "main", "image": "other:2"}]}}),
    ),
    case(
        "a pod's other fields are immutable",
        post(PODS, pod()),
        strategic(f"{PODS}/one", {"spec": {"containers": [{"name": "main", "command": ["x"]}]}}),
    ),
    case(
        "a pod's status is written by its subresource",
        post(PODS, pod()),
        merge(
            f"{PODS}/one/status",
            {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
        ),
    ),
    case(
        "a pod is bound to a node",
        post(PODS, pod()),
        post(
            f"{PODS}/one/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "one"},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "elsewhere"},
            },
        ),
        get(f"{PODS}/one"),
    ),
    case(
        "a headless service gets its defaults", post(SERVICES, service(clusterIP="None", selector={"a": "b"}))
    ),
    case("a service gets an address", post(SERVICES, service())),
    case("a node port service gets a port", post(SERVICES, service(type="NodePort"))),
    case(
        "an external name service gets no address",
        post(SERVICES, service(type="ExternalName", externalName="example.com", ports=[])),
    ),
    case("a service without ports is refused", post(SERVICES, service(ports=[]))),
    case(
        "a service with two unnamed ports is refused",
        post(SERVICES, service(ports=[{"port": 80}, {"port": 81}])),
    ),
    case("a service with a bad port is refused", post(SERVICES, service(ports=[{"port": 0}]))),
    case("a service with an unknown type is refused", post(SERVICES, service(type="Magic"))),
    case(
        "a service's address is immutable",
        post(SERVICES, service()),
        merge(f"{SERVICES}/one", {"spec": {"clusterIP": "10.0.0.99", "clusterIPs": ["10.0.0.99"]}}),
    ),
    case(
        "a job gets its defaults",
        post(
            JOBS,
            named(
                {
                    "template": {
                        "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}
                    }
                }
            ),
        ),
    ),
    case(
        "a job without a restart policy is refused",
        post(JOBS, named({"template": {"spec": {"containers": [{"name": "a", "image": "a"}]}}})),
    ),
    case(
        "a job's template is immutable",
        post(
            JOBS,
            named(
                {
                    "template": {
                        "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}
                    }
                }
            ),
        ),
        strategic(
            f"{JOBS}/one", {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}}
        ),
    ),
    case(
        "a cron job gets its defaults",
        post(
            CRONJOBS,
            named(
                {
                    "schedule": "*/5 * * * *",
                    "jobTemplate": {
                        "spec": {
                            "template": {
                                "spec": {
                                    "restartPolicy": "Never",
                                    "containers": [{"name": "a", "image": "a"}],
                                }
                            }
                        }
                    },
                }
            ),
        ),
    ),
    case(
        "a cron job with a bad schedule is refused",
        post(
            CRONJOBS,
            named(
                {
                    "schedule": "often",
                    "jobTemplate": {
                        "spec": {
                            "template": {
                                "spec": {
                                    "restartPolicy": "Never",
                                    "containers": [{"name": "a", "image": "a"}],
                                }
                            }
                        }
                    },
                }
            ),
        ),
    ),
    case(
        "a stateful set gets its defaults",
        post(
            STATEFULSETS,
            {
                "metadata": {"name": "one"},
                "spec": {
                    "serviceName": "one",
                    "selector": {"matchLabels": {"app": "one"}},
                    "template": TEMPLATE,
                    "volumeClaimTemplates": [
                        {
                            "metadata": {"name": "data"},
                            "spec": {
                                "accessModes": ["ReadWriteOnce"],
                                "resources": {"requests": {"storage": "1Gi"}},
                            },
                        }
                    ],
                },
            },
        ),
    ),
    case(
        "a daemon set gets its defaults",
        post(
            DAEMONSETS,
            {
                "metadata": {"name": "one"},
                "spec": {"selector": {"matchLabels": {"app": "one"}}, "template": TEMPLATE},
            },
        ),
    ),
    case(
        "an ingress is taken",
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
        "an ingress without a path type is refused",
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
        "an ingress with a bad host is refused",
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
    case("an ingress without rules or backend is refused", post(INGRESSES, named({}))),
    case("a network policy gets its types", post(POLICIES, named({"podSelector": {}}))),
    case(
        "a claim gets its volume mode",
        post(
            CLAIMS, named({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})
        ),
    ),
    case(
        "a claim without access modes is refused",
        post(CLAIMS, named({"resources": {"requests": {"storage": "1Gi"}}})),
    ),
    case("a service account is taken", post(ACCOUNTS, {"metadata": {"name": "robot"}})),
    case("a quota is taken", post(QUOTAS, named({"hard": {"pods": "10", "requests.cpu": "1500m"}}))),
    case("a quota with a bad resource is refused", post(QUOTAS, named({"hard": {"nonsense": "1"}}))),
    case(
        "a role is taken",
        post(
            ROLES,
            {
                "metadata": {"name": "one"},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
            },
        ),
    ),
    case(
        "a role without verbs is refused",
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
        "a disruption budget is taken",
        post(BUDGETS, named({"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}})),
    ),
    case(
        "a disruption budget with both limits is refused",
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
        "a pod autoscaler without a maximum is refused",
        post(SCALERS, named({"scaleTargetRef": {"kind": "Deployment", "name": "one"}})),
    ),
    case(
        "an event is taken",
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
        "an event without an action is refused",
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
    # custom resource definitions
    crd("a definition is taken", "rings", "Ring"),
    crd(
        "a definition with rules is taken",
        "rings",
        "Ring",
        **schema(
            {
                "type": "object",
                "properties": {"a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}},
            }
        ),
    ),
    crd(
        "a definition whose name does not fit is refused",
        "rings",
        "Ring",
        lambda body: body["metadata"].update(name="other.kapsa.dev"),
    ),
    crd(
        "a definition without versions is refused",
        "rings",
        "Ring",
        lambda body: body["spec"].update(versions=[]),
    ),
    crd(
        "a definition with two storage versions is refused",
        "rings",
        "Ring",
        lambda body: body["spec"]["versions"].append({**body["spec"]["versions"][0], "name": "v2"}),
    ),
    crd("a definition without a storage version is refused", "rings", "Ring", storage=False),
    crd(
        "a definition without a schema is refused",
        "rings",
        "Ring",
        lambda body: body["spec"]["versions"][0].pop("schema"),
    ),
    crd("a definition with an unknown scope is refused", "rings", "Ring", scope="Galaxy"),
    crd(
        "a definition without type is refused",
        "rings",
        "Ring",
        schema={"openAPIV3Schema": {"properties": {}}},
    ),
    crd(
        "a definition with a field without type is refused",
        "rings",
        "Ring",
        **schema({"properties": {"a": {}}}),
    ),
    crd("a definition with an unknown type is refused", "rings", "Ring", **schema({"type": "thing"})),
    crd("a definition with an array without items is refused", "rings", "Ring", **schema({"type": "array"})),
    crd(
        "a definition with a bad default is refused",
        "rings",
        "Ring",
        **schema({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}),
    ),
    crd(
        "a definition with a bad pattern is refused",
        "rings",
        "Ring",
        **schema({"type": "string", "pattern": "("}),
    ),
    crd(
        "a definition with a map list without keys is refused",
        "rings",
        "Ring",
        **schema({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
    ),
    crd(
        "a definition with an unknown list type is refused",
        "rings",
        "Ring",
        **schema({"type": "array", "x-kubernetes-list-type": "bag", "items": {"type": "string"}}),
    ),
    crd(
        "a definition with properties and additionalProperties is refused",
        "rings",
        "Ring",
        **schema(
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": {"type": "string"},
            }
        ),
    ),
    crd(
        "a definition with a rule that does not compile is refused",
        "rings",
        "Ring",
        **schema({"type": "object", "x-kubernetes-validations": [{"rule": "self.none > 1"}]}),
    ),
    crd(
        "a definition with a bad printer column is refused",
        "rings",
        "Ring",
        additionalPrinterColumns=[{"name": "A", "type": "thing", "jsonPath": ".spec.a"}],
    ),
    crd(
        "a definition with a bad scale path is refused",
        "rings",
        "Ring",
        subresources={"scale": {"specReplicasPath": "spec.size", "statusReplicasPath": ".status.replicas"}},
    ),
    crd(
        "a definition with preserveUnknownFields is refused",
        "rings",
        "Ring",
        lambda body: body["spec"].update(preserveUnknownFields=True),
    ),
    crd(
        "a definition with a bad group is refused",
        "rings",
        "Ring",
        lambda body: body["spec"].update(group="Bad_Group"),
    ),
    crd("a definition with a bad version name is refused", "rings", "Ring", name="V 1"),
    crd(
        "a definition with metadata rules is refused",
        "rings",
        "Ring",
        schema={
            "openAPIV3Schema": {
                "type": "object",
                "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}},
            }
        },
    ),
    crd(
        "a definition may restrict the name",
        "rings",
        "Ring",
        schema={
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "metadata": {
                        "type": "object",
                        "properties": {"name": {"type": "string", "pattern": "^a"}},
                    }
                },
            }
        },
    ),
]
