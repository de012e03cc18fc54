"""Changes that are called blocked are those that the API server refuses, and no others."""

from __future__ import annotations

from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.crds import compare_crds, parse_crd
from kapsa.runtime import Client
from tests.eventually import eventually
from tests.fleet.domain.crds.resources import Raw, crd, object_of, resource, version
from tests.fleet.served_kinds import accepted, served

DEFINITIONS = "apiextensions.k8s.io/v1/CustomResourceDefinition"
NAME = "widgets.example.com"
OLD = crd(
    version("v1alpha1", storage=False),
    version("v1beta1"),
    version("v1", storage=False, subresources={"status": {}}),
)


def changed(**spec: object) -> Raw:
    return {**OLD, "spec": {**OLD["spec"], **spec}}


CHANGES = {
    "scope": changed(scope="Cluster"),
    "kind": changed(names={**OLD["spec"]["names"], "kind": "Gadget"}),
    "group": changed(group="example.org"),
    "plural": changed(names={**OLD["spec"]["names"], "plural": "gadgets"}),
    "singular": changed(names={**OLD["spec"]["names"], "singular": "gadget"}),
    "a stored version removed": changed(versions=[version("v1alpha1", storage=False), version("v1")]),
    "an old version removed": changed(versions=[version("v1beta1"), version("v1", storage=False)]),
    "a version unserved": changed(
        versions=[
            version("v1alpha1", storage=False, served=False),
            version("v1beta1"),
            version("v1", storage=False),
        ]
    ),
    "storage moved": changed(
        versions=[version("v1alpha1", storage=False), version("v1beta1", storage=False), version("v1")]
    ),
    "a field removed": changed(
        versions=[version("v1beta1", resource(object_of({}))), version("v1", storage=False)]
    ),
}


async def test_a_change_is_blocked_exactly_if_the_api_server_refuses_it(cluster: DevCluster) -> None:
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        await client.create(OLD)
        await eventually(lambda: served(client, "example.com/v1/Widget"), bool, "the kind to be served")
        present = await client.get(DEFINITIONS, NAME)
        blocked, refused = {}, {}
        for name, new in CHANGES.items():
            blocked[name] = compare_crds(parse_crd(present), parse_crd(new)).blocked
            body = {**present, "spec": new["spec"]}
            refused[name] = not await accepted(client.replace(body, dry_run=True))
    assert blocked == refused
    assert sum(refused.values()) == 5
