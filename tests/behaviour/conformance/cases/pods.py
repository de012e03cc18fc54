"""Pods: defaults, containers, volumes, and immutable fields."""

from __future__ import annotations

from tests.behaviour.conformance.cases.requests import PODS, case, get, merge, pod, post, put, strategic

APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/main"
CONDITION = {"type": "Ready", "status": "False", "observedGeneration": 1}


def annotated(profile: str, **spec: object) -> dict[str, object]:
    """Return a pod with an AppArmor annotation of its container."""
    body = pod(**spec)
    body["metadata"]["annotations"] = {APP_ARMOR: profile}
    return body


CASES = [
    case("a pod gets its defaults", post(PODS, pod())),
    case("a pod without containers is rejected", post(PODS, {**pod(), "spec": {}})),
    case("a container without a name is rejected", post(PODS, pod(containers=[{"image": "a"}]))),
    case("a container without an image is rejected", post(PODS, pod(containers=[{"name": "a"}]))),
    case(
        "two containers of one name are rejected",
        post(PODS, pod(containers=[{"name": "a", "image": "a"}, {"name": "a", "image": "b"}])),
    ),
    case(
        "a container with a bad port is rejected",
        post(PODS, pod(containers=[{"name": "a", "image": "a", "ports": [{"containerPort": 0}]}])),
    ),
    case(
        "a container with a bad env name is rejected",
        post(PODS, pod(containers=[{"name": "a", "image": "a", "env": [{"name": "", "value": "x"}]}])),
    ),
    case(
        "a container with an unknown pull policy is rejected",
        post(PODS, pod(containers=[{"name": "a", "image": "a", "imagePullPolicy": "Maybe"}])),
    ),
    case("a pod with an unknown restart policy is rejected", post(PODS, pod(restartPolicy="Maybe"))),
    case(
        "a volume mount without its volume is rejected",
        post(
            PODS,
            pod(containers=[{"name": "a", "image": "a", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]),
        ),
    ),
    case(
        "a request above its limit is rejected",
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
        "a bad quantity is rejected",
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
    *(
        case(f"a pod with {shown} is answered alike", post(PODS, pod(volumes=volumes)))
        for shown, volumes in (
            ("two volumes of one name", [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]),
            ("a volume without a name", [{"emptyDir": {}}]),
            ("a volume with a bad name", [{"name": "A_b", "emptyDir": {}}]),
            ("a volume without a source", [{"name": "a"}]),
            (
                "a volume of three sources",
                [{"name": "a", "secret": {"secretName": "x"}, "emptyDir": {}, "configMap": {"name": "y"}}],
            ),
            ("a secret without a name", [{"name": "a", "secret": {}}]),
            ("a secret's bad mode", [{"name": "a", "secret": {"defaultMode": 9999, "secretName": "x"}}]),
            (
                "a config map's path that leads up",
                [{"name": "a", "configMap": {"items": [{"key": "", "path": "../x"}]}}],
            ),
            ("a claim without a name", [{"name": "a", "persistentVolumeClaim": {}}]),
            ("a host path that leads up", [{"name": "a", "hostPath": {"path": "../x", "type": "Nope"}}]),
            (
                "a projected token of an absolute path",
                [
                    {
                        "name": "a",
                        "projected": {"sources": [{"secret": {}}, {"serviceAccountToken": {"path": "/x"}}]},
                    }
                ],
            ),
            ("a network share without a server", [{"name": "a", "nfs": {"server": "", "path": "x"}}]),
            (
                "a downward field that does not exist",
                [
                    {
                        "name": "a",
                        "downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "spec.nope"}}]},
                    }
                ],
            ),
            ("an ephemeral volume without a template", [{"name": "a", "ephemeral": {}}]),
            ("a driver without a name", [{"name": "a", "csi": {}}]),
            (
                "a name taken from a faulty volume",
                [{"name": "b", "configMap": {}}, {"name": "b", "hostPath": {"path": ""}}],
            ),
        )
    ),
    *(
        case(
            f"a mount {shown} is answered alike",
            post(
                PODS,
                pod(
                    volumes=[{"name": "a", "emptyDir": {"sizeLimit": size}}],
                    containers=[{"name": "m", "image": "x", "volumeMounts": mounts}],
                ),
            ),
        )
        for shown, size, mounts in (
            ("of a missing volume", "1Gi", [{"name": "b", "mountPath": "/x"}]),
            ("at a path that is in use", "1Gi", [{"name": "a", "mountPath": "/x"}] * 2),
            ("of a faulty volume", "-1", [{"name": "a", "mountPath": "", "subPath": "../x"}]),
        )
    ),
    case(
        "a put of a status without a quality of service keeps it",
        post(PODS, pod()),
        put(f"{PODS}/one/status", {**pod(), "status": {"phase": "Running"}}),
        put(f"{PODS}/one/status", {**pod(), "status": {"phase": "Running", "qosClass": "Guaranteed"}}),
    ),
    case(
        "a put of a status without observed generations keeps them",
        post(PODS, pod()),
        put(f"{PODS}/one/status", {**pod(), "status": {"observedGeneration": 1, "conditions": [CONDITION]}}),
        put(f"{PODS}/one/status", {**pod(), "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    ),
    *(
        case(f"a pod with the AppArmor annotation {profile!r}", post(PODS, annotated(profile)))
        for profile in ("runtime/default", "unconfined", "localhost/strict", "localhost/", "nonsense")
    ),
    case(
        "a pod with an AppArmor annotation and the same profile of the pod",
        post(
            PODS,
            annotated("runtime/default", securityContext={"appArmorProfile": {"type": "RuntimeDefault"}}),
        ),
    ),
    *(
        case(
            f"a pod with an AppArmor annotation that is not its {kind} profile",
            post(
                PODS,
                annotated(
                    "localhost/other",
                    containers=[
                        {"name": "main", "image": "x", "securityContext": {"appArmorProfile": profile}}
                    ],
                ),
            ),
        )
        for kind, profile in (
            ("default", {"type": "RuntimeDefault"}),
            ("local", {"type": "Localhost", "localhostProfile": "strict"}),
        )
    ),
    case(
        "a pod with an AppArmor annotation of a container that it lacks",
        post(PODS, annotated("unconfined", containers=[{"name": "other", "image": "x"}])),
    ),
]
