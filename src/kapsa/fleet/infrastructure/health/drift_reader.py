"""The drift of a release: who has changed which of its fields, read from the metadata of its objects alone."""

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from kapsa.fleet.domain.health.drift import DriftReading, FieldDrift, changed_fields
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.charts.scopes import is_crd
from kapsa.fleet.infrastructure.clusters.answers import clean_text
from kapsa.fleet.infrastructure.operations.release_objects import ReleaseObjects, kind_of, read_objects
from kapsa.fleet.infrastructure.preflight.manifest_documents import object_name
from kapsa.runtime import Client, Forbidden, GroupVersionKind, NotFound, UnknownKind

__all__ = ["CompareOwners", "read_drift"]

_HELM = "helm"
_PARALLEL = 8
_MOST_OBJECTS = 500
_MOST_FIELDS = 100

CompareOwners = Callable[[Mapping[str, Any], Any, str], Iterator[tuple[str, str]]]


async def read_drift(
    client: Client,
    release: ReleaseRef,
    now: datetime,
    *,
    kinds: Collection[str] = (),
    compare: CompareOwners = changed_fields,
    most: int = _MOST_FIELDS,
) -> DriftReading:
    """Return the drift of a release, or of its objects of some kinds. CRDs are left out: the fleet applies them.

    `compare` decides what drift is: `changed_fields`, or `template_changes` for a gate. `most` fields are returned.
    """
    installed = await read_objects(client, release)
    if installed is None:
        return DriftReading(now)
    chosen = [each for each in installed.objects if not is_crd(each) and (not kinds or each["kind"] in kinds)]
    slots = asyncio.Semaphore(_PARALLEL)

    async def one(manifest: Mapping[str, Any]) -> list[FieldDrift]:
        async with slots:
            return list(itertools.islice(await _object_drift(client, installed, manifest, compare), most))

    drifts = await asyncio.gather(*(one(each) for each in chosen[:_MOST_OBJECTS]))
    return DriftReading(now, tuple(itertools.islice(itertools.chain.from_iterable(drifts), most)))


async def _object_drift(
    client: Client, installed: ReleaseObjects, manifest: Mapping[str, Any], compare: CompareOwners
) -> Iterable[FieldDrift]:
    kind, name = kind_of(manifest), str(manifest["metadata"].get("name", ""))
    namespace = ""
    try:
        if (await client.discovery.resource(GroupVersionKind.parse(kind))).namespaced:
            namespace = installed.namespace_of(manifest)
        live = await client.get(kind, name, namespace=namespace, metadata_only=True)
    except (UnknownKind, ValueError, Forbidden):
        return []
    except NotFound:
        return [FieldDrift(object_name(manifest, namespace), "", "")]
    changes = compare(manifest, live["metadata"].get("managedFields"), _HELM)
    return (
        FieldDrift(object_name(manifest, namespace), field, clean_text(manager)) for field, manager in changes
    )
