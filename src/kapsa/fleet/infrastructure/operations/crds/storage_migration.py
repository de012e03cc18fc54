"""Storage migration: custom resources are written again in the storage version, so that an old version can go.

The cluster does it by itself where it serves `storagemigration.k8s.io`. Elsewhere the resources are patched page by
page with an empty patch. The position is an annotation of the CRD, so that an interrupted migration goes on there.

The way back is the same act for another reason: a conversion webhook that is about to go must first convert what is
stored in a version that nothing else converts.
"""

import asyncio
import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from kapsa.fleet.infrastructure.operations.crds.crd_plan import CRD
from kapsa.fleet.infrastructure.operations.crds.superset import storage_version
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterNotReady, ClusterRefused
from kapsa.runtime import (
    AlreadyExists,
    ApiError,
    Client,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    UnknownKind,
)

__all__ = ["POSITION", "StorageMigration"]

POSITION = "fleet.kapsa-project.io/storage-migration"
_SERVED_BY_CLUSTER = "storagemigration.k8s.io/v1beta1/StorageVersionMigration"
_PARALLEL = 4
_RESTARTS = 10
_WEBHOOK_FAILS = ("conversion webhook for", "failed calling webhook")
_SHOWN = 300
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class MigrationPosition(msgspec.Struct, frozen=True):
    """The last resource that is stored in the storage version. Lists are in the order of namespace and name."""

    storage: str
    uid: str
    """The UID of the CRD: one that was made again begins again."""
    after: str = ""
    count: int = 0


class StorageMigration:
    """The migration of all resources of a CRD to its storage version."""

    def __init__(
        self,
        *,
        page_size: int = 500,
        poll_seconds: float = 1.0,
        polls: int = 20,
        settle_seconds: float = 5.0,
        patience_seconds: float = 60.0,
        limit_seconds: float = 1200.0,
    ) -> None:
        """Wait `settle_seconds` for all API servers of a cluster to see a new storage version, as they do themselves.

        The way back ends `patience_seconds` after the last resource that could be written, and after
        `limit_seconds` in any case: a webhook that fails or is slow must not keep a bad version in place.
        """
        self._page_size = page_size
        self._poll_seconds = poll_seconds
        self._polls = polls
        self._settle_seconds = settle_seconds
        self._patience_seconds = patience_seconds
        self._limit_seconds = limit_seconds

    async def run(self, client: Client, name: str, leaving: Collection[str]) -> None:
        """Migrate the resources of a CRD, and remove the versions that it leaves from `storedVersions`.

        Raises `ClusterNotReady` while the cluster's own migration runs, and `ClusterRefused` if a resource cannot
        be written.
        """
        crd = await client.get(CRD, name)
        storage = storage_version(crd["spec"])
        if storage in leaving:
            raise ClusterRefused(
                f"version {storage} of the CRD {name} is its storage version, and cannot be dropped"
            )
        if not await self._by_cluster(client, crd):
            await self._by_pages(client, crd)
        await _settle(client, name, storage, str(crd["metadata"]["uid"]))

    async def restore(self, client: Client, name: str) -> str:
        """Write the resources of a CRD in its storage version, which was changed just now, as far as they convert.

        Return one sentence about those that stay behind; empty if none does. Nothing keeps a bad version in place.
        """
        await asyncio.sleep(self._settle_seconds)
        crd = await client.get(CRD, name)
        storage = storage_version(crd["spec"])
        attempt = WriteBack(client, crd, self._patience_seconds, self._limit_seconds)
        await attempt.run(self._page_size)
        if not attempt.failed:
            await _settle(client, name, storage, str(crd["metadata"]["uid"]))
            return ""
        return (
            f"{attempt.failed} or more resources of {name} are stored in a version that cannot be converted to "
            f"{storage} any more, and lack fields when they are read: {attempt.first[:_SHOWN]}"
        )

    async def _by_cluster(self, client: Client, crd: Mapping[str, Any]) -> bool:
        """Let the cluster migrate. Return False if it has no such API."""
        migration = _migration(crd)
        name = migration["metadata"]["name"]
        try:
            await client.create(migration)
        except AlreadyExists:
            pass
        except (UnknownKind, NotFound, Forbidden):
            return False
        for _ in range(self._polls):
            state = _outcome(await client.get(_SERVED_BY_CLUSTER, name))
            if state == "Succeeded":
                await client.delete(_SERVED_BY_CLUSTER, name, missing_ok=True)
                return True
            if state == "Failed":
                # Page by page it becomes visible which resource cannot be written.
                await client.delete(_SERVED_BY_CLUSTER, name, missing_ok=True)
                return False
            await asyncio.sleep(self._poll_seconds)
        raise ClusterNotReady(f"the cluster is still migrating the resources of {crd['metadata']['name']}")

    async def _by_pages(self, client: Client, crd: Mapping[str, Any]) -> None:
        position = _position(crd)
        for _ in range(_RESTARTS):
            before = position
            try:
                async for page in client.pages(_kind(crd), limit=self._page_size, metadata_only=True):
                    position = await _migrate(client, crd, page.items, position)
            except Expired:
                # The token of the list is too old. What has been migrated is skipped in the next list.
                if position == before:
                    raise
            else:
                return
        raise ClusterNotReady(f"{crd['metadata']['name']}: {position.count} resources are migrated so far")


class WriteBack:
    """One attempt to write every resource of a CRD again, as far as webhooks let it.

    What fails because of a webhook is tried again with back-off, page by page. After the first page that runs out
    of patience, the rest is tried once.
    """

    def __init__(self, client: Client, crd: Mapping[str, Any], patience: float, limit: float) -> None:
        self._client = client
        self._crd = crd
        self._patience = patience
        self._until = time.monotonic() + patience
        self._end = time.monotonic() + limit
        self._retries = True
        self._after = ""
        self.failed = 0
        self.first = ""
        """The reason of the first resource that could not be written."""

    async def run(self, page_size: int) -> None:
        """Write all resources. Raises what goes wrong with the cluster itself."""
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._pages(page_size)
            except Expired as error:
                if time.monotonic() >= self._end:
                    name = self._crd["metadata"]["name"]
                    raise ClusterNotReady(f"the resources of {name} are not all written back yet") from error
            except ApiError as error:
                if not _by_webhook(error):
                    raise
                if self._over:
                    return self._fail(str(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                return None

    @property
    def _over(self) -> bool:
        return time.monotonic() >= min(self._until, self._end)

    async def _pages(self, page_size: int) -> None:
        async for page in self._client.pages(_kind(self._crd), limit=page_size, metadata_only=True):
            left = [each for each in page.items if _key(each) > self._after]
            if left and self._over:
                return self._fail("its turn did not come: webhooks fail, or are too slow")
            await self._page(left)
        return None

    async def _page(self, items: Sequence[dict[str, Any]]) -> None:
        pause = _FIRST_PAUSE
        left = await self._write(items)
        while left and self._retries and not self._over:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            left = await self._write([item for item, _ in left])
        for _, reason in left:
            self._fail(reason)
        if left and self._retries:
            self._retries = False
            self._until = time.monotonic() + self._patience
        self._after = max(map(_key, items), default=self._after)

    async def _write(self, items: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
        """Write resources once. Return those that a webhook kept from being written, and why."""
        left: list[tuple[dict[str, Any], str]] = []
        for start in range(0, len(items), _PARALLEL):
            batch = items[start : start + _PARALLEL]
            if start and self._over:
                return left + [(each, "its turn did not come") for each in items[start:]]
            writes = [_rewrite(self._client, _kind(self._crd), each["metadata"]) for each in batch]
            for item, outcome in zip(
                batch, await asyncio.gather(*writes, return_exceptions=True), strict=True
            ):
                if isinstance(outcome, ClusterRefused):
                    self._fail(str(outcome))
                elif isinstance(outcome, ApiError) and _by_webhook(outcome):
                    left.append((item, str(outcome)))
                elif isinstance(outcome, BaseException):
                    raise outcome
                else:
                    self._until = time.monotonic() + self._patience
        return left

    def _fail(self, reason: str) -> None:
        self.failed += 1
        self.first = self.first or reason


def _by_webhook(error: ApiError) -> bool:
    return any(text in str(error) for text in _WEBHOOK_FAILS)


async def _migrate(
    client: Client, crd: Mapping[str, Any], items: Collection[dict[str, Any]], position: MigrationPosition
) -> MigrationPosition:
    """Write a page again, and record the position after it."""
    left = [each for each in items if _key(each) > position.after]
    if not left:
        return position
    for start in range(0, len(left), _PARALLEL):
        batch = [_rewrite(client, _kind(crd), each["metadata"]) for each in left[start : start + _PARALLEL]]
        # All of a batch end before an error is raised: no write goes on behind the caller's back.
        for outcome in await asyncio.gather(*batch, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
    after = msgspec.structs.replace(position, after=max(map(_key, left)), count=position.count + len(left))
    await _record(client, str(crd["metadata"]["name"]), after)
    return after


async def _rewrite(client: Client, kind: str, metadata: Mapping[str, Any]) -> None:
    """Store a resource again, unchanged. One that was changed or deleted since the list needs nothing."""
    name, namespace = str(metadata["name"]), str(metadata.get("namespace", ""))
    patch = {"metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}}
    try:
        await client.patch(kind, name, patch, namespace=namespace)
    except (Conflict, NotFound):
        return
    except (Invalid, Forbidden) as error:
        where = f"{namespace}/{name}" if namespace else name
        message = f"{kind.rpartition('/')[2]} {where} cannot be stored in the new version: {error}; repair or delete it"
        raise ClusterRefused(message) from error


async def _record(client: Client, name: str, position: MigrationPosition) -> None:
    text = msgspec.json.encode(position).decode()
    await client.patch(CRD, name, {"metadata": {"annotations": {POSITION: text}}})


async def _settle(client: Client, name: str, storage: str, uid: str) -> None:
    """Write that all resources are stored in one version, unless the CRD was changed meanwhile."""
    crd = await client.get(CRD, name)
    if (storage_version(crd["spec"]), crd["metadata"]["uid"]) != (storage, uid):
        raise ClusterNotReady(f"the storage version of the CRD {name} was changed during its migration")
    version = crd["metadata"]["resourceVersion"]
    status = {"metadata": {"resourceVersion": version}, "status": {"storedVersions": [storage]}}
    try:
        await client.patch(CRD, name, status, subresource="status")
    except Conflict as error:
        raise ClusterNotReady(f"the CRD {name} was changed during its migration") from error
    await client.patch(CRD, name, {"metadata": {"annotations": {POSITION: None}}})


def _position(crd: Mapping[str, Any]) -> MigrationPosition:
    """Return the recorded position, or the start if it is of another storage version or another CRD."""
    start = MigrationPosition(storage_version(crd["spec"]), str(crd["metadata"]["uid"]))
    text = (crd["metadata"].get("annotations") or {}).get(POSITION, "")
    try:
        recorded = msgspec.json.decode(text, type=MigrationPosition)
    except msgspec.DecodeError:
        return start
    return recorded if (recorded.storage, recorded.uid) == (start.storage, start.uid) else start


def _migration(crd: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cluster's own migration, named after what it does: a repetition names the same."""
    spec, metadata = crd["spec"], crd["metadata"]
    stored = "+".join((crd.get("status") or {}).get("storedVersions") or ())
    identity = f"{metadata['uid']} {storage_version(spec)} {stored}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return {
        "apiVersion": _SERVED_BY_CLUSTER.rpartition("/")[0],
        "kind": "StorageVersionMigration",
        "metadata": {"name": f"kapsa-fleet-{digest}"},
        "spec": {"resource": {"group": spec["group"], "resource": spec["names"]["plural"]}},
    }


def _outcome(migration: Mapping[str, Any]) -> str:
    conditions = (migration.get("status") or {}).get("conditions") or ()
    ended = [each["type"] for each in conditions if each.get("status") == "True"]
    return next((each for each in ("Succeeded", "Failed") if each in ended), "")


def _kind(crd: Mapping[str, Any]) -> str:
    """Return a kind through which all resources can be reached: the storage version, or another that is served."""
    spec = crd["spec"]
    served = [each["name"] for each in spec["versions"] if each.get("served")]
    if not served:
        raise ClusterRefused(
            f"the CRD {crd['metadata']['name']} serves no version: its resources cannot be migrated"
        )
    version = storage_version(spec) if storage_version(spec) in served else served[0]
    return f"{spec['group']}/{version}/{spec['names']['kind']}"


def _key(item: Mapping[str, Any]) -> str:
    metadata = item["metadata"]
    namespace = metadata.get("namespace", "")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
