"""Routes of clusters."""

from typing import Annotated

from litestar import Controller, Response, delete, get, patch, post
from litestar.params import JSONBody, QueryParameter

from kapsa.fleet.api.access import admin_write, read, write
from kapsa.fleet.api.parameters import IfMatch, ObjectName, PageCursor, PageLimit
from kapsa.fleet.api.requests import ApiRequest, etag, expected_version
from kapsa.fleet.api.views import DeletionResult
from kapsa.fleet.domain.errors import InvalidField, InvalidInput
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment, ClusterHealth, ManagedCluster
from kapsa.fleet.domain.registry.inventory import ClusterInventory
from kapsa.fleet.orchestrator.cursors import DEFAULT_LIMIT
from kapsa.fleet.orchestrator.operator_health import OperatorOnCluster
from kapsa.fleet.orchestrator.pages import Page
from kapsa.fleet.orchestrator.ports.clusters import ClusterFilter
from kapsa.fleet.orchestrator.ports.requests.rate_limits import CREATE_CLUSTER, LIST_CLUSTERS, READ_INVENTORY
from kapsa.fleet.orchestrator.registry.adoptions import AdoptionPlan, AdoptRelease
from kapsa.fleet.orchestrator.registry.clusters import ClusterResult, RegisterCluster, UpdateCluster

__all__ = ["ClusterController"]

_KUBECONFIG_BODY = 384 * 1024
"""A kubeconfig of 256 KB as JSON text, and the other fields."""

Environment = Annotated[
    ClusterEnvironment | None, QueryParameter(description="Only clusters of this environment.")
]
NamePrefix = Annotated[
    str, QueryParameter(max_length=63, description="Only clusters whose names start with this.")
]
Labels = Annotated[
    str,
    QueryParameter(
        max_length=1024,
        description="Only clusters with these labels: `region=eu,tier=gold`.",
        schema_extra={"pattern": "^([^=,\\x00]+=[^,\\x00]*(,[^=,\\x00]+=[^,\\x00]*)*)?$"},
    ),
]
Refresh = Annotated[bool, QueryParameter(description="Take the inventory again, now.")]


class ClusterController(Controller):
    """Routes of clusters."""

    path = "/api/v1/clusters"

    @post(
        "/",
        opt={**admin_write(limit=CREATE_CLUSTER), "etag": True},
        request_max_body_size=_KUBECONFIG_BODY,
        operation_id="registerCluster",
    )
    async def register(self, request: ApiRequest, data: JSONBody[RegisterCluster]) -> Response[ClusterResult]:
        """Register a cluster by its kubeconfig, which is never returned.

        The cluster is contacted first: its version, health and inventory are read, and an account for the manager
        is made there.
        """
        result = await request.use_cases.clusters.register(request.principal, data)
        return Response(
            result,
            headers={
                "Location": f"/api/v1/clusters/{result.cluster.name}",
                "ETag": etag(result.cluster.version),
            },
        )

    @get("/", opt=read(limit=LIST_CLUSTERS), operation_id="listClusters")
    async def list_all(
        self,
        request: ApiRequest,
        cursor: PageCursor = "",
        limit: PageLimit = DEFAULT_LIMIT,
        prefix: NamePrefix = "",
        environment: Environment = None,
        labels: Labels = "",
    ) -> Page[ManagedCluster]:
        """List clusters in the order of their names."""
        chosen = ClusterFilter(environment=environment, labels=_labels(labels), prefix=prefix)
        return await request.use_cases.clusters.page(
            request.principal, cursor=cursor, limit=limit, chosen=chosen
        )

    @get("/{name:str}", opt={**read(), "etag": True}, operation_id="getCluster")
    async def show(self, request: ApiRequest, name: ObjectName) -> Response[ManagedCluster]:
        """Get a cluster."""
        cluster = await request.use_cases.clusters.get(request.principal, name)
        return Response(cluster, headers={"ETag": etag(cluster.version)})

    @patch(
        "/{name:str}",
        opt={**admin_write(), "etag": True},
        request_max_body_size=_KUBECONFIG_BODY,
        operation_id="updateCluster",
    )
    async def update(
        self, request: ApiRequest, name: ObjectName, data: JSONBody[UpdateCluster], if_match: IfMatch = None
    ) -> Response[ClusterResult]:
        """Change a cluster, or its credential, or erase its uploaded kubeconfig."""
        result = await request.use_cases.clusters.update(
            request.principal, name, data, expected=expected_version(if_match)
        )
        return Response(result, headers={"ETag": etag(result.cluster.version)})

    @delete("/{name:str}", opt=admin_write(), status_code=200, operation_id="deleteCluster")
    async def remove(self, request: ApiRequest, name: ObjectName, if_match: IfMatch = None) -> DeletionResult:
        """Delete a cluster, its credentials, and what identifies it. Refused while a deployment uses it."""
        notices = await request.use_cases.clusters.delete(
            request.principal, name, expected=expected_version(if_match)
        )
        return DeletionResult(notices)

    @get("/{name:str}/health", opt=read(), operation_id="getClusterHealth")
    async def health(self, request: ApiRequest, name: ObjectName) -> ClusterHealth:
        """Get the health of a cluster, as the last check saw it, at most about a minute ago."""
        return await request.use_cases.clusters.health(request.principal, name)

    @get(
        "/{name:str}/releases",
        opt={**read(limit=READ_INVENTORY), "statuses": (409,)},
        operation_id="getClusterReleases",
    )
    async def releases(
        self, request: ApiRequest, name: ObjectName, refresh: Refresh = False
    ) -> ClusterInventory:
        """Get the inventory of a cluster: Helm releases and CRDs, and the other programs that manage them."""
        return await request.use_cases.clusters.releases(request.principal, name, refresh=refresh)

    @post("/{name:str}/adopt", opt=write(), status_code=200, operation_id="adoptRelease")
    async def adopt(
        self, request: ApiRequest, name: ObjectName, data: JSONBody[AdoptRelease]
    ) -> AdoptionPlan:
        """Adopt the release of an operator that was there before, without a change to the cluster."""
        return await request.use_cases.clusters.adopt(request.principal, name, data)

    @get("/{cluster:str}/operators/{name:str}/health", opt=read(), operation_id="getOperatorHealthOnCluster")
    async def operator_health(
        self, request: ApiRequest, cluster: ObjectName, name: ObjectName
    ) -> OperatorOnCluster:
        """Get the health of an operator on one cluster."""
        return await request.use_cases.health.on_cluster(request.principal, cluster, name)


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key:
            message = "must be `key=value` pairs with commas between them"
            raise InvalidInput(f"labels {message}", InvalidField("/labels", message))
        labels[key] = value
    return labels
