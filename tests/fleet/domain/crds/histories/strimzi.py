"""Changes in the manner of Strimzi's."""

from tests.fleet.domain.crds.histories.change import (
    BOOLEAN,
    BREAKING,
    INTEGER,
    SAFE,
    STRING,
    WARNING,
    CrdHistory,
    crd,
    list_of,
    object_of,
    spec,
    version,
)

_KAFKA = object_of({"replicas": {**INTEGER, "minimum": 1}}, required=["replicas"])
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_AUTHENTICATION = {**STRING, "enum": ["tls", "scram-sha-512", "oauth", "custom"]}
_SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}

CHANGES = [
    CrdHistory(
        "0.23 removes v1beta1 of most kinds after the conversion",
        crd(version("v1beta1", storage=False), version("v1beta2"), stored=["v1beta2"]),
        crd(version("v1beta2")),
        ["breaking version-removed spec.versions[v1beta1]"],
        SAFE,
    ),
    CrdHistory(
        "v1beta2 has a list of listeners where v1beta1 had an object",
        spec({"listeners": object_of({"plain": object_of({}), "tls": object_of({})})}),
        spec({"listeners": list_of(object_of({"name": STRING, "port": INTEGER}, required=["name", "port"]))}),
        ["breaking type-changed v1:spec.listeners"],
        BREAKING,
        one_way=True,
    ),
    CrdHistory(
        "ZooKeeper is not required with KRaft",
        spec({"kafka": _KAFKA, "zookeeper": _KAFKA}, required=["kafka", "zookeeper"]),
        spec({"kafka": _KAFKA, "zookeeper": _KAFKA}, required=["kafka"]),
        [],
        BREAKING,
    ),
    CrdHistory(
        "a topic operator of its own is removed",
        spec({"kafka": _KAFKA, "topicOperator": object_of({"watchedNamespace": STRING})}),
        spec({"kafka": _KAFKA}),
        ["breaking field-removed v1:spec.topicOperator"],
        SAFE,
        one_way=True,
    ),
    CrdHistory(
        "0.38 replaces pausing by a state, and keeps the old field",
        spec({"pause": BOOLEAN, "tasksMax": {**INTEGER, "minimum": 1}}),
        spec(
            {
                "pause": BOOLEAN,
                "tasksMax": {**INTEGER, "minimum": 1},
                "state": {**STRING, "enum": ["paused", "stopped", "running"]},
            }
        ),
        [],
        BREAKING,
    ),
    CrdHistory(
        "v1 drops the type oauth of authentication",
        spec({"authentication": object_of({"type": _AUTHENTICATION}, required=["type"])}),
        spec(
            {
                "authentication": object_of(
                    {"type": {**STRING, "enum": ["tls", "scram-sha-512", "custom"]}}, required=["type"]
                )
            }
        ),
        ["breaking enum-value-removed v1:spec.authentication.type"],
        WARNING,
    ),
    CrdHistory(
        "0.47 adds another kind of metrics",
        spec(
            {
                "metricsConfig": object_of(
                    {"type": {**STRING, "enum": ["jmxPrometheusExporter"]}}, required=["type"]
                )
            }
        ),
        spec(
            {
                "metricsConfig": object_of(
                    {
                        "type": {**STRING, "enum": ["jmxPrometheusExporter", "strimziMetricsReporter"]},
                        "values": _OPEN,
                    },
                    required=["type"],
                )
            }
        ),
        ["warning enum-value-added v1:spec.metricsConfig.type"],
        BREAKING,
    ),
    CrdHistory(
        "the configuration of a topic loses its free form",
        spec({"config": _OPEN}),
        spec({"config": object_of({"retention.ms": INTEGER})}),
        [
            "breaking unknown-fields-pruned v1:spec.config",
            "breaking field-specified v1:spec.config.retention.ms",
        ],
        SAFE,
        one_way=True,
    ),
    CrdHistory(
        "the replicas of a topic are limited",
        spec({"replicas": INTEGER}),
        spec({"replicas": {**INTEGER, "minimum": 1, "maximum": 32767}}),
        ["breaking bound-tightened v1:spec.replicas", "breaking bound-tightened v1:spec.replicas"],
        SAFE,
    ),
    CrdHistory(
        "a connector can be scaled by selector",
        crd(version("v1", subresources={"scale": _SCALE})),
        crd(version("v1", subresources={"scale": {**_SCALE, "labelSelectorPath": ".status.labelSelector"}})),
        ["warning subresource-changed spec.versions[v1].subresources.scale"],
        WARNING,
    ),
    CrdHistory(
        "roles of a pool are required",
        spec({"roles": list_of({**STRING, "enum": ["controller", "broker"]})}),
        spec({"roles": list_of({**STRING, "enum": ["controller", "broker"]})}, required=["roles"]),
        ["breaking required-added v1:spec.roles"],
        SAFE,
    ),
]
