"""Objects that a repository may put into its environment's namespace, and refused ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kapsa.environments.render.filter import (
    ALLOWED_KINDS,
    FilterRules,
    ObjectsRefused,
    Refusal,
    filter_objects,
)
from kapsa.environments.render.scheduling_rules import SchedulingRules

NAMESPACE = "team-app-pr-7"
HOST = "pr-7.example.com"
RULES = FilterRules(namespace=NAMESPACE, hosts=[HOST])

TRAEFIK = "traefik.ingress.kubernetes.io"
POD = {"containers": [{"name": "app", "image": "app:1"}]}
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
REQUIRED_NODE = {
    REQUIRED: {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}]}
}
PREFERRED_NODE = {PREFERRED: [{"preference": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}}]}
LATE = {"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 301}
NEAR_ANOTHER = {"podAffinityTerm": {"namespaces": ["another-team"], "topologyKey": "kubernetes.io/hostname"}}


def thing(
    kind: str = "v1/ConfigMap", name: str = "web", /, metadata: Any = None, **fields: Any
) -> dict[str, Any]:
    version, _, kind = kind.rpartition("/")
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **(metadata or {})}, **fields}


def deployment(**pod: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "app", "image": "app:1"}], **pod}
    return thing("apps/v1/Deployment", spec={"template": {"spec": spec}})


def ingress(*rules: Any, **spec: Any) -> dict[str, Any]:
    return thing("networking.k8s.io/v1/Ingress", spec={"rules": list(rules), **spec})


def routed(path: str, path_type: str = "Prefix") -> dict[str, Any]:
    """Return an Ingress with this path."""
    return ingress({"host": HOST, "http": {"paths": [{"path": path, "pathType": path_type}]}})


def refusals(*objects: dict[str, Any], rules: FilterRules = RULES) -> list[str]:
    with pytest.raises(ObjectsRefused) as error:
        filter_objects(objects, rules)
    assert not error.value.retryable
    assert error.value.hint
    return [str(each) for each in error.value.refusals]


def test_all_objects_are_placed_in_the_environments_namespace() -> None:
    objects = [thing(), thing("v1/Secret"), thing("v1/Service", metadata={"namespace": NAMESPACE}, spec={})]
    assert [each["metadata"]["namespace"] for each in filter_objects(objects, RULES)] == [NAMESPACE] * 3


def test_fields_that_the_server_owns_are_removed() -> None:
    metadata: dict[str, Any] = {
        "uid": "x",
        "resourceVersion": "7",
        "managedFields": [],
        "creationTimestamp": None,
        "generation": 1,
    }
    (kept,) = filter_objects([thing(metadata=metadata, status={"a": "b"}, data={"c": "d"})], RULES)
    assert kept == thing(metadata={"namespace": NAMESPACE}, data={"c": "d"})


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("rbac.authorization.k8s.io/v1/ClusterRole", "it is cluster-scoped, and a repository cannot grant permissions"),
        ("rbac.authorization.k8s.io/v1/ClusterRoleBinding", "it is cluster-scoped"),
        ("rbac.authorization.k8s.io/v1/Role", "a repository cannot grant permissions"),
        ("rbac.authorization.k8s.io/v1/RoleBinding", "a repository cannot grant permissions"),
        ("v1/Namespace", "it is cluster-scoped"),
        ("v1/ResourceQuota", "the operator manages quotas"),
        ("v1/LimitRange", "the operator manages limits"),
        ("networking.k8s.io/v1/NetworkPolicy", "the operator manages network policies"),
        ("apiextensions.k8s.io/v1/CustomResourceDefinition", "it is cluster-scoped"),
        ("v1/PersistentVolume", "it is cluster-scoped"),
        ("v1/Pod", "use a Deployment"),
        ("v1/Endpoints", "it could route requests to any address"),
        ("discovery.k8s.io/v1/EndpointSlice", "it could route requests to any address"),
        ("admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration", "not one of the kinds"),
        ("catalyst.catalyst.dev/v1alpha1/Environment", "not one of the kinds"),
        ("argoproj.io/v1alpha1/Application", "not one of the kinds"),
        ("evil.example.com/v1/ConfigMap", "apiVersion evil.example.com/v1 is not allowed; use v1"),
        ("extensions/v1beta1/Ingress", "use networking.k8s.io/v1"),
    ],
)  # fmt: skip
def test_a_kind_that_is_not_allowed_is_refused_by_name(kind: str, why: str) -> None:
    (refusal,) = refusals(thing(kind, "mine"), thing())
    assert refusal.startswith(f"{kind.rpartition('/')[2]} mine: ")
    assert why in refusal


def test_a_kind_that_is_split_at_another_place_is_refused() -> None:
    disguised = {**deployment(hostNetwork=True), "apiVersion": "apps", "kind": "v1/Deployment"}
    (refusal,) = refusals(disguised)
    assert "has a slash" in refusal


def test_an_object_meant_for_another_namespace_is_refused_by_name() -> None:
    (refusal,) = refusals(thing(metadata={"namespace": "kube-system"}))
    assert refusal == "ConfigMap web: metadata.namespace is 'kube-system'; leave it out"


def test_all_refusals_are_reported_at_once() -> None:
    refused = refusals(
        thing("v1/Namespace", "a"), thing(), thing("v1/Pod", "b"), deployment(hostNetwork=True)
    )
    assert [each.partition(":")[0] for each in refused] == ["Namespace a", "Pod b", "Deployment web"]


def test_a_message_lists_a_limited_number_of_refusals() -> None:
    refused = ObjectsRefused([Refusal(f"Pod {number}", "no") for number in range(1000)])
    assert str(refused).endswith("; and 980 more")
    assert len(refused.refusals) == 1000


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"catalyst.dev/owner-uid": "another"}},
        {"labels": {"applyset.kubernetes.io/part-of": "another"}},
        {"annotations": {"catalyst.dev/owner": "another/one"}},
        {"annotations": {"kapsa-project.io/x": "y"}},
        {"labels": {"replicas": 3}},
        {"labels": ["a"]},
        {"ownerReferences": [{"kind": "Node", "name": "x"}]},
        {"finalizers": ["example.com/never"]},
        {"name": ""},
        {"name": None, "generateName": "web-"},
        {"name": "../../etc"},
        {"name": ["a"]},
    ],
)
def test_reserved_or_invalid_metadata_is_refused(metadata: dict[str, Any]) -> None:
    assert refusals(thing(metadata=metadata))


def in_pods(metadata: Any) -> dict[str, Any]:
    return thing("apps/v1/Deployment", spec={"template": {"metadata": metadata, "spec": POD}})


def in_jobs(metadata: Any) -> dict[str, Any]:
    template = {"metadata": metadata, "spec": {"template": {"spec": POD}}}
    return thing("batch/v1/CronJob", spec={"jobTemplate": template})


def in_pods_of_jobs(metadata: Any) -> dict[str, Any]:
    return thing(
        "batch/v1/CronJob", spec={"jobTemplate": {"spec": {"template": {"metadata": metadata, "spec": POD}}}}
    )


def in_claims(metadata: Any, **spec: Any) -> dict[str, Any]:
    claim = {"metadata": {"name": "data", **metadata}, "spec": spec}
    return thing("apps/v1/StatefulSet", spec={"template": {"spec": POD}, "volumeClaimTemplates": [{}, claim]})


def in_ephemeral_volumes(metadata: Any, **spec: Any) -> dict[str, Any]:
    claim = {"metadata": metadata, "spec": spec}
    return deployment(volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": claim}}])


@pytest.mark.parametrize("nested", [in_pods, in_pods_of_jobs])
@pytest.mark.parametrize(
    "key",
    ["k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network", "cni.projectcalico.org/ipAddrs"],
)
def test_no_pod_asks_for_another_network(nested: Callable[[Any], dict[str, Any]], key: str) -> None:
    assert f"annotation {key} would attach them" in " ".join(
        refusals(nested({"annotations": {key: "default/lan"}}))
    )


@pytest.mark.parametrize("nested", [in_pods, in_jobs, in_pods_of_jobs, in_claims, in_ephemeral_volumes])
@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"finalizers": ["example.com/never"]}, "metadata.finalizers is not allowed"),
        ({"ownerReferences": [{"kind": "Node", "name": "x"}]}, "metadata.ownerReferences is not allowed"),
        ({"labels": {"catalyst.dev/owner-uid": "another"}}, "which is reserved for the operator"),
        ({"annotations": {"kapsa-project.io/x": "y"}}, "which is reserved for the operator"),
    ],
)
def test_metadata_of_what_an_object_creates_is_judged_as_its_own(
    nested: Callable[[Any], dict[str, Any]], metadata: dict[str, Any], words: str
) -> None:
    (refusal,) = refusals(nested(metadata))
    assert words in refusal
    assert filter_objects([nested({"labels": {"app": "web"}, "annotations": {"example.com/a": "b"}})], RULES)


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (thing("v1/Secret", type="kubernetes.io/service-account-token"), "token of the cluster"),
        (thing("v1/Secret", type="bootstrap.kubernetes.io/token"), "token of the cluster"),
        (thing("v1/ServiceAccount", automountServiceAccountToken=True), "automountServiceAccountToken"),
        (thing("v1/ServiceAccount"), "automountServiceAccountToken must be false"),
        (thing("v1/PersistentVolumeClaim", spec={"volumeName": "another"}), "could bind a volume of another tenant"),
        (thing("v1/PersistentVolumeClaim", spec={"dataSourceRef": {"namespace": "x"}}), "another namespace"),
        (thing("v1/PersistentVolumeClaim", spec={"selector": {}}), "could bind a volume of another tenant"),
        (in_claims({}, volumeName="another"), "volumeClaimTemplates[data].spec.volumeName could bind"),
        (in_claims({}, dataSourceRef={"namespace": "x"}), "volumeClaimTemplates[data].spec.dataSourceRef refers"),
        (in_ephemeral_volumes({}, volumeName="another"), "volumeClaimTemplate.spec.volumeName could bind"),
        (in_ephemeral_volumes({}, dataSourceRef={"namespace": "x"}), "Template.spec.dataSourceRef refers"),
        (thing("apps/v1/Deployment", spec={}), "no pod template"),
        (thing("batch/v1/CronJob"), "no pod template"),
        (deployment(automountServiceAccountToken=True), "automountServiceAccountToken"),
        (
            deployment(volumes=[{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]),
            "mount a token",
        ),
        (deployment(nodeName="control-plane"), "bypass the scheduler"),
        (deployment(terminationGracePeriodSeconds=301), "terminationGracePeriodSeconds is 301"),
        (deployment(terminationGracePeriodSeconds=1e9), "terminationGracePeriodSeconds is 1000000000.0"),
        (deployment(containers=[{"livenessProbe": LATE}]), "terminationGracePeriodSeconds of livenessProbe is 301"),
        (deployment(initContainers=[{"startupProbe": LATE}]), "terminationGracePeriodSeconds of startupProbe is 301"),
        (deployment(priorityClassName="system-node-critical"), "reserved for the system"),
        (deployment(priorityClassName="high"), "could evict those of others"),
        (deployment(nodeSelector={"node-role.kubernetes.io/control-plane": ""}), "chooses nodes by node-role"),
        (deployment(affinity={"nodeAffinity": REQUIRED_NODE}), "chooses nodes by metadata.name"),
        (deployment(affinity={"nodeAffinity": PREFERRED_NODE}), "chooses nodes by team"),
        (deployment(affinity={"podAntiAffinity": {REQUIRED: [{"namespaceSelector": {}}]}}), "pods of other namesp"),
        (deployment(affinity={"podAffinity": {PREFERRED: [NEAR_ANOTHER]}}), "pods of other namespaces"),
        (deployment(tolerations=[{"operator": "Exists"}]), "tolerates every taint"),
        (deployment(tolerations=[{"key": "node-role.kubernetes.io/control-plane"}]), "tolerates the taint node-role"),
        (deployment(hostNetwork=True), "hostNetwork"),
        (deployment(volumes=[{"name": "h", "hostPath": {"path": "/"}}]), "hostPath"),
        (thing("v1/Service", spec={"type": "LoadBalancer"}), "only ClusterIP"),
        (thing("v1/Service", spec={"type": "NodePort"}), "only ClusterIP"),
        (thing("v1/Service", spec={"type": "ExternalName", "externalName": "x.svc"}), "only ClusterIP"),
        (thing("v1/Service", spec={"externalIPs": ["10.0.0.1"]}), "spec.externalIPs"),
        (
            thing("v1/Service", metadata={"annotations": {"external-dns.alpha.kubernetes.io/hostname": "www.x.org"}}),
            "not allocated",
        ),
    ],
)  # fmt: skip
def test_objects_that_reach_out_of_the_namespace_are_refused(manifest: dict[str, Any], words: str) -> None:
    assert words in " ".join(refusals(manifest))


FOREIGN_VOLUMES: dict[str, Any] = {
    "nfs": {"server": "10.0.0.9", "path": "/exports/bank"},
    "iscsi": {"targetPortal": "10.0.0.9", "iqn": "iqn.2001-04.com.example:bank", "lun": 0},
    "csi": {"driver": "secrets-store.csi.k8s.io", "nodePublishSecretRef": {"name": "own"}},
    "awsElasticBlockStore": {"volumeID": "vol-1"},
    "gcePersistentDisk": {"pdName": "bank"},
    "azureFile": {"secretName": "own", "shareName": "bank"},
    "azureDisk": {"diskName": "bank", "diskURI": "x"},
    "cephfs": {"monitors": ["10.0.0.9"]},
    "rbd": {"monitors": ["10.0.0.9"], "image": "bank"},
    "flexVolume": {"driver": "example.com/any"},
    "gitRepo": {"repository": "https://git.example.com/bank"},
    "somethingNew": {},
}


@pytest.mark.parametrize("kind", FOREIGN_VOLUMES)
def test_a_volume_that_names_storage_outside_the_namespace_is_refused(kind: str) -> None:
    pod = {**POD, "volumes": [{"name": "data", kind: FOREIGN_VOLUMES[kind]}]}
    for manifest in (
        deployment(**pod),
        thing("batch/v1/CronJob", spec={"jobTemplate": {"spec": {"template": {"spec": pod}}}}),
    ):
        (refusal,) = refusals(manifest)
        assert f"volume data is of type {kind}, which could reach storage of others" in refusal
        assert "use a persistentVolumeClaim" in refusal


@pytest.mark.parametrize("source", ["clusterTrustBundle", "podCertificate"])
def test_a_projected_volume_holds_only_what_the_namespace_has(source: str) -> None:
    volume = {"name": "all", "projected": {"sources": [{source: {"path": "x"}}]}}
    assert f"volume all projects a {source}" in " ".join(refusals(deployment(volumes=[volume])))


def test_plain_volumes_are_allowed() -> None:
    sources = [{"configMap": {"name": "a"}}, {"secret": {"name": "b"}}, {"downwardAPI": {"items": []}}]
    volumes: list[dict[str, Any]] = [
        {"name": "default"},
        {"name": "empty", "emptyDir": {}, "nfs": None},
        {"name": "config", "configMap": {"name": "a"}},
        {"name": "secret", "secret": {"secretName": "b"}},
        {"name": "fields", "downwardAPI": {"items": []}},
        {"name": "all", "projected": {"sources": sources}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "image", "image": {"reference": "app:1"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}},
    ]
    assert filter_objects([deployment(volumes=volumes)], RULES)
    assert filter_objects([in_claims({}, accessModes=["ReadWriteOnce"], dataSourceRef={"name": "x"})], RULES)


def test_a_pod_may_take_five_minutes_to_end() -> None:
    probe = {"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 300}
    manifest = deployment(terminationGracePeriodSeconds=300, containers=[{"livenessProbe": probe}])
    assert filter_objects([manifest], RULES)


def test_a_pod_in_a_cron_job_is_checked_too() -> None:
    pod = {"template": {"spec": {"containers": [{"name": "a", "securityContext": {"privileged": True}}]}}}
    (refusal,) = refusals(thing("batch/v1/CronJob", spec={"jobTemplate": {"spec": pod}}))
    assert "container a: securityContext.privileged is true" in refusal


def scaled(**spec: Any) -> dict[str, Any]:
    """Return a Deployment with these fields next to its template."""
    manifest = deployment()
    manifest["spec"] |= spec
    return manifest


def test_a_deployment_that_may_start_pods_of_an_earlier_version_is_refused() -> None:
    assert "spec.paused" in " ".join(refusals(scaled(paused=True, replicas=0)))
    returning = scaled()
    returning["metadata"]["annotations"] = {"deprecated.deployment.rollback.to": "1"}
    assert "deprecated.deployment.rollback.to" in " ".join(refusals(returning))
    assert filter_objects([scaled(paused=False, replicas=0)], RULES)


# -- hosts --------------------------------------------------------------------------------------------------------


def test_a_host_that_is_allocated_is_allowed() -> None:
    assert filter_objects([ingress({"host": HOST}, tls=[{"hosts": [HOST], "secretName": "tls"}])], RULES)


@pytest.mark.parametrize(
    ("path", "path_type"),
    [
        ("/", "Prefix"),
        ("/v1/a-b_c.d~e/%20/@me:$&+,=!*", "Exact"),
        ("/api(/|$)(.*)", "ImplementationSpecific"),
        ("/(?!admin)[a-z]+", "ImplementationSpecific"),
    ],
)
def test_a_path_of_a_url_or_a_pattern_for_it_is_allowed(path: str, path_type: str) -> None:
    assert filter_objects([routed(path, path_type)], RULES)


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (ingress({"host": "www.example.com"}), "host 'www.example.com' is not allocated to it"),
        (ingress({"host": "*.example.com"}), "not allocated"),
        (ingress({"host": HOST.upper()}), "not allocated"),
        (ingress({"host": HOST}, {"http": {"paths": []}}), "a rule without a host"),
        (ingress({"host": HOST}, defaultBackend={"service": {"name": "web"}}), "defaultBackend"),
        (ingress(), "spec.rules is empty"),
        (ingress({"host": HOST}, tls=[{"hosts": ["bank.example.com"]}]), "not allocated"),
        (routed("/x;}\nlocation / {"), "path '/x;}\\nlocation / {' may contain only"),
        (routed("/`) || PathPrefix(`/"), "path '/`) || PathPrefix(`/' may contain only"),
        (routed("/`)||PathPrefix(`/", "ImplementationSpecific"), "may contain only"),
        (routed("/a b"), "may contain only"),
        (routed("/a'b"), "may contain only"),
        (routed('/a"b'), "may contain only"),
        (routed("/a\\"), "may contain only"),
        (routed("/a#b"), "may contain only"),
        (routed("/%[src]"), "may contain only"),
        (routed("/api(/|$)(.*)"), "may contain only"),
    ],
)
def test_a_host_that_is_not_allocated_is_refused(manifest: dict[str, Any], words: str) -> None:
    assert words in " ".join(refusals(manifest))


def test_without_a_host_there_is_no_ingress() -> None:
    assert "not allocated" in " ".join(
        refusals(ingress({"host": HOST}), rules=FilterRules(namespace=NAMESPACE))
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nginx.ingress.kubernetes.io/configuration-snippet", "return 200;"),
        ("nginx.ingress.kubernetes.io/server-snippet", "x"),
        ("nginx.ingress.kubernetes.io/auth-url", "http://169.254.169.254"),
        ("nginx.ingress.kubernetes.io/auth-tls-match-cn", "CN=x"),
        ("nginx.ingress.kubernetes.io/mirror-target", "https://elsewhere"),
        ("nginx.ingress.kubernetes.io/server-alias", "www.example.com"),
        ("nginx.ingress.kubernetes.io/rewrite-target", "/x;}\nlocation /secrets {"),
        ("nginx.ingress.kubernetes.io/auth-secret", "kube-system/admin"),
        ("nginx.ingress.kubernetes.io/proxy-ssl-secret", "kube-system/admin"),
        ("nginx.org/location-snippets", "x"),
        ("haproxy.org/backend-config-snippet", "x"),
        ("haproxy-ingress.github.io/config-global", "x"),
        ("alb.ingress.kubernetes.io/actions.forward", "x"),
        ("konghq.com/host-aliases", "www.example.com"),
        ("appgw.ingress.kubernetes.io/hostname-extension", "www.example.com"),
        ("haproxy-ingress.github.io/redirect-from", "www.example.com"),
        ("haproxy-ingress.github.io/tcp-service-port", "5432"),
        ("haproxy.org/server-crt", "kube-system/admin"),
        ("nginx.ingress.kubernetes.io/auth-proxy-set-headers", "kube-system/headers"),
        ("zalando.org/skipper-routes", '* -> "https://elsewhere"'),
        ("getambassador.io/config", "host: '*'"),
        ("k8s.apisix.apache.org/svc-namespace", "team-bank-main"),
        ("higress.io/destination", "app.team-bank-main.svc.cluster.local"),
        (f"{TRAEFIK}/router.pathmatcher", "PathPrefix(`/`) || PathPrefix"),
        (f"{TRAEFIK}/router.pathmatcher", "HostRegexp"),
        (f"{TRAEFIK}/router.middlewares", "kube-system-auth@kubernetescrd"),
        (f"{TRAEFIK}/router.tls.options", "bank-mtls@kubernetescrd"),
        (f"{TRAEFIK}/router.tls.domains.0.main", "www.example.com"),
        (f"{TRAEFIK}/router.rulesyntax", "v2"),
        (f"{TRAEFIK}/router.entrypoints", "web`"),
        (f"{TRAEFIK}/service.serverstransport", "bank-transport@kubernetescrd"),
        (f"{TRAEFIK}/service.sticky.cookie.domain", "example.com"),
        ("traefik.example.com/anything", "x"),
        ("external-dns.alpha.kubernetes.io/hostname", f"{HOST},www.example.com"),
        ("external-dns.alpha.kubernetes.io/target", "198.51.100.1"),
    ],
)
def test_annotations_that_configure_the_shared_controller_are_refused(key: str, value: str) -> None:
    manifest = ingress({"host": HOST})
    manifest["metadata"]["annotations"] = {key: value}
    assert key in " ".join(refusals(manifest))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nginx.ingress.kubernetes.io/rewrite-target", "/$2"),
        ("nginx.ingress.kubernetes.io/proxy-body-size", "8m"),
        (f"{TRAEFIK}/router.entrypoints", "web,websecure"),
        (f"{TRAEFIK}/router.tls", "true"),
        (f"{TRAEFIK}/router.pathmatcher", "Path"),
        (f"{TRAEFIK}/service.sticky.cookie", "true"),
        (f"{TRAEFIK}/service.sticky.cookie.name", "session"),
        ("nginx.ingress.kubernetes.io/auth-secret", "basic-auth"),
        ("nginx.ingress.kubernetes.io/auth-secret", f"{NAMESPACE}/basic-auth"),
        ("nginx.ingress.kubernetes.io/proxy-redirect-from", "http://backend"),
        ("haproxy.org/server-ca", "authority"),
        ("konghq.com/strip-path", "true"),
        ("external-dns.alpha.kubernetes.io/hostname", HOST),
        ("example.com/note", "a; b {c}"),
    ],
)
def test_annotations_about_the_environment_alone_are_allowed(key: str, value: str) -> None:
    manifest = ingress({"host": HOST})
    manifest["metadata"]["annotations"] = {key: value}
    assert filter_objects([manifest], RULES)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cert-manager.io/cluster-issuer", "vault"),
        ("cert-manager.io/issuer", "letsencrypt"),
        ("cert-manager.io/issuer-kind", "VaultIssuer"),
        ("cert-manager.io/common-name", "www.example.com"),
        ("cert-manager.io/alt-names", "www.example.com"),
        ("cert-manager.io/uri-sans", "spiffe://cluster.local/ns/bank/sa/app"),
        ("acme.cert-manager.io/http01-ingress-class", "internal"),
        ("kubernetes.io/tls-acme", "true"),
    ],
)
@pytest.mark.parametrize("issuer", [("ClusterIssuer", "letsencrypt"), None])
def test_only_the_issuer_of_the_pool_makes_a_certificate(
    key: str, value: str, issuer: tuple[str, str] | None
) -> None:
    manifest = ingress({"host": HOST})
    manifest["metadata"]["annotations"] = {key: value}
    rules = msgspec.structs.replace(RULES, issuer=issuer)
    (refusal,) = refusals(manifest, rules=rules)
    assert f"annotation {key} is not allowed" in refusal
    assert ("cert-manager.io/cluster-issuer: letsencrypt" in refusal) == (issuer is not None)


@pytest.mark.parametrize(
    ("key", "kind"),
    [("cert-manager.io/cluster-issuer", "ClusterIssuer"), ("cert-manager.io/issuer", "Issuer")],
)
def test_a_repository_may_name_the_issuer_of_the_pool(key: str, kind: str) -> None:
    manifest = ingress({"host": HOST})
    manifest["metadata"]["annotations"] = {key: "letsencrypt"}
    rules = msgspec.structs.replace(RULES, issuer=(kind, "letsencrypt"))
    assert filter_objects([manifest], rules)


# -- amounts ------------------------------------------------------------------------------------------------------


def test_one_object_twice_is_refused() -> None:
    assert refusals(thing(), thing()) == ["ConfigMap web: it is defined twice"]
    assert filter_objects([thing(), thing("v1/Secret")], RULES)


def test_objects_that_no_server_would_store_are_refused() -> None:
    (refusal,) = refusals(thing(data={"a": "x" * 1_100_000}))
    assert "larger than 1024 KB" in refusal


def test_more_objects_than_a_namespace_should_get_are_refused() -> None:
    (refusal,) = refusals(*(thing("v1/ConfigMap", f"c{number}") for number in range(301)))
    assert "more than 300 objects" in refusal


def test_more_bytes_than_a_namespace_should_get_are_refused_however_small_each_object_is() -> None:
    (refusal,) = refusals(
        *(thing("v1/ConfigMap", f"c{number}", data={"a": "x" * 1_000_000}) for number in range(9))
    )
    assert refusal == "repository: more than 300 objects, or 8 MB in total"


@pytest.mark.parametrize("name", ["", "Upper", "a_b", "-a", "a" * 254])
def test_an_invalid_name_is_refused(name: str) -> None:
    (refusal,) = refusals(thing("v1/ConfigMap", name))
    assert "metadata.name is missing or invalid" in refusal
    assert filter_objects([thing("v1/ConfigMap", "a" * 253)], RULES)


def test_every_allowed_kind_passes_in_its_simplest_form() -> None:
    pod = {"template": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}}}
    forms: dict[str, Any] = {
        **dict.fromkeys(("Deployment", "StatefulSet", "DaemonSet", "Job"), pod),
        "CronJob": {"jobTemplate": {"spec": pod}},
        "Ingress": {"rules": [{"host": HOST}]},
    }
    objects = [
        thing(kind, spec=forms.get(kind.rpartition("/")[2], {}), automountServiceAccountToken=False)
        for kind in ALLOWED_KINDS
    ]
    assert len(filter_objects(objects, RULES)) == len(ALLOWED_KINDS)


SCHEDULED: dict[str, Any] = {
    "nodeSelector": {"kubernetes.io/os": "linux", "example.com/gpu": "true"},
    "tolerations": [
        {"key": "example.com/gpu", "operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 30},
    ],
    "priorityClassName": "previews",
    "runtimeClassName": "gpu",
    "schedulerName": "batch",
    "affinity": {"podAntiAffinity": {REQUIRED: [{"namespaces": [NAMESPACE], "topologyKey": "zone"}]}},
}


def test_nodes_and_priorities_are_chosen_as_far_as_the_administrator_allows() -> None:
    allowed = SchedulingRules(
        node_labels=["kubernetes.io/os", "example.com/gpu"],
        taints=["example.com/gpu"],
        priority_classes=["previews"],
        runtime_classes=["gpu"],
        schedulers=["batch"],
    )
    rules = FilterRules(namespace=NAMESPACE, scheduling=allowed)
    assert len(filter_objects([deployment(**SCHEDULED)], rules)) == 1
    assert refusals(deployment(**SCHEDULED)) == [
        "Deployment web: priorityClassName previews is not allowed: its pods could evict those of others. Allowed are: none",
        "Deployment web: runtimeClassName gpu is not allowed: it brings a runtime, nodes and tolerations of its own. Allowed are: none",
        "Deployment web: schedulerName batch is not allowed. Allowed are: default-scheduler",
        "Deployment web: it tolerates the taint example.com/gpu; the taints that it may tolerate are: none",
        "Deployment web: it chooses nodes by example.com/gpu; the labels that it may choose nodes by are: kubernetes.io/arch, kubernetes.io/os",
    ]


@pytest.mark.parametrize("nonsense", [7, "x", [7], ["x"], {"a": 7}, [[]], {"x": [{}]}], ids=str)
def test_scheduling_fields_of_a_wrong_type_crash_nothing(nonsense: Any) -> None:
    affinities: dict[str, Any] = {kind: {REQUIRED: nonsense} for kind in ("nodeAffinity", "podAffinity")}
    term: dict[str, Any] = {REQUIRED: [{"namespaces": nonsense}]}
    for affinity in (nonsense, affinities, {"podAntiAffinity": term}):
        pod = {
            "affinity": affinity,
            "tolerations": nonsense,
            "nodeSelector": nonsense,
            "priorityClassName": nonsense,
            "runtimeClassName": nonsense,
            "schedulerName": nonsense,
        }
        assert refusals(deployment(**pod))


@pytest.mark.parametrize("nonsense", ["x", 5, ["x"], {"x": 1}])
def test_a_sysctl_whose_name_is_not_a_text_is_refused(nonsense: Any) -> None:
    (refusal,) = refusals(deployment(securityContext={"sysctls": [{"name": nonsense, "value": "1"}]}))
    assert "securityContext.sysctls sets" in refusal


@pytest.mark.parametrize(
    "pod",
    [
        {"volumes": [{"name": "loot", "secret": {"secretName": "kapsa-registry"}}]},
        {"volumes": [{"name": "loot", "projected": {"sources": [{"secret": {"name": "kapsa-registry"}}]}}]},
        {
            "volumes": [
                {"name": "x", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "kapsa-registry"}}}
            ]
        },
        {"containers": [{"name": "a", "image": "b", "envFrom": [{"secretRef": {"name": "kapsa-registry"}}]}]},
        {
            "initContainers": [
                {
                    "name": "a",
                    "image": "b",
                    "env": [
                        {"name": "X", "valueFrom": {"secretKeyRef": {"name": "kapsa-registry", "key": "x"}}}
                    ],
                }
            ]
        },
    ],
    ids=["volume", "projected", "csi", "envFrom", "env"],
)
def test_no_pod_reads_the_secret_for_pulling_images(pod: dict[str, Any]) -> None:
    rules = FilterRules(namespace=NAMESPACE, hosts=[HOST], pull_secrets=["kapsa-registry"])
    assert any("only for pulling images" in each for each in refusals(deployment(**pod), rules=rules))
    (kept,) = filter_objects([deployment(imagePullSecrets=[{"name": "kapsa-registry"}])], rules)
    assert kept["kind"] == "Deployment"


def test_a_volume_or_a_variable_may_have_the_name_of_the_secret_for_pulling_images() -> None:
    rules = FilterRules(namespace=NAMESPACE, hosts=[HOST], pull_secrets=["kapsa-registry"])
    container = {
        "name": "app",
        "image": "app:1",
        "env": [{"name": "kapsa-registry", "value": "kapsa-registry"}],
        "volumeMounts": [{"name": "kapsa-registry", "mountPath": "/cache"}],
    }
    pod = deployment(containers=[container], volumes=[{"name": "kapsa-registry", "emptyDir": {}}])
    (kept,) = filter_objects([pod], rules)
    assert kept["kind"] == "Deployment"


def test_no_repository_brings_a_secret_with_the_name_of_one_for_pulling_images() -> None:
    rules = FilterRules(namespace=NAMESPACE, hosts=[HOST], pull_secrets=["kapsa-registry"])
    own = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kapsa-registry"}}
    assert any("reserved for the Secret for pulling" in each for each in refusals(own, rules=rules))
