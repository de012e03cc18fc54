"""Protobuf request bodies, as typed Go clients send them."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.codec.protobuf import MAGIC, MEDIA_TYPE, encode
from tests.behaviour.conformance.cases.requests import (
    CONFIGMAPS,
    CRDS,
    DEPLOYMENTS,
    LEASES,
    PODS,
    SECRETS,
    SERVICES,
    WIDGETS,
    case,
    configmap,
    delete,
    deployment,
    get,
    pod,
    post,
    put,
    secret,
    service,
    widget,
)
from tests.behaviour.conformance.exchange import Call

ONE = f"{CONFIGMAPS}/one"


def sent(path: str, obj: Any, query: str = "", **more: Any) -> Call:
    """Create an object with a protobuf body."""
    return post(path, encode(obj), query, content_type=MEDIA_TYPE, **more)


def replaced(path: str, obj: Any, query: str = "") -> Call:
    return put(path, encode(obj), query, content_type=MEDIA_TYPE)


def raw(path: str, body: bytes) -> Call:
    return post(path, body, content_type=MEDIA_TYPE)


def typed(api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
    metadata = {"name": "one", **fields.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def namespaced(group: str, resource: str) -> str:
    return f"/apis/{group}/namespaces/{{ns}}/{resource}"


TEMPLATE = deployment()["spec"]["template"]
SELECTOR = {"matchLabels": {"app": "one"}}
CONTAINER = {"name": "main", "image": "example.com/app:1"}
RICH_POD = pod(
    containers=[
        {
            **CONTAINER,
            "command": ["a", "b"],
            "env": [
                {"name": "PLAIN", "value": "x"},
                {"name": "EMPTY", "value": ""},
                {
                    "name": "SECRET",
                    "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}},
                },
                {
                    "name": "CPU",
                    "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
                },
            ],
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c"}}],
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "0.1"}},
            "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5},
            "livenessProbe": {"tcpSocket": {"port": 8080}},
            "securityContext": {"runAsNonRoot": False, "runAsUser": 0, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
    ],
    initContainers=[{"name": "first", "image": "example.com/app:1"}],
    volumes=[
        {"name": "data", "emptyDir": {}},
        {"name": "sized", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        {
            "name": "config",
            "configMap": {"name": "c", "defaultMode": 0o400, "items": [{"key": "a", "path": "b"}]},
        },
        {"name": "all", "projected": {"sources": [{"secret": {"name": "s"}}]}},
    ],
    tolerations=[{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
            }
        }
    },
    terminationGracePeriodSeconds=0,
    hostAliases=[{"ip": "127.0.0.1", "hostnames": ["a.example.com"]}],
)
WIDGET_DEFINITION: dict[str, Any] = typed(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    metadata={"name": "protos.proto.kapsa.dev"},
    spec={
        "group": "proto.kapsa.dev",
        "scope": "Namespaced",
        "names": {"plural": "protos", "kind": "Proto"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "size": {"type": "integer", "minimum": 0, "default": 3},
                                    "names": {
                                        "type": "array",
                                        "items": {"type": "string", "enum": ["a", "b"]},
                                    },
                                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
)

CREATED = [
    ("a config map", CONFIGMAPS, configmap(data={"a": "1", "b": ""})),
    ("a config map with binary data", CONFIGMAPS, {**configmap(), "binaryData": {"a": "AAEC/w=="}}),
    ("an immutable config map", CONFIGMAPS, {**configmap(data={"a": "1"}), "immutable": True}),
    ("a mutable config map that says so", CONFIGMAPS, {**configmap(data={"a": "1"}), "immutable": False}),
    ("a secret", SECRETS, secret(data={"a": "YQ=="}, type="Opaque")),
    ("a secret with string data", SECRETS, secret(stringData={"a": "b"})),
    ("a pod", PODS, pod()),
    ("a pod with everything", PODS, RICH_POD),
    ("a deployment", DEPLOYMENTS, deployment(replicas=2)),
    ("a deployment scaled to nothing", DEPLOYMENTS, deployment(replicas=0)),
    ("a paused deployment", DEPLOYMENTS, deployment(paused=True, revisionHistoryLimit=0)),
    (
        "a deployment with a strategy",
        DEPLOYMENTS,
        deployment(
            strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "30%", "maxUnavailable": 0}}
        ),
    ),
    ("a deployment that is recreated", DEPLOYMENTS, deployment(strategy={"type": "Recreate"})),
    ("a service", SERVICES, service(selector={"app": "one"}, ports=[{"port": 80, "targetPort": "http"}])),
    ("a headless service", SERVICES, service(clusterIP="None", ports=[{"port": 80, "targetPort": 8080}])),
    (
        "a replica set",
        namespaced("apps/v1", "replicasets"),
        typed("apps/v1", "ReplicaSet", spec={"replicas": 0, "selector": SELECTOR, "template": TEMPLATE}),
    ),
    (
        "a stateful set",
        namespaced("apps/v1", "statefulsets"),
        typed(
            "apps/v1",
            "StatefulSet",
            spec={
                "serviceName": "one",
                "replicas": 0,
                "selector": SELECTOR,
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
        ),
    ),
    (
        "a daemon set",
        namespaced("apps/v1", "daemonsets"),
        typed(
            "apps/v1",
            "DaemonSet",
            spec={
                "selector": SELECTOR,
                "template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "nodeSelector": {"never": "true"}}},
            },
        ),
    ),
    (
        "a job",
        namespaced("batch/v1", "jobs"),
        typed(
            "batch/v1",
            "Job",
            spec={
                "backoffLimit": 0,
                "suspend": True,
                "template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}},
            },
        ),
    ),
    (
        "a cron job",
        namespaced("batch/v1", "cronjobs"),
        typed(
            "batch/v1",
            "CronJob",
            spec={
                "schedule": "0 0 1 1 *",
                "suspend": False,
                "jobTemplate": {
                    "spec": {"template": {"spec": {"containers": [CONTAINER], "restartPolicy": "OnFailure"}}}
                },
            },
        ),
    ),
    (
        "an ingress",
        namespaced("networking.k8s.io/v1", "ingresses"),
        typed(
            "networking.k8s.io/v1",
            "Ingress",
            spec={
                "rules": [
                    {
                        "host": "a.example.com",
                        "http": {
                            "paths": [
                                {
                                    "path": "/",
                                    "pathType": "Prefix",
                                    "backend": {"service": {"name": "one", "port": {"number": 80}}},
                                }
                            ]
                        },
                    }
                ],
                "tls": [{"hosts": ["a.example.com"], "secretName": "tls"}],
            },
        ),
    ),
    (
        "a network policy",
        namespaced("networking.k8s.io/v1", "networkpolicies"),
        typed(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            spec={
                "podSelector": {},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": "http"}, {"port": 80}]}],
            },
        ),
    ),
    (
        "a role",
        namespaced("rbac.authorization.k8s.io/v1", "roles"),
        typed(
            "rbac.authorization.k8s.io/v1",
            "Role",
            rules=[{"apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["get", "list"]}],
        ),
    ),
    (
        "a role binding",
        namespaced("rbac.authorization.k8s.io/v1", "rolebindings"),
        typed(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"},
            subjects=[{"kind": "ServiceAccount", "name": "default", "namespace": "x"}],
        ),
    ),
    (
        "a service account",
        "/api/v1/namespaces/{ns}/serviceaccounts",
        typed("v1", "ServiceAccount", automountServiceAccountToken=False),
    ),
    (
        "a lease",
        LEASES,
        typed(
            "coordination.k8s.io/v1",
            "Lease",
            spec={
                "holderIdentity": "me",
                "leaseDurationSeconds": 15,
                "acquireTime": "2026-01-02T03:04:05.000006Z",
                "leaseTransitions": 0,
            },
        ),
    ),
    (
        "a disruption budget",
        namespaced("policy/v1", "poddisruptionbudgets"),
        typed("policy/v1", "PodDisruptionBudget", spec={"minAvailable": "50%", "selector": SELECTOR}),
    ),
    (
        "an autoscaler",
        namespaced("autoscaling/v2", "horizontalpodautoscalers"),
        typed(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            spec={
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "one"},
                "minReplicas": 1,
                "maxReplicas": 3,
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {
                            "name": "cpu",
                            "target": {"type": "Utilization", "averageUtilization": 50},
                        },
                    }
                ],
            },
        ),
    ),
    (
        "a volume claim",
        "/api/v1/namespaces/{ns}/persistentvolumeclaims",
        typed(
            "v1",
            "PersistentVolumeClaim",
            spec={
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        ),
    ),
    (
        "a quota",
        "/api/v1/namespaces/{ns}/resourcequotas",
        typed("v1", "ResourceQuota", spec={"hard": {"count/widgets.example.com": "10"}}),
    ),
    (
        "a limit range",
        "/api/v1/namespaces/{ns}/limitranges",
        typed(
            "v1",
            "LimitRange",
            spec={"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "9Gi"}}]},
        ),
    ),
    (
        "endpoints slices",
        namespaced("discovery.k8s.io/v1", "endpointslices"),
        typed(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            addressType="IPv4",
            endpoints=[{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}],
            ports=[{"name": "", "port": 80}],
        ),
    ),
    (
        "an event of the core group",
        "/api/v1/namespaces/{ns}/events",
        typed(
            "v1", "Event", involvedObject={"kind": "Pod", "namespace": "{ns}", "name": "one"}, reason="Seen"
        ),
    ),
    (
        "labels, annotations, finalizers and owners",
        CONFIGMAPS,
        configmap(
            labels={"a": "b"},
            annotations={"c": "d\n"},
            finalizers=["kapsa.dev/f"],
            ownerReferences=[
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": "n",
                    "uid": "00000000-0000-0000-0000-000000000001",
                    "controller": False,
                }
            ],
        ),
    ),
]

CASES = [
    *(case(f"{name} is read from protobuf", sent(path, obj)) for name, path, obj in CREATED),
    case("protobuf names no manager but the client's", sent(CONFIGMAPS, configmap(), "fieldManager=me")),
    case("a generated name comes from protobuf", sent(CONFIGMAPS, configmap("", generateName="gen-"))),
    case(
        "an object is replaced from protobuf",
        post(CONFIGMAPS, configmap(data={"a": "1"})),
        replaced(ONE, configmap(data={"b": "2"})),
        get(ONE),
    ),
    case(
        "a status is replaced from protobuf",
        post(DEPLOYMENTS, deployment(replicas=0, paused=True)),
        replaced(
            f"{DEPLOYMENTS}/one/status",
            {
                **deployment(replicas=5),
                "status": {
                    "conditions": [
                        {
                            "type": "Custom",
                            "status": "True",
                            "reason": "Because",
                            "lastUpdateTime": "2026-01-02T03:04:05Z",
                            "lastTransitionTime": "2026-01-02T03:04:05Z",
                        }
                    ]
                },
            },
        ),
    ),
    case(
        "a scale is replaced from protobuf",
        post(DEPLOYMENTS, deployment(replicas=1, paused=True)),
        replaced(
            f"{DEPLOYMENTS}/one/scale",
            typed("autoscaling/v1", "Scale", spec={"replicas": 0}),
        ),
    ),
    case("an update of nothing in protobuf is 404", replaced(ONE, configmap())),
    case("a name in protobuf that is not the path's is rejected", replaced(ONE, configmap("two"))),
    case("an invalid object in protobuf is rejected", sent(CONFIGMAPS, configmap("Not A Name"))),
    case("a pod without containers in protobuf is rejected", sent(PODS, pod(containers=[]))),
    case(
        "a wrong quantity in protobuf is rejected",
        sent(PODS, pod(containers=[{**CONTAINER, "resources": {"limits": {"cpu": "-1"}}}])),
    ),
    case("another kind in protobuf is rejected", sent(CONFIGMAPS, secret())),
    case(
        "another version in protobuf is rejected",
        sent(DEPLOYMENTS, {**deployment(), "apiVersion": "apps/v1beta1"}),
    ),
    case(
        "strict validation of protobuf finds nothing", sent(CONFIGMAPS, configmap(), "fieldValidation=Strict")
    ),
    case("a dry run of protobuf stores nothing", sent(CONFIGMAPS, configmap(), "dryRun=All"), get(ONE)),
    case("an empty protobuf body is rejected", raw(CONFIGMAPS, b"")),
    case("json under protobuf's name is rejected", raw(CONFIGMAPS, b'{"kind":"ConfigMap"}')),
    case("a cut envelope is rejected", raw(CONFIGMAPS, encode(configmap())[:-9])),
    case("an envelope without content is rejected", raw(CONFIGMAPS, MAGIC)),
    case("a definition is read from protobuf", sent(CRDS, WIDGET_DEFINITION, "dryRun=All")),
    case(
        "protobuf delete options are read",
        post(CONFIGMAPS, configmap()),
        delete(
            ONE,
            encode({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}),
            content_type=MEDIA_TYPE,
        ),
    ),
    case(
        "protobuf delete options with another uid are a conflict",
        post(CONFIGMAPS, configmap()),
        delete(
            ONE,
            encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "x"}}),
            content_type=MEDIA_TYPE,
        ),
    ),
    case(
        "delete options in protobuf may be of the kind's own group",
        post(DEPLOYMENTS, deployment(replicas=0)),
        delete(
            f"{DEPLOYMENTS}/one",
            encode({"apiVersion": "apps/v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}),
            content_type=MEDIA_TYPE,
        ),
    ),
    case(
        "delete options of no known policy in protobuf are rejected",
        post(CONFIGMAPS, configmap()),
        delete(
            ONE,
            encode({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Never"}),
            content_type=MEDIA_TYPE,
        ),
    ),
    case(
        "an eviction is read from protobuf",
        post(PODS, pod(terminationGracePeriodSeconds=0)),
        sent(f"{PODS}/one/eviction", typed("policy/v1", "Eviction")),
    ),
    case(
        "a review is read from protobuf",
        sent(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}},
            },
        ),
    ),
    case(
        "a review of another subject is read from protobuf",
        sent(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": "a",
                    "groups": ["system:masters"],
                    "extra": {"k": ["v", "w"]},
                    "nonResourceAttributes": {"verb": "get", "path": "/healthz"},
                },
            },
        ),
    ),
    case(
        "a patch in protobuf is 415",
        Call(method="PATCH", path=ONE, body=encode(configmap()), content_type=MEDIA_TYPE),
    ),
    case(
        "an answer to protobuf is json if json is asked for",
        sent(CONFIGMAPS, configmap(), accept="application/json"),
    ),
    case("an answer to protobuf may be yaml", sent(CONFIGMAPS, configmap(), accept="application/yaml")),
    case(
        "protobuf or json is answered",
        sent(CONFIGMAPS, configmap(), accept="application/json, application/vnd.kubernetes.protobuf"),
    ),
    case(
        "an unknown field number in protobuf is skipped",
        raw(CONFIGMAPS, encode(configmap()) + b"\xca\x3e\x01x"),
    ),
    case("widgets stay json", post(WIDGETS, widget(spec={"size": 1}))),
]
