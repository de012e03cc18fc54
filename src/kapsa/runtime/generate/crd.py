"""CustomResourceDefinitions from resource classes."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from kapsa.runtime.generate._descriptions import change_descriptions, fit_descriptions
from kapsa.runtime.generate.constraints import JSON, SchemaError
from kapsa.runtime.generate.docstrings import class_description
from kapsa.runtime.generate.schema import openapi_schema
from kapsa.runtime.resources.definition import ResourceDefinition, printer_column
from kapsa.runtime.resources.resource import CustomResource

__all__ = [
    "ConversionWebhook",
    "custom_resource_definition",
    "custom_resource_definitions",
    "require_conversion",
]

ResourceClass = type[CustomResource[Any, Any]]

_API_VERSION = "The group and version of this object's schema."
_KIND = "The name of this kind, in CamelCase."
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


class ConversionWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """The webhook that converts resources between versions: behind a Service, or at a URL."""

    service: str = ""
    namespace: str = ""
    url: str = ""
    """The address without the path, for an operator outside the cluster."""
    path: str = "/convert"
    port: int = 443
    ca_bundle: bytes = b""


def custom_resource_definitions(
    classes: Iterable[ResourceClass],
    *,
    conversion: ConversionWebhook | None = None,
    converted: Collection[str] | None = None,
    max_description_length: int | None = None,
) -> list[JSON]:
    """Return the CRDs of these classes, sorted by name. Classes of one kind are its versions.

    `conversion` applies to kinds with several versions: to those whose CRD is in `converted`, or to all. Without
    it the API server drops the fields that the other version does not have; `Operator.definitions` sets it.
    Descriptions are cut to `max_description_length`, or if that is None, to what `kubectl apply` accepts.
    """
    kinds: dict[tuple[str, str], list[ResourceClass]] = {}
    for cls in classes:
        if not hasattr(cls, "definition"):
            raise TypeError(f"{cls.__name__} has no group and version: pass them to the class")
        kinds.setdefault((cls.definition.group, cls.definition.kind), []).append(cls)
    crds = []
    for versions in kinds.values():
        applies = converted is None or versions[0].definition.crd_name in converted
        crds.append(
            custom_resource_definition(
                versions,
                conversion=conversion if applies else None,
                max_description_length=max_description_length,
            )
        )
    return sorted(crds, key=lambda crd: str(crd["metadata"]["name"]))


def require_conversion(crd: JSON) -> None:
    """Raise SchemaError for a CRD whose versions differ and which has no conversion: it would lose data."""
    spec = crd["spec"]
    versions = spec["versions"]
    shapes = [
        change_descriptions(version["schema"]["openAPIV3Schema"], lambda text: "") for version in versions
    ]
    if "conversion" in spec or all(shape == shapes[0] for shape in shapes):
        return
    names = ", ".join(version["name"] for version in versions)
    raise SchemaError(
        f"{spec['group']} {spec['names']['kind']}",
        f"the versions {names} have different fields and no conversion, so the API server would drop the fields "
        "that the stored version does not have. Write a Converter for each version but the stored one, pass them to "
        "Webhooks(converters=[...]), and generate the CRD from the operator: kapsa crd MODULE:OPERATOR",
    )


def custom_resource_definition(
    versions: Sequence[ResourceClass],
    *,
    conversion: ConversionWebhook | None = None,
    max_description_length: int | None = None,
) -> JSON:
    """Return the CRD of one kind, from the classes of its versions."""
    versions = sorted(versions, key=lambda cls: _priority(cls.definition.version), reverse=True)
    _check_agreement(versions)
    storage = _storage_version(versions)
    first = versions[0].definition
    spec: JSON = {
        "group": first.group,
        "names": _names(first),
        "scope": first.scope,
        "versions": [_version(cls, storage=cls is storage) for cls in versions],
    }
    if conversion is not None and len(versions) > 1:
        spec["conversion"] = _conversion(conversion)
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": first.crd_name},
        "spec": spec,
    }
    return fit_descriptions(crd, max_description_length)


def _names(definition: ResourceDefinition) -> JSON:
    names: JSON = {
        "kind": definition.kind,
        "listKind": f"{definition.kind}List",
        "plural": definition.plural,
        "singular": definition.singular,
    }
    if definition.short_names:
        names["shortNames"] = list(definition.short_names)
    if definition.categories:
        names["categories"] = list(definition.categories)
    return names


def _version(cls: ResourceClass, *, storage: bool) -> JSON:
    definition = cls.definition
    version: JSON = {"name": definition.version, "served": definition.served, "storage": storage}
    if definition.deprecated:
        version["deprecated"] = True
        version["deprecationWarning"] = definition.deprecated
    version["schema"] = {"openAPIV3Schema": _root_schema(cls)}
    version["subresources"] = {"status": {}}
    if definition.scale is not None:
        version["subresources"]["scale"] = msgspec.to_builtins(definition.scale)
    if definition.selectable_fields:
        version["selectableFields"] = [{"jsonPath": path} for path in definition.selectable_fields]
    if columns := _columns(definition):
        version["additionalPrinterColumns"] = columns
    return version


def _columns(definition: ResourceDefinition) -> list[JSON]:
    """Return the declared columns. Declaring any makes the server drop its own, so the age is added back."""
    columns = list(definition.columns)
    if columns and all(column.name != "Age" for column in columns):
        columns.append(printer_column("Age", ".metadata.creationTimestamp", type="date"))
    return [msgspec.to_builtins(column) for column in columns]


def _root_schema(cls: ResourceClass) -> JSON:
    spec = openapi_schema(cls.spec_type, path=f"{cls.__name__}.spec")
    status = openapi_schema(cls.status_type, path=f"{cls.__name__}.status", defaults=False)
    root: JSON = {}
    if description := class_description(cls):
        root["description"] = description
    root["type"] = "object"
    root["properties"] = {
        "apiVersion": {"description": _API_VERSION, "type": "string"},
        "kind": {"description": _KIND, "type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
        "status": status,
    }
    if spec.get("required"):
        root["required"] = ["spec"]
    if cls.definition.rules:
        root["x-kubernetes-validations"] = msgspec.to_builtins(list(cls.definition.rules))
    return root


def _conversion(webhook: ConversionWebhook) -> JSON:
    client: JSON
    if webhook.url:
        client = {"url": f"{webhook.url.rstrip('/')}{webhook.path}"}
    else:
        client = {
            "service": {
                "namespace": webhook.namespace,
                "name": webhook.service,
                "path": webhook.path,
                "port": webhook.port,
            }
        }
    if webhook.ca_bundle:
        client["caBundle"] = base64.b64encode(webhook.ca_bundle).decode()
    return {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client}}


def _check_agreement(versions: Sequence[ResourceClass]) -> None:
    first = versions[0].definition
    for cls in versions[1:]:
        other = cls.definition
        for name in ("plural", "singular", "scope", "short_names", "categories"):
            if getattr(other, name) != getattr(first, name):
                raise SchemaError(
                    f"{first.group} {first.kind}",
                    f"versions {first.version} and {other.version} must have the same {name}, "
                    f"got {getattr(first, name)!r} and {getattr(other, name)!r}",
                )
    names = [cls.definition.version for cls in versions]
    if len(set(names)) != len(names):
        raise SchemaError(
            f"{first.group} {first.kind}", f"two classes have the same version: {', '.join(names)}"
        )


def _storage_version(versions: Sequence[ResourceClass]) -> ResourceClass:
    """Return the version with `storage=True`, else the hub, else the only one."""
    chosen = [cls for cls in versions if cls.definition.storage]
    if not chosen:
        chosen = [cls for cls in versions if cls.definition.storage is None and cls.definition.hub]
    if not chosen and len(versions) == 1:
        chosen = list(versions)
    if len(chosen) != 1:
        first = versions[0].definition
        names = ", ".join(cls.definition.version for cls in versions)
        raise SchemaError(
            f"{first.group} {first.kind}",
            f"exactly one of the versions {names} must be stored: set storage=True on its class",
        )
    return chosen[0]


def _priority(version: str) -> tuple[int, int, int, str]:
    """Return the sort key of a version in Kubernetes' order: stable, beta, alpha, then other names."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (0, 0, 0, version)
    stability = {None: 3, "beta": 2, "alpha": 1}[match[2]]
    return (stability, int(match[1]), int(match[3] or 0), version)
