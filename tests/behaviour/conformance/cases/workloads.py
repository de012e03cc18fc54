"""Workloads: deployments, stateful sets, daemon sets, jobs and cron jobs."""

from __future__ import annotations

from tests.behaviour.conformance.cases.requests import (
    DEPLOYMENTS,
    case,
    deployment,
    get,
    merge,
    named,
    post,
    put,
    strategic,
)

DEPLOYED = f"{DEPLOYMENTS}/one"
JOBS = "/apis/batch/v1/namespaces/{ns}/jobs"
CRONJOBS = "/apis/batch/v1/namespaces/{ns}/cronjobs"
STATEFULSETS = "/apis/apps/v1/namespaces/{ns}/statefulsets"
REPLICASETS = "/apis/apps/v1/namespaces/{ns}/replicasets"
DAEMONSETS = "/apis/apps/v1/namespaces/{ns}/daemonsets"
TEMPLATE = deployment()["spec"]["template"]


NAMELESS_TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}

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
        "a deployment's scale set to its current value",
        post(DEPLOYMENTS, deployment(replicas=2), "fieldManager=alpha"),
        merge(f"{DEPLOYED}/scale", {"spec": {"replicas": 2}}, "fieldManager=alpha"),
        get(DEPLOYED),
    ),
    case(
        "a deployment's scale rejects a negative",
        post(DEPLOYMENTS, deployment()),
        merge(f"{DEPLOYED}/scale", {"spec": {"replicas": -1}}),
    ),
    case(
        "a deployment without a selector is rejected",
        post(DEPLOYMENTS, {**deployment(), "spec": {"template": TEMPLATE}}),
    ),
    case(
        "a deployment whose selector does not match is rejected",
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
    case("a deployment with negative replicas is rejected", post(DEPLOYMENTS, deployment(replicas=-1))),
    case(
        "a deployment without containers is rejected",
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
        "a deployment with an unknown strategy is rejected",
        post(DEPLOYMENTS, deployment(strategy={"type": "Sudden"})),
    ),
    case(
        "a deployment with Recreate and rolling parameters is rejected",
        post(DEPLOYMENTS, deployment(strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}})),
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
        "a job without a restart policy is rejected",
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
        "a cron job with a bad schedule is rejected",
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
        "a change of a deployment's annotations raises its generation",
        post(DEPLOYMENTS, deployment()),
        merge(f"{DEPLOYMENTS}/one", {"metadata": {"annotations": {"note": "a"}}}),
        merge(f"{DEPLOYMENTS}/one", {"metadata": {"annotations": {"note": "a"}}}),
        merge(f"{DEPLOYMENTS}/one", {"metadata": {"labels": {"note": "a"}}}),
        merge(f"{DEPLOYMENTS}/one", {"metadata": {"annotations": None}}),
    ),
    case(
        "a deployment's annotations written with its status leave its generation",
        post(DEPLOYMENTS, deployment()),
        merge(f"{DEPLOYMENTS}/one/status", {"metadata": {"annotations": {"note": "a"}}}),
        merge(f"{DEPLOYMENTS}/one/status", {"status": {"replicas": 1}}),
    ),
    case(
        "a change of a replica set's annotations leaves its generation",
        post(
            REPLICASETS,
            {
                "metadata": {"name": "one"},
                "spec": {"selector": {"matchLabels": {"app": "one"}}, "template": TEMPLATE},
            },
        ),
        merge(f"{REPLICASETS}/one", {"metadata": {"annotations": {"note": "a"}}}),
    ),
    case(
        "a job and a cron job without a name",
        post("/apis/batch/v1/namespaces/{ns}/jobs", {"spec": {"template": NAMELESS_TEMPLATE}}),
        post(
            "/apis/batch/v1/namespaces/{ns}/cronjobs",
            {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": NAMELESS_TEMPLATE}}}},
        ),
    ),
]
