"""Tables (meta.k8s.io Table), which `kubectl get` prints."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from kapsa.devcluster.embedded.kinds.definitions import column_descriptions
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.replies.jsonpath import JsonPathError, find
from kapsa.devcluster.embedded.replies.printers.catalog import printer_of
from kapsa.devcluster.embedded.replies.printers.cells import Column, Printer, human_duration
from kapsa.schemas import field_errors

__all__ = ["scale_table", "table"]

Object = dict[str, Any]
_NAME = Column("Name", format="name")
_SCALE_OF_BUILT_IN = (
    "replicas is the desired number of instances for the scaled object.",
    "replicas is the actual number of observed instances of the scaled object.",
)
_SCALE_OF_CUSTOM = ("Number of desired replicas", "Number of actual replicas")
_POD_ENDS = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}


def table(
    info: ResourceInfo,
    objects: Iterable[Object],
    metadata: Object,
    *,
    now: datetime,
    include: str = "Metadata",
    version: str = "v1",
    headers: bool = True,
) -> Object:
    """Return a Table of `objects`.

    `include` is the `includeObject` parameter: None, Metadata or Object. Without `headers` the columns are
    not described, as in all events of a watch but the first.
    """
    printer = _printer(info)
    ordered = objects if printer.order is None else sorted(objects, key=printer.order)
    rows = [_row(info, printer, obj, now, include, version) for obj in ordered]
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
        "columnDefinitions": msgspec.to_builtins(printer.columns) if headers else None,
        # The generic printer of the real server writes null for an empty list.
        "rows": None if not rows and printer.cells is _plain else rows,
    }


def scale_table(
    info: ResourceInfo, scale: Object, *, now: datetime, include: str = "Metadata", version: str = "v1"
) -> Object:
    """Return a Table of the Scale of a resource."""
    name, created = _builtin_printer("", "serviceaccounts").columns
    # The two servers in one, of built-in and of custom resources, describe the same columns differently.
    desired, available = _SCALE_OF_CUSTOM if info.is_custom else _SCALE_OF_BUILT_IN
    columns = (
        msgspec.structs.replace(name, format="name" if info.is_custom else ""),
        Column("Desired", "integer", description=desired),
        Column("Available", "integer", description=available),
        msgspec.structs.replace(created, type="date" if info.is_custom else "string"),
    )
    counts = [(scale[part] or {}).get("replicas", 0) for part in ("spec", "status")]
    cells = [scale["metadata"]["name"], *counts, _age(scale["metadata"]["creationTimestamp"], now)]
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {"resourceVersion": scale["metadata"]["resourceVersion"]},
        "columnDefinitions": msgspec.to_builtins(columns),
        "rows": [{"cells": cells, "object": _row_object(scale, include, version)}],
    }


def _row(
    info: ResourceInfo, printer: Printer, obj: Object, now: datetime, include: str, version: str
) -> Object:
    row: Object = {"cells": printer.cells(obj, now)}
    phase = (obj.get("status") or {}).get("phase") if info.kind == "Pod" and not info.group else None
    if phase in _POD_ENDS:
        ended = {"type": "Completed", "status": "True", "reason": phase, "message": _POD_ENDS[phase]}
        row["conditions"] = [ended]
    row["object"] = _row_object(obj, include, version)
    return row


def _row_object(obj: Object, include: str, version: str) -> Object | None:
    if include == "Object":
        return obj
    if include == "None":
        return None
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": obj["metadata"],
    }


def _printer(info: ResourceInfo) -> Printer:
    return _custom_printer(info) if info.is_custom else _builtin_printer(info.group, info.resource)


@cache
def _builtin_printer(group: str, resource: str) -> Printer:
    printer = printer_of(group, resource) or _PLAIN
    texts = column_descriptions().get(f"{group}/{resource}", ())
    if len(texts) != len(printer.columns):
        return printer
    described = zip(printer.columns, texts, strict=True)
    columns = [msgspec.structs.replace(column, description=text) for column, text in described]
    return msgspec.structs.replace(printer, columns=tuple(columns))


def _plain(obj: Object, now: datetime) -> list[Any]:
    return [obj["metadata"].get("name", ""), obj["metadata"].get("creationTimestamp")]


_PLAIN = Printer((_NAME, Column("Created At", type="date")), _plain)


def _custom_printer(info: ResourceInfo) -> Printer:
    """Return the printer of a custom resource: its definition's columns, or its age if there are none."""
    name, created = _builtin_printer("", "serviceaccounts").columns
    declared: list[Object] = []
    for version in (info.definition or {}).get("spec", {}).get("versions", ()):
        if version["name"] == info.version:
            declared = version.get("additionalPrinterColumns") or []
    if not declared:
        path, text = ".metadata.creationTimestamp", created.description
        declared = [{"name": "Age", "type": "date", "jsonPath": path, "description": text}]
    columns = tuple(
        Column(
            column["name"],
            column["type"],
            column.get("format", ""),
            column.get("description")
            or f"Custom resource definition column (in JSONPath format): {column['jsonPath']}",
            column.get("priority", 0),
        )
        for column in declared
    )

    def cells(obj: Object, now: datetime) -> list[Any]:
        values = [_custom_cell(column, obj, now) for column in declared]
        return [obj["metadata"].get("name", ""), *values]

    return Printer((name, *columns), cells)


def _custom_cell(column: Object, obj: Object, now: datetime) -> Any:
    try:
        values = find(column["jsonPath"], obj)
    except JsonPathError:
        return None
    if not values:
        return None
    value = values[0]
    match column["type"]:
        case "string":
            return value if isinstance(value, str) else _text(value)
        case "integer" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return int(value)
        case "number" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "date" if isinstance(value, str):
            return _age(value, now)
    return None


def _text(value: Any) -> str:
    return "" if value is None else field_errors.render_value(value)


def _age(value: str, now: datetime) -> str:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return "<invalid>"
    return human_duration(now - moment) if moment.tzinfo is not None else "<invalid>"
