"""Custom resources in several versions: by name alone, or by asking the definition's conversion webhook.

A version other than the stored one has a converter. Reading is synchronous everywhere else in the server, so what
a webhook must convert is prepared first (`prepare`) and kept by revision; `read` then only looks it up.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kapsa.devcluster.embedded.admission.webhook_client import CallError, WebhookClient
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.storage.store import Stored
from kapsa.devcluster.wire.status_errors import StatusError
from kapsa.schemas.pruning import prune

__all__ = ["PruningConverter", "converter_of"]

Object = dict[str, Any]
_REVIEW = "apiextensions.k8s.io/v1"
_TIMEOUT = 30.0
_KEPT = 20_000
"""How many converted objects are kept; older ones are asked for again."""
_MAY_CHANGE = ("labels", "annotations")


def converter_of(
    info: ResourceInfo, client: WebhookClient, new_uid: Callable[[], str]
) -> PruningConverter | None:
    """The converter between a served version and the stored one; None when only their names differ."""
    if info.definition is None:
        return None
    conversion = info.definition["spec"].get("conversion") or {}
    is_stored = info.version == info.storage_version
    if conversion.get("strategy") == "Webhook":
        # Objects may still be stored in a version that was the storage version before.
        earlier = len((info.definition.get("status") or {}).get("storedVersions") or ()) > 1
        if is_stored and not earlier:
            return None
        return _WebhookConverter(info, conversion["webhook"]["clientConfig"], client, new_uid)
    if is_stored:
        return None
    schemas = {version["name"]: version.get("schema") for version in info.definition["spec"]["versions"]}
    return PruningConverter(info) if schemas[info.version] != schemas[info.storage_version] else None


class PruningConverter:
    """The strategy None: versions differ by name, and by the fields their schemas have."""

    def __init__(self, info: ResourceInfo) -> None:
        self.info = info

    async def prepare(self, objects: Iterable[Stored]) -> None:
        """Make sure that these objects can be read."""

    def read(self, stored: Stored) -> Object:
        """A stored object in this version, as a copy of its own."""
        obj = decode(stored)
        obj["apiVersion"] = self.info.api_version
        return prune(self.info.schema, obj)

    async def to_storage(self, obj: Object) -> Object:
        """An object of this version in the stored one."""
        return {**obj, "apiVersion": self.info.storage_api_version}

    async def convert(self, obj: Object, target: ResourceInfo) -> Object:
        """An object of any version of the definition in another one."""
        return prune(target.schema, {**obj, "apiVersion": target.api_version})


class _WebhookConverter(PruningConverter):
    """The strategy Webhook: the definition's own service converts."""

    def __init__(
        self, info: ResourceInfo, config: Object, client: WebhookClient, new_uid: Callable[[], str]
    ) -> None:
        super().__init__(info)
        self._config = config
        self._client = client
        self._new_uid = new_uid
        self._known: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    async def prepare(self, objects: Iterable[Stored]) -> None:
        wanted = [stored for stored in objects if (stored.uid, stored.revision) not in self._known]
        if not wanted:
            return
        target = self.info.api_version
        found = [decode(stored) for stored in wanted]
        others = [obj for obj in found if obj["apiVersion"] != target]
        converted = iter(await self._convert(others, target) if others else ())
        for stored, obj in zip(wanted, found, strict=True):
            shown = obj if obj["apiVersion"] == target else prune(self.info.schema, next(converted))
            self._known[stored.uid, stored.revision] = msgspec.json.encode(shown)
        while len(self._known) > max(_KEPT, len(wanted)):
            self._known.popitem(last=False)

    def read(self, stored: Stored) -> Object:
        body = self._known.get((stored.uid, stored.revision))
        if body is None:
            raise RuntimeError(f"{stored.key} at revision {stored.revision} was read before it was converted")
        obj: Object = msgspec.json.decode(body)
        return obj

    async def to_storage(self, obj: Object) -> Object:
        if self.info.version == self.info.storage_version:
            return obj
        [converted] = await self._convert(
            [{**obj, "apiVersion": self.info.api_version}], self.info.storage_api_version
        )
        return converted

    async def convert(self, obj: Object, target: ResourceInfo) -> Object:
        [converted] = await self._convert([obj], target.api_version)
        return prune(target.schema, converted)

    async def _convert(self, objects: list[Object], target: str) -> list[Object]:
        uid = self._new_uid()
        request = {"uid": uid, "desiredAPIVersion": target, "objects": objects}
        review = {"kind": "ConversionReview", "apiVersion": _REVIEW, "request": request}
        group, _, version = objects[0]["apiVersion"].rpartition("/")
        about = f"conversion webhook for {group}/{version}, Kind={self.info.kind}"
        try:
            answer = await self._client.post(self._config, msgspec.json.encode(review), timeout=_TIMEOUT)
            converted = _converted(answer, uid)
        except CallError as error:
            raise StatusError(500, "", f"{about} failed: {error}") from error
        if len(converted) != len(objects):
            text = f"{about} returned {len(converted)} objects, expected {len(objects)}"
            raise StatusError(500, "", text)
        return [
            _accepted(before, after, target, about, index)
            for index, (before, after) in enumerate(zip(objects, converted, strict=True))
        ]


def _converted(answer: Object, uid: str) -> list[Object]:
    """The converted objects of a review's answer."""
    kind = f"{answer.get('apiVersion', '')}, Kind={answer.get('kind', '')}"
    if kind != f"{_REVIEW}, Kind=ConversionReview":
        raise CallError(f"expected webhook response of {_REVIEW}, Kind=ConversionReview, got {kind}")
    response = answer.get("response")
    if not response:
        raise CallError("no response provided")
    if response.get("uid") != uid:
        raise CallError(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    result = response.get("result") or {}
    if result.get("status") != "Success":
        text = result.get("message")
        raise CallError(text or f"response.result.status was '{result.get('status', '')}', not 'Success'")
    found: list[Object] = response.get("convertedObjects") or []
    return found


def _accepted(before: Object, after: Object, target: str, about: str, index: int) -> Object:
    """A converted object with the metadata it had: a webhook may change its labels and annotations only."""
    wrong = f"{about} returned invalid converted object at index {index}"
    if after.get("apiVersion") != target:
        text = f"{wrong}: invalid groupVersion (expected {target}, received {after.get('apiVersion')})"
        raise StatusError(500, "", text)
    if after.get("kind") != before["kind"]:
        text = f"{wrong}: invalid kind (expected {before['kind']}, received {after.get('kind')})"
        raise StatusError(500, "", text)
    metadata = after.get("metadata") or {}
    for key, name in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        then, now = before["metadata"].get(key) or "", metadata.get(key) or ""
        if then != now:
            text = f"{about} returned invalid metadata in object at index {index}: must have the same {name}: {then} != {now}"
            raise StatusError(500, "", text)
    kept = {key: value for key, value in before["metadata"].items() if key not in _MAY_CHANGE}
    own = {key: metadata[key] for key in _MAY_CHANGE if metadata.get(key)}
    return {**after, "metadata": {**kept, **own}}
