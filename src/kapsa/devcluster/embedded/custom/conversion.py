"""Conversion between the versions of a custom resource, by pruning or by the definition's conversion webhook.

A version other than the stored one has a converter. Reads are synchronous, so `prepare` calls the webhook in advance
and keeps the result by revision, where `read` looks it up.
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
"""Number of converted objects that are kept; older ones are converted again."""
_MAY_CHANGE = ("labels", "annotations")


def converter_of(
    info: ResourceInfo, client: WebhookClient, new_uid: Callable[[], str]
) -> PruningConverter | None:
    """Return the converter between a served version and the stored one; None if only their names differ."""
    if info.definition is None:
        return None
    conversion = info.definition["spec"].get("conversion") or {}
    is_stored = info.version == info.storage_version
    if conversion.get("strategy") == "Webhook":
        # Objects may still be stored in an earlier storage version.
        earlier = len((info.definition.get("status") or {}).get("storedVersions") or ()) > 1
        if is_stored and not earlier:
            return None
        return _WebhookConverter(info, conversion["webhook"]["clientConfig"], client, new_uid)
    if is_stored:
        return None
    schemas = {version["name"]: version.get("schema") for version in info.definition["spec"]["versions"]}
    return PruningConverter(info) if schemas[info.version] != schemas[info.storage_version] else None


class PruningConverter:
    """The strategy None: versions differ in their name and in the fields of their schemas."""

    def __init__(self, info: ResourceInfo) -> None:
        self.info = info

    async def prepare(self, objects: Iterable[Stored]) -> None:
        """Do nothing: each object can be read."""

    def read(self, stored: Stored) -> Object:
        """Return a copy of a stored object in this version."""
        obj = decode(stored)
        obj["apiVersion"] = self.info.api_version
        return prune(self.info.schema, obj)

    async def to_storage(self, obj: Object) -> Object:
        """Convert an object of this version to the stored one."""
        return {**obj, "apiVersion": self.info.storage_api_version}

    async def convert(self, obj: Object, target: ResourceInfo) -> Object:
        """Convert an object of any version of the definition to another version."""
        return prune(target.schema, {**obj, "apiVersion": target.api_version})


class _WebhookConverter(PruningConverter):
    """The strategy Webhook: the definition's webhook converts."""

    def __init__(
        self, info: ResourceInfo, config: Object, client: WebhookClient, new_uid: Callable[[], str]
    ) -> None:
        super().__init__(info)
        self._config = config
        self._client = client
        self._new_uid = new_uid
        self._converted: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    async def prepare(self, objects: Iterable[Stored]) -> None:
        missing = [stored for stored in objects if (stored.uid, stored.revision) not in self._converted]
        if not missing:
            return
        target = self.info.api_version
        decoded = [decode(stored) for stored in missing]
        others = [obj for obj in decoded if obj["apiVersion"] != target]
        converted = iter(await self._convert(others, target) if others else ())
        for stored, obj in zip(missing, decoded, strict=True):
            shown = obj if obj["apiVersion"] == target else prune(self.info.schema, next(converted))
            self._converted[stored.uid, stored.revision] = msgspec.json.encode(shown)
        while len(self._converted) > max(_KEPT, len(missing)):
            self._converted.popitem(last=False)

    def read(self, stored: Stored) -> Object:
        body = self._converted.get((stored.uid, stored.revision))
        if body is None:
            raise RuntimeError(
                f"{stored.key} at revision {stored.revision} was read before `prepare` converted it"
            )
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
    """Return the converted objects of a webhook's response. Raises CallError for an invalid one."""
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
    converted: list[Object] = response.get("convertedObjects") or []
    return converted


def _accepted(before: Object, after: Object, target: str, about: str, index: int) -> Object:
    """Return a converted object with its former metadata: a webhook may only change labels and annotations."""
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
