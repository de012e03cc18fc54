"""CRDs on clusters: applied before a chart, and returned to what they were before a rollback."""

import asyncio
import functools
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kapsa.fleet.infrastructure.clusters.answers import clean_text
from kapsa.fleet.infrastructure.operations.crds.crd_plan import (
    CRD,
    CrdPlan,
    earlier_storage,
    plan_crd,
    plan_detachment,
    plan_return,
    plan_storage,
)
from kapsa.fleet.infrastructure.operations.crds.crd_record import KEEP, CrdHandover, read_record
from kapsa.fleet.infrastructure.operations.crds.storage_migration import StorageMigration
from kapsa.fleet.infrastructure.operations.leased_clients import LeasedClients
from kapsa.fleet.infrastructure.operations.release_objects import (
    ReleaseObjects,
    owned_services,
    read_objects,
    scoped_namespace,
)
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterNotReady, ClusterRefused, CrdRequest
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard
from kapsa.fleet.orchestrator.ports.operators import OperatorRepository
from kapsa.fleet.orchestrator.ports.transactions import Transactions
from kapsa.fleet.orchestrator.rollout.approved_manifest import crds_in, services_in
from kapsa.runtime import Client, Conflict, Invalid, NotFound

__all__ = ["CrdChanges", "patch_crd", "write_crd"]

_ATTEMPTS = 5
_ESTABLISHED_SECONDS = 15.0
_POLL_SECONDS = 0.1
Services = frozenset[tuple[str, str]]


class CrdChanges:
    """The CRDs of charts, applied to clusters and taken back."""

    def __init__(
        self,
        access: LeasedClients,
        transactions: Transactions,
        operators: OperatorRepository,
        migration: StorageMigration,
    ) -> None:
        self._access = access
        self._transactions = transactions
        self._operators = operators
        self._migration = migration

    async def apply(self, request: CrdRequest, guard: LeaseGuard) -> None:
        """Apply the CRDs of a chart: all in a dry run, then each; wait until all are served.

        Raises `ClusterRefused` if the API server rejects one, and `ClusterNotReady` if one is not served in time.
        """
        definitions = await self._definitions(request)
        details = {"chart": request.chart_digest, "release": str(request.next), "crds": sorted(definitions)}
        async with self._access.write(request.cluster_id, guard, "cluster.apply_crds", details) as client:
            live = await read_objects(client, request.live)
            plans = [await _planned(client, request, each) for each in definitions.values()]
            for plan in plans:
                await write_crd(client, plan.body, plan.live, dry_run=True)
            for plan in plans:
                await self._apply(client, plan)
            await _keep(client, live, definitions)
            if request.live == request.next:
                await _detach_others(client, request, live, definitions)
            for name in definitions:
                await _await_established(client, name)

    async def revert(
        self, cluster_id: uuid.UUID, deployment_id: uuid.UUID, guard: LeaseGuard
    ) -> tuple[str, ...]:
        """Return the CRDs that a deployment has changed to the conversion and storage version that they had before.

        Return one sentence for each CRD with resources that could not be converted back.
        """
        deployment = str(deployment_id)
        details = {"deployment": deployment}
        async with self._access.write(cluster_id, guard, "cluster.revert_crds", details) as client:
            names, reported = await _changed_by(client, deployment)
            # The conversion goes with the chart: what only it can convert is converted first.
            left_behind = await self._convert_back(client, names, deployment)
            for name in names:
                earlier, sentence = await self._earlier(client, name), left_behind.get(name, "")
                await patch_crd(client, name, functools.partial(_return, deployment, earlier, sentence))
        return (*reported, *left_behind.values())

    async def return_storage(
        self, cluster_id: uuid.UUID, deployment_id: uuid.UUID, guard: LeaseGuard
    ) -> tuple[str, ...]:
        """Store the resources of a deployment's CRDs in the version before it, by the conversion that still runs.

        Return one sentence for each CRD with resources that could not be converted back.
        """
        deployment = str(deployment_id)
        details = {"deployment": deployment}
        async with self._access.write(cluster_id, guard, "cluster.return_storage", details) as client:
            names, _ = await _changed_by(client, deployment)
            return tuple((await self._convert_back(client, names, deployment)).values())

    async def _convert_back(self, client: Client, names: Iterable[str], deployment: str) -> dict[str, str]:
        """Write resources in the version before, and return a sentence for each CRD with some that stay behind."""
        left_behind: dict[str, str] = {}
        for name in names:
            storage = earlier_storage(await client.get(CRD, name), deployment)
            if storage:
                await patch_crd(client, name, functools.partial(plan_storage, storage=storage))
                left_behind[name] = clean_text(await self._migration.restore(client, name))
        return {name: sentence for name, sentence in left_behind.items() if sentence}

    async def _definitions(self, request: CrdRequest) -> dict[str, Mapping[str, Any]]:
        """Return the CRDs of a chart by name. Those in templates are as they were approved for this cluster."""
        stored = await self._stored(request.chart_digest)
        definitions = {name: each for name, (location, each) in stored.items() if location != "templates"}
        rendered = await asyncio.to_thread(crds_in, request.manifest)
        return definitions | {str(each["metadata"]["name"]): each for each in rendered}

    async def _stored(self, chart_digest: str) -> dict[str, tuple[str, Mapping[str, Any]]]:
        async with self._transactions.transaction() as connection:
            crds = await self._operators.crds_of_chart(connection, chart_digest)
        return {each.name: (each.location, each.definition) for each in crds}

    async def _apply(self, client: Client, plan: CrdPlan) -> None:
        if plan.blocked_by:
            # Served by the controller that runs: the new one is not there yet.
            await self._migration.run(client, plan.name, plan.blocked_by)
        await write_crd(client, plan.final_body(), plan.live)

    async def _earlier(self, client: Client, name: str) -> Mapping[str, Any] | None:
        """Return the CRD of the chart before, if the fleet deployed it."""
        record = read_record(await client.get(CRD, name, metadata_only=True))
        if record is None or record.base is None or not record.base.chart:
            return None
        return (await self._stored(record.base.chart)).get(name, ("", None))[1]


async def patch_crd(
    client: Client, name: str, plan: Callable[[dict[str, Any]], dict[str, Any] | None]
) -> None:
    """Change a CRD by a patch that is planned from its present state, again if it changes meanwhile."""
    for attempt in range(_ATTEMPTS):
        patch = plan(await client.get(CRD, name))
        if patch is None:
            return
        try:
            await client.patch(CRD, name, patch)
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


async def _planned(client: Client, request: CrdRequest, definition: Mapping[str, Any]) -> CrdPlan:
    live = await _get(client, str(definition["metadata"]["name"]))
    return plan_crd(definition, live, _change(request))


def _change(request: CrdRequest) -> CrdHandover:
    deployment = str(request.deployment_id)
    return CrdHandover(request.live, request.next, request.chart_digest, deployment, request.base_chart)


async def _get(client: Client, name: str) -> dict[str, Any] | None:
    try:
        return await client.get(CRD, name)
    except NotFound:
        return None


async def write_crd(
    client: Client, body: dict[str, Any], live: Mapping[str, Any] | None, *, dry_run: bool = False
) -> None:
    """Apply a CRD. A webhook of another field manager goes away by a patch alone, which names it."""
    gone = _webhook(live) and not _webhook(body)
    try:
        if gone:
            conversion = {**body["spec"]["conversion"], "webhook": None}
            patch = {"metadata": body["metadata"], "spec": {**body["spec"], "conversion": conversion}}
            await client.patch(CRD, body["metadata"]["name"], patch, dry_run=dry_run)
        else:
            await client.apply(body, force=True, dry_run=dry_run)
    except Invalid as error:
        message = f"the API server rejects the CRD {body['metadata']['name']}: {error}"
        raise ClusterRefused(message) from error


def _webhook(crd: Mapping[str, Any] | None) -> Any:
    return (((crd or {}).get("spec") or {}).get("conversion") or {}).get("webhook")


async def _keep(client: Client, live: ReleaseObjects | None, applied: Iterable[str]) -> None:
    """Mark the other CRDs of the live release, so that Helm deletes none that the next revision lacks."""
    names = (
        {str(each["metadata"]["name"]) for each in live.named("CustomResourceDefinition")} if live else set()
    )
    for name in sorted(names - set(applied)):
        crd = await _get(client, name)
        annotations = (crd or {"metadata": {}})["metadata"].get("annotations") or {}
        if crd is not None and not KEEP.items() <= annotations.items():
            await client.patch(CRD, name, {"metadata": {"annotations": KEEP}})


async def _detach_others(
    client: Client, request: CrdRequest, live: ReleaseObjects | None, applied: Iterable[str]
) -> None:
    """End the conversions of CRDs that the next revision lacks, if it lacks their Service, too."""
    if live is None:
        return
    present = await owned_services(client, live)
    following = await asyncio.to_thread(services_in, request.manifest)
    gone = present - {(scoped_namespace(each, request.next), each["metadata"]["name"]) for each in following}
    await detach(client, gone, set(applied), _change(request))


async def detach(client: Client, services: Services, applied: set[str], change: CrdHandover) -> None:
    """End the conversions that these Services serve, except for those of CRDs that were applied."""
    if not services:
        return
    async for page in client.pages(CRD, limit=50):
        for crd in page.items:
            name = str(crd["metadata"]["name"])
            if name not in applied and _conversion_service(crd) in services:
                await patch_crd(client, name, lambda live: plan_detachment(live, change))


def _conversion_service(crd: Mapping[str, Any]) -> tuple[str, str] | None:
    service = ((_webhook(crd) or {}).get("clientConfig") or {}).get("service")
    return (str(service.get("namespace")), str(service.get("name"))) if service else None


def _return(
    deployment: str, earlier: Mapping[str, Any] | None, left_behind: str, live: dict[str, Any]
) -> dict[str, Any] | None:
    record = read_record(live)
    if record is None or record.current.deployment != deployment:
        return None
    return plan_return(live, earlier, left_behind)


async def _changed_by(client: Client, deployment: str) -> tuple[list[str], list[str]]:
    """Return the names of the CRDs that a deployment was the last to change, and what its rollback has left behind.

    An earlier attempt of that rollback has taken those other CRDs back already.
    """
    names: list[str] = []
    left_behind: list[str] = []
    async for page in client.pages(CRD, limit=500, metadata_only=True):
        for each in page.items:
            record = read_record(each)
            if record is not None and record.current.deployment == deployment:
                names.append(str(each["metadata"]["name"]))
            elif record is not None and record.left_behind(deployment):
                left_behind.append(clean_text(record.left_behind(deployment)))
    return names, left_behind


async def _await_established(client: Client, name: str) -> None:
    """Wait until the API server serves a CRD: the chart may contain resources of its kind."""
    deadline = time.monotonic() + _ESTABLISHED_SECONDS
    while True:
        crd = await client.get(CRD, name)
        conditions = {each["type"]: each for each in (crd.get("status") or {}).get("conditions") or ()}
        names = conditions.get("NamesAccepted") or {}
        if names.get("status") == "False":
            raise ClusterRefused(f"the names of the CRD {name} are taken: {names.get('message', '')}")
        if (conditions.get("Established") or {}).get("status") == "True":
            return
        if time.monotonic() > deadline:
            raise ClusterNotReady(f"the API server does not serve the CRD {name} yet")
        await asyncio.sleep(_POLL_SECONDS)
