"""A resource of the API: the plural name, the scope and the paths behind a kind."""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec

from kapsa.runtime.resources.kind import Kind
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.resource import CustomResource

__all__ = ["ApiResource", "group_version_path", "resource_of"]

_PLAIN_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


class ApiResource(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of the API: `deployments` of `apps/v1`."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    singular: str = ""
    short_names: tuple[str, ...] = ()

    @property
    def gvk(self) -> GroupVersionKind:
        return GroupVersionKind(self.group, self.version, self.kind)

    @property
    def path(self) -> str:
        """The path of the group version: `/apis/apps/v1`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def collection_path(self, namespace: str) -> str:
        """Return the path of all objects: of one namespace, or of the cluster if `namespace` is empty."""
        if namespace and self.namespaced:
            return f"{self.path}/namespaces/{_segment(namespace, 'namespace')}/{self.plural}"
        return f"{self.path}/{self.plural}"

    def object_path(self, name: str, namespace: str, subresource: str = "") -> str:
        """Return the path of one object, or of one of its subresources."""
        if self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} is namespaced: pass its namespace")
        path = f"{self.collection_path(namespace)}/{_segment(name, 'name')}"
        return f"{path}/{subresource}" if subresource else path


def resource_of(kind: Kind) -> ApiResource | None:
    """Return the resource that a class declares; None for a kind that only discovery can resolve."""
    if isinstance(kind, type) and issubclass(kind, CustomResource):
        definition = kind.definition
        return ApiResource(
            group=definition.group,
            version=definition.version,
            kind=definition.kind,
            plural=definition.plural,
            namespaced=definition.namespaced,
        )
    return None


def group_version_path(api_version: str) -> str:
    """Return the path under which the API server serves a group version."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _segment(value: str, field: str) -> str:
    """Return a name as one segment of a path.

    An empty name would turn a delete into a delete of all objects.
    """
    if _PLAIN_SEGMENT.fullmatch(value):
        return value
    if not value or value in (".", "..") or "/" in value or "%" in value:
        raise ValueError(f"{value!r} is not a valid {field} of an object")
    return quote(value, safe=":")
