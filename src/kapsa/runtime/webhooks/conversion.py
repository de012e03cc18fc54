"""Conversion between the versions of a kind: each version converts to the hub and back.

class AppV1Alpha1Converter(Converter[AppV1Alpha1, AppV1]):
    def to_hub(self, app: AppV1Alpha1) -> AppV1: ...
    def from_hub(self, app: AppV1) -> AppV1Alpha1: ...
"""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from kapsa.runtime.resources.kind import Manifest
from kapsa.runtime.resources.resource import CustomResource

__all__ = ["ConversionReview", "Conversions", "Converter"]

_TURN = 0.01
"""Seconds for which conversions may hold the event loop, if each takes less."""

S = TypeVar("S", bound=CustomResource[Any, Any])
H = TypeVar("H", bound=CustomResource[Any, Any])


class Converter(Generic[S, H]):
    """The conversion between one version, the spoke, and the hub.

    Both methods are plain functions that block the event loop and cannot be interrupted: compute, and do no
    I/O.
    """

    spoke: ClassVar[type[CustomResource[Any, Any]]]
    hub: ClassVar[type[CustomResource[Any, Any]]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__dict__.get("__orig_bases__", ()):
            if typing.get_origin(base) is Converter:
                cls.spoke, cls.hub = typing.get_args(base)
                _check(cls)

    def to_hub(self, resource: S, /) -> H:
        """Convert a resource to the version of the hub."""
        raise NotImplementedError(f"{type(self).__name__} does not define to_hub")

    def from_hub(self, resource: H, /) -> S:
        """Convert a resource from the version of the hub."""
        raise NotImplementedError(f"{type(self).__name__} does not define from_hub")


class _Request(msgspec.Struct, frozen=True):
    uid: str
    desired: str = msgspec.field(name="desiredAPIVersion")
    objects: list[Manifest] = []


class ConversionReview(msgspec.Struct, frozen=True):
    """A ConversionReview that holds a request."""

    request: _Request


class ConversionError(Exception):
    """An object could not be converted. The message names it."""


class Conversions:
    """All converters of an operator: from any version to any version, through the hub."""

    def __init__(self, converters: Iterable[Converter[Any, Any]]) -> None:
        self._by_spoke: dict[tuple[str, str], Converter[Any, Any]] = {}
        self._hubs: dict[tuple[str, str], type[CustomResource[Any, Any]]] = {}
        for converter in converters:
            hub = converter.hub
            first = self._hubs.setdefault((hub.definition.group, hub.kind), hub)
            if first is not hub:
                raise TypeError(f"{hub.kind} has two hubs: {first.api_version} and {hub.api_version}")
            key = (converter.spoke.api_version, converter.spoke.kind)
            if key in self._by_spoke:
                raise TypeError(f"two converters for {'/'.join(key)}")
            self._by_spoke[key] = converter

    @property
    def crds(self) -> tuple[str, ...]:
        """The CustomResourceDefinitions whose conversion this operator serves."""
        return tuple(sorted(hub.definition.crd_name for hub in self._hubs.values()))

    @property
    def versions(self) -> tuple[type[CustomResource[Any, Any]], ...]:
        """The classes of all versions that can be converted."""
        return (*self._hubs.values(), *(converter.spoke for converter in self._by_spoke.values()))

    async def review(self, review: ConversionReview, *, limit: float = 25.0) -> Manifest:
        """Return the ConversionReview with all converted objects, or with the first failure.

        The event loop gets a turn every 10 ms, between two objects. After `limit` seconds the review fails: the API
        server waits for 30.
        """
        request = review.request
        response: Manifest = {"uid": request.uid}
        try:
            response["convertedObjects"] = await self._convert_all(request, limit)
            response["result"] = {"status": "Success"}
        except ConversionError as error:
            response["result"] = {"status": "Failure", "message": str(error)}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "ConversionReview",
            "response": response,
        }

    async def _convert_all(self, request: _Request, limit: float) -> list[Manifest]:
        loop = asyncio.get_running_loop()
        started = turn = loop.time()
        converted: list[Manifest] = []
        for each in request.objects:
            if turn - started > limit:
                raise ConversionError(
                    f"{len(converted)} of {len(request.objects)} objects were converted to {request.desired} "
                    f"within {limit:g} s: make the converter faster, or list in smaller pages"
                )
            converted.append(self.convert(each, request.desired))
            if loop.time() - turn > _TURN:
                await asyncio.sleep(0)
                turn = loop.time()
        return converted

    def convert(self, manifest: Manifest, desired: str) -> Manifest:
        """Convert one object to another version."""
        current, kind = str(manifest.get("apiVersion")), str(manifest.get("kind"))
        if current == desired:
            return manifest
        metadata = manifest.get("metadata") or {}
        what = f"{kind} {metadata.get('namespace', '')}/{metadata.get('name', '')}"
        try:
            converted = self._through_hub(manifest, current, desired, kind).to_dict()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConversionError(f"{what} from {current} to {desired}: {reason}") from error
        # The API server accepts changes of labels and annotations only. The rest of the metadata, such as
        # managedFields, is not in our model and must be returned unchanged.
        kept = {name: value for name, value in metadata.items() if name not in ("labels", "annotations")}
        for name in ("labels", "annotations"):
            if value := converted["metadata"].get(name):
                kept[name] = value
        return {**converted, "metadata": kept}

    def _through_hub(
        self, manifest: Manifest, current: str, desired: str, kind: str
    ) -> CustomResource[Any, Any]:
        resource: CustomResource[Any, Any]
        if converter := self._by_spoke.get((current, kind)):
            resource = converter.to_hub(converter.spoke.from_dict(manifest))
        else:
            resource = self._hub(current, kind).from_dict(manifest)
        if resource.api_version == desired:
            return resource
        converter = self._by_spoke.get((desired, kind))
        if converter is None:
            raise LookupError(f"no converter for {desired}")
        converted: CustomResource[Any, Any] = converter.from_hub(resource)
        return converted

    def _hub(self, api_version: str, kind: str) -> type[CustomResource[Any, Any]]:
        hub = self._hubs.get((api_version.rpartition("/")[0], kind))
        if hub is None or hub.api_version != api_version:
            raise LookupError(f"no converter for {api_version}")
        return hub


def _check(cls: type[Converter[Any, Any]]) -> None:
    spoke, hub = cls.spoke.definition, cls.hub.definition
    if (spoke.group, spoke.kind) != (hub.group, hub.kind):
        raise TypeError(f"{cls.__name__} converts {spoke.kind} of {spoke.group} to {hub.kind} of {hub.group}")
    if spoke.version == hub.version:
        raise TypeError(f"{cls.__name__} converts {hub.version} to itself")
