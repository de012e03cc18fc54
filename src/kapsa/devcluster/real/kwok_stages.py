"""The kwok Stages that simulate a kubelet: the lifecycle of nodes, pods and volume claims.

A Stage is a selector of objects and a Go template of their next state. The functions used in the templates
(`Now`, `NodeConditions`, `NodeIPsWith`, `PodIPsWith`, `Quote`) are kwok's.
"""

from collections.abc import Sequence
from typing import Any

STORAGE_PROVISIONER = "memory.devcluster.kapsa.dev"
"""The provisioner of the default storage class. It binds claims to volumes that hold no data."""

_READY = '.status.conditions.[] | select(.type == "Ready") | .status'
_HEARTBEAT_MILLISECONDS = 60_000

_NODE_CONDITIONS = """\
{{ $now := Now }}
{{ $since := or .metadata.creationTimestamp $now }}
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastTransitionTime: {{ $since | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
{{ end }}
"""

_NODE_START = (
    _NODE_CONDITIONS
    + """\
phase: Running
{{ if not .status.allocatable }}
allocatable: {cpu: "64", memory: 256Gi, ephemeral-storage: 1Ti, pods: "1000"}
{{ end }}
{{ if not .status.capacity }}
capacity: {cpu: "64", memory: 256Gi, ephemeral-storage: 1Ti, pods: "1000"}
{{ end }}
"""
)

_POD_RUNNING = """\
{{ $now := Now }}
{{ $hostNetwork := or .spec.hostNetwork false }}
phase: Running
startTime: {{ $now | Quote }}
conditions:
{{ range $type := list "PodReadyToStartContainers" "Initialized" "Ready" "ContainersReady" }}
- {type: {{ $type }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
{{ range .spec.readinessGates }}
- {type: {{ .conditionType | Quote }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
{{ if .spec.initContainers }}
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  restartCount: 0
  {{ if eq (or .restartPolicy "") "Always" }}
  started: true
  state: {running: {startedAt: {{ $now | Quote }}}}
  {{ else }}
  started: false
  state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
  {{ end }}
{{ end }}
{{ end }}
{{ with NodeIPsWith .spec.nodeName }}
hostIP: {{ index . 0 | Quote }}
hostIPs:
{{ range . }}
- ip: {{ . | Quote }}
{{ end }}
{{ end }}
{{ with PodIPsWith .spec.nodeName $hostNetwork (or .metadata.uid "") (or .metadata.name "") (or .metadata.namespace "") }}
podIP: {{ index . 0 | Quote }}
podIPs:
{{ range . }}
- ip: {{ . | Quote }}
{{ end }}
{{ end }}
"""

_POD_SUCCEEDED = """\
{{ $now := Now }}
{{ $start := or .status.startTime $now }}
phase: Succeeded
conditions:
{{ range $type := list "PodReadyToStartContainers" "Ready" "ContainersReady" }}
- {type: {{ $type }}, status: "False", reason: PodCompleted, lastTransitionTime: {{ $now | Quote }}}
{{ end }}
- {type: Initialized, status: "True", reason: PodCompleted, lastTransitionTime: {{ $start | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: false
  started: false
  restartCount: 0
  state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $start | Quote }}, finishedAt: {{ $now | Quote }}}}
{{ end }}
"""

_VOLUME = """\
apiVersion: v1
kind: PersistentVolume
metadata:
  name: pvc-{{ .metadata.uid }}
  annotations: {pv.kubernetes.io/provisioned-by: PROVISIONER}
spec:
  accessModes:
  {{ YAML .spec.accessModes 1 }}
  capacity:
  {{ YAML .spec.resources.requests 2 }}
  volumeMode: {{ or .spec.volumeMode "Filesystem" | Quote }}
  storageClassName: {{ .spec.storageClassName | Quote }}
  persistentVolumeReclaimPolicy: Delete
  claimRef:
    apiVersion: v1
    kind: PersistentVolumeClaim
    namespace: {{ .metadata.namespace | Quote }}
    name: {{ .metadata.name | Quote }}
    uid: {{ .metadata.uid | Quote }}
  csi: {driver: PROVISIONER, volumeHandle: {{ .metadata.uid | Quote }}}
""".replace("PROVISIONER", STORAGE_PROVISIONER)


def all_stages() -> list[dict[str, Any]]:
    """Return all Stages, in the order in which they apply to an object."""
    return [
        _stage("node-start", "Node", [_not_in(_READY, "True")], [_status(_NODE_START)]),
        _stage(
            "node-heartbeat",
            "Node",
            [_in(_READY, "True")],
            [_status(_NODE_CONDITIONS)],
            delay=_HEARTBEAT_MILLISECONDS,
        ),
        _stage(
            "pod-run",
            "Pod",
            [
                _absent(".metadata.deletionTimestamp"),
                _in(".status.phase", "Pending"),
                _not_in(_READY, "True"),
            ],
            [_status(_POD_RUNNING)],
        ),
        _stage(
            "pod-succeed",
            "Pod",
            [
                _absent(".metadata.deletionTimestamp"),
                _in(".status.phase", "Running"),
                _in(".metadata.ownerReferences.[].kind", "Job"),
            ],
            [_status(_POD_SUCCEEDED)],
        ),
        _stage("pod-delete", "Pod", [_present(".metadata.deletionTimestamp")], [{"delete": True}]),
        _stage(
            "claim-provision",
            "PersistentVolumeClaim",
            [
                _absent(".metadata.deletionTimestamp"),
                _absent(".spec.volumeName"),
                _in('.metadata.annotations["volume.kubernetes.io/storage-provisioner"]', STORAGE_PROVISIONER),
            ],
            [{"apply": {"template": _VOLUME}}],
        ),
        _stage(
            "volume-delete",
            "PersistentVolume",
            [
                _absent(".metadata.deletionTimestamp"),
                _in(".status.phase", "Released"),
                _in(".spec.csi.driver", STORAGE_PROVISIONER),
            ],
            [{"delete": True}],
        ),
    ]


def _stage(
    name: str,
    kind: str,
    selector: Sequence[dict[str, Any]],
    steps: Sequence[dict[str, Any]],
    *,
    delay: int = 0,
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": list(selector)},
        "steps": list(steps),
    }
    if delay:
        spec["delay"] = {"durationMilliseconds": delay}
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def _status(template: str) -> dict[str, Any]:
    return {"patch": {"subresource": "status", "root": "status", "type": "strategic", "template": template}}


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"jq": {"key": key, "operator": "In", "values": list(values)}}


def _not_in(key: str, *values: str) -> dict[str, Any]:
    return {"jq": {"key": key, "operator": "NotIn", "values": list(values)}}


def _present(key: str) -> dict[str, Any]:
    return {"jq": {"key": key, "operator": "Exists"}}


def _absent(key: str) -> dict[str, Any]:
    return {"jq": {"key": key, "operator": "DoesNotExist"}}
