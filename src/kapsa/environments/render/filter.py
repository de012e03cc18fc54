"""The filter: rejects objects that a repository may not put into its environment's namespace, each by name.

Nothing is silently dropped or repaired: half an application is worse than none. Only the namespace is set,
and fields that the API server owns (status, managedFields) are removed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kapsa.adapters.errors import Refused
from kapsa.adapters.manifests.claim_templates import claim_templates
from kapsa.adapters.manifests.manifest import Manifest, display_name
from kapsa.adapters.manifests.pod_security import Level, pod_violations
from kapsa.adapters.manifests.pod_templates import containers, pod_metadata, pod_spec, reads_secret
from kapsa.environments.hosts.routing_rules import routing_refusals
from kapsa.environments.render.scheduling_rules import SchedulingRules, scheduling_refusals
from kapsa.environments.render.volume_rules import claim_refusals, volume_refusals

__all__ = ["ALLOWED_KINDS", "FilterRules", "ObjectsRefused", "Refusal", "filter_objects"]

ALLOWED_KINDS = (
    "v1/ServiceAccount",
    "v1/ConfigMap",
    "v1/Secret",
    "v1/PersistentVolumeClaim",
    "v1/Service",
    "apps/v1/Deployment",
    "apps/v1/StatefulSet",
    "apps/v1/DaemonSet",
    "batch/v1/Job",
    "batch/v1/CronJob",
    "autoscaling/v2/HorizontalPodAutoscaler",
    "policy/v1/PodDisruptionBudget",
    "networking.k8s.io/v1/Ingress",
)
"""The kinds that a repository may contain: namespaced, and none that grant permissions or limit resources."""

_WHY = {
    "ResourceQuota": "the operator manages quotas",
    "LimitRange": "the operator manages limits",
    "NetworkPolicy": "the operator manages network policies",
    "Role": "a repository cannot grant permissions",
    "RoleBinding": "a repository cannot grant permissions",
    "ClusterRole": "it is cluster-scoped, and a repository cannot grant permissions",
    "ClusterRoleBinding": "it is cluster-scoped, and a repository cannot grant permissions",
    "Namespace": "it is cluster-scoped; the operator creates the environment's namespace",
    "CustomResourceDefinition": "it is cluster-scoped; ask an administrator to install it",
    "PersistentVolume": "it is cluster-scoped; use a PersistentVolumeClaim",
    "Pod": "use a Deployment or a Job",
    "ReplicaSet": "use a Deployment",
    "Endpoints": "it could route requests to any address",
    "EndpointSlice": "it could route requests to any address",
}
_RESERVED = ("catalyst.dev/", "kapsa-project.io/", "applyset.kubernetes.io/", "pod-security.kubernetes.io/")
_ROLLBACK = "deprecated.deployment.rollback.to"
_OF_NETWORKS = (
    "k8s.v1.cni.cncf.io/", "v1.multus-cni.io/", "cni.projectcalico.org/", "ovn.kubernetes.io/", "k8s.ovn.org/",
)  # fmt: skip
"""Prefixes of annotations by which a pod asks for networks and addresses that no NetworkPolicy covers."""
_SERVER_OWNED = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_GRACE_PERIOD = "terminationGracePeriodSeconds"
_LONGEST_END = 300
_LARGEST_OBJECT = 1024 * 1024
_LARGEST_TOTAL = 8 * 1024 * 1024
_MOST_SHOWN = 20


class FilterRules(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one environment."""

    namespace: str
    hosts: Collection[str] = ()
    """Hosts that are allocated to the environment."""
    issuer: tuple[str, str] | None = None
    """The kind and name of the cert-manager issuer that the objects may use."""
    pod_security: Level = "baseline"
    kinds: Sequence[str] = ALLOWED_KINDS
    pull_secrets: Collection[str] = ()
    """The names of Secrets for pulling images, whether they exist or not. Only the kubelet may read them."""
    scheduling: SchedulingRules = SchedulingRules()
    objects: int = 300
    """The largest number of objects."""


class Refusal(msgspec.Struct, frozen=True):
    """One problem with one object."""

    object: str
    """The kind and name of the object."""
    why: str

    def __str__(self) -> str:
        return f"{self.object}: {self.why}"


class ObjectsRefused(Refused):
    """Objects that are not allowed. `refusals` lists them all."""

    default_reason = "ObjectsRefused"

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        listed = "; ".join(str(refusal) for refusal in refusals[:_MOST_SHOWN])
        more = f"; and {len(refusals) - _MOST_SHOWN} more" if len(refusals) > _MOST_SHOWN else ""
        super().__init__(f"refused: {listed}{more}", hint="Remove or change them in the repository")
        self.refusals = tuple(refusals)


def filter_objects(objects: Sequence[Manifest], rules: FilterRules) -> list[Manifest]:
    """Return the objects, placed in the environment's namespace, if all of them are allowed.

    Raises `ObjectsRefused` with all problems otherwise.
    """
    refusals: list[Refusal] = []
    kept: list[Manifest] = []
    seen: set[tuple[str, str]] = set()
    total = 0
    for each in objects:
        problems = list(_problems(each, rules))
        identity = (str(each.get("apiVersion")).rpartition("/")[0] + "/" + str(each.get("kind")), _name(each))
        if identity in seen and identity[1]:
            problems.append("it is defined twice")
        seen.add(identity)
        size = _size(each)
        total += size
        if size > _LARGEST_OBJECT:
            problems.append(f"it is larger than {_LARGEST_OBJECT // 1024} KB")
        refusals += [Refusal(display_name(each), problem) for problem in dict.fromkeys(problems)]
        kept.append(_placed(each, rules.namespace))
    if len(objects) > rules.objects or total > _LARGEST_TOTAL:
        problem = f"more than {rules.objects} objects, or {_LARGEST_TOTAL // 1024 // 1024} MB in total"
        refusals.append(Refusal("repository", problem))
    if refusals:
        raise ObjectsRefused(refusals)
    return kept


def _problems(manifest: Manifest, rules: FilterRules) -> Iterator[str]:
    kind = f"{manifest.get('apiVersion')}/{manifest.get('kind')}"
    if (
        "/" in manifest["kind"]
    ):  # v1/Deployment of version apps would pass the list, and no rule would know it
        yield f"kind {manifest['kind']!r} has a slash; the version is part of apiVersion"
        return
    if kind not in rules.kinds:
        yield _why_not(kind, rules.kinds)
        return
    metadata = manifest["metadata"]
    name = metadata.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > 253:
        yield "metadata.name is missing or invalid; generateName is not supported"
    if metadata.get("namespace") not in (None, "", rules.namespace):
        yield f"metadata.namespace is {metadata['namespace']!r}; leave it out"
    yield from _metadata_problems(metadata, "")
    for path, nested in _nested_metadata(manifest):
        yield from _metadata_problems(nested, path)
    yield from _kind_problems(manifest)
    if manifest["kind"] == "Secret" and name in rules.pull_secrets:
        yield "its name is reserved for the Secret for pulling images"
    yield from routing_refusals(manifest, hosts=rules.hosts, namespace=rules.namespace, issuer=rules.issuer)
    if (spec := pod_spec(manifest)) is not None:
        yield from _pod_problems(spec, rules)
        yield from _other_networks(pod_metadata(manifest))
        yield from pod_violations(spec, pod_metadata(manifest), rules.pod_security)


def _why_not(kind: str, allowed: Sequence[str]) -> str:
    group, _, name = kind.rpartition("/")
    same = [each for each in allowed if each.rpartition("/")[2] == name]
    if same and name not in _WHY:
        return f"apiVersion {group} is not allowed; use {same[0].rpartition('/')[0]}"
    return (
        f"{name} is not allowed: {_WHY.get(name, 'it is not one of the kinds that a repository may contain')}"
    )


def _nested_metadata(manifest: Manifest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the path and the metadata of what an object creates: its Jobs, pods and claims."""
    spec = manifest.get("spec")
    job = spec.get("jobTemplate") if manifest["kind"] == "CronJob" and isinstance(spec, dict) else None
    if isinstance(job, dict):
        yield "spec.jobTemplate.", _mapping(job.get("metadata"))
    yield "the pods' ", pod_metadata(manifest)
    for path, claim in claim_templates(manifest):
        yield path, _mapping(claim.get("metadata"))


def _metadata_problems(metadata: Mapping[str, Any], path: str) -> Iterator[str]:
    for field in ("ownerReferences", "finalizers"):
        if metadata.get(field):
            yield f"{path}metadata.{field} is not allowed"
    for field in ("labels", "annotations"):
        entries = metadata.get(field)
        if entries is not None and not isinstance(entries, dict):
            yield f"{path}metadata.{field} must be a mapping"
            continue
        for key, value in (entries or {}).items():
            if str(key).startswith(_RESERVED):
                yield f"{path}metadata.{field} contains {key}, which is reserved for the operator"
            if not isinstance(value, str):
                yield f"{path}metadata.{field}: {key} must be a string; put quotes around {value!r}"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _kind_problems(manifest: Manifest) -> Iterator[str]:
    kind = manifest.get("kind")
    if kind == "Secret" and manifest.get("type") in (
        "kubernetes.io/service-account-token",
        "bootstrap.kubernetes.io/token",
    ):
        yield f"a Secret of type {manifest['type']} would contain a token of the cluster"
    if kind == "ServiceAccount" and manifest.get("automountServiceAccountToken") is not False:
        yield "automountServiceAccountToken must be false"
    if kind == "Deployment":
        yield from _deployment_problems(manifest)
    if kind in ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob") and pod_spec(manifest) is None:
        yield "it has no pod template"
    yield from claim_refusals(manifest)


def _deployment_problems(manifest: Manifest) -> Iterator[str]:
    """Yield what makes a Deployment start pods of an earlier version, whose template may be refused by now."""
    spec, annotations = manifest.get("spec"), manifest["metadata"].get("annotations")
    if isinstance(spec, dict) and spec.get("paused"):
        yield "spec.paused could start pods of an earlier version; set spec.replicas to 0 to run none"
    if isinstance(annotations, dict) and _ROLLBACK in annotations:
        yield f"metadata.annotations contains {_ROLLBACK}, which starts pods of an earlier version"


def _pod_problems(spec: Mapping[str, Any], rules: FilterRules) -> Iterator[str]:
    if spec.get("automountServiceAccountToken"):
        yield "automountServiceAccountToken must not be true"
    yield from volume_refusals(spec)
    yield from _late_ends(spec)
    for name in rules.pull_secrets:
        if reads_secret(spec, name):
            yield f"a volume or variable reads Secret {name}, which is only for pulling images"
    yield from scheduling_refusals(spec, rules.scheduling, namespace=rules.namespace)


def _other_networks(metadata: Mapping[str, Any]) -> Iterator[str]:
    for key in _mapping(metadata.get("annotations")):
        if str(key).startswith(_OF_NETWORKS):
            yield f"the pods' annotation {key} would attach them to other networks"


def _late_ends(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield what would let a pod run on long after its version was withdrawn or its environment deleted."""
    asked = [("", spec.get(_GRACE_PERIOD))]
    asked += [
        (f" of {probe}", fields.get(_GRACE_PERIOD))
        for container in containers(spec)
        for probe in ("livenessProbe", "readinessProbe", "startupProbe")
        if isinstance(fields := container.get(probe), dict)
    ]
    for where, seconds in asked:
        if seconds is not None and (not isinstance(seconds, int) or seconds > _LONGEST_END):
            yield (
                f"{_GRACE_PERIOD}{where} is {seconds!r}, which would let pods run on after they are deleted; set "
                f"{_LONGEST_END} at most"
            )


def _placed(manifest: Manifest, namespace: str) -> Manifest:
    metadata = {key: value for key, value in manifest["metadata"].items() if key not in _SERVER_OWNED}
    kept = {key: value for key, value in manifest.items() if key != "status"}
    return {**kept, "metadata": {**metadata, "namespace": namespace}}


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"].get("name") or "")


def _size(manifest: Manifest) -> int:
    return len(msgspec.json.encode(manifest))
