"""Documents: CRDs as JSON, checked before anything else reads them, and compared."""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from kapsa.fleet.domain.crds import CrdComparison, CrdDefinition, compare_crds, parse_crd
from kapsa.fleet.domain.errors import InvalidField, InvalidInput
from kapsa.fleet.domain.values import canonical_json
from kapsa.schemas.crd_schema import validate_schema

__all__ = ["LARGEST_DOCUMENT", "check_document", "compare_documents", "document_digest"]

LARGEST_DOCUMENT = 1536 * 1024
"""Bytes of JSON: more does not fit into etcd."""
_MOST_ERRORS = 20


def check_document(document: Mapping[str, Any]) -> CrdDefinition:
    """Return the CRD in a document.

    Raises InvalidInput, with the path of each problem, if an API server would refuse its schemas.
    """
    try:
        size = len(msgspec.json.encode(document))
    except RecursionError:
        raise _invalid("/definition", "is nested too deeply: flatten it") from None
    if size > LARGEST_DOCUMENT:
        raise _invalid("/definition", f"is {size // 1024} KB; the limit is {LARGEST_DOCUMENT // 1024} KB")
    if document.get("kind") != "CustomResourceDefinition":
        raise _invalid("/definition/kind", "must be CustomResourceDefinition")
    crd = parse_crd(document)
    expected = f"{crd.spec.names.plural}.{crd.spec.group}"
    if crd.name != expected:
        raise _invalid("/definition/metadata/name", f"must be {expected}, by its plural and its group")
    if sum(version.storage for version in crd.spec.versions) != 1:
        raise _invalid("/definition/spec/versions", "must have exactly one version with storage: true")
    _check_schemas(document)
    return crd


def compare_documents(old: Mapping[str, Any], new: Mapping[str, Any]) -> CrdComparison:
    """Return the differences between two CRDs. Raises InvalidInput if one cannot be read."""
    return compare_crds(parse_crd(old), parse_crd(new))


def document_digest(document: Mapping[str, Any]) -> str:
    """Return the digest of a CRD's spec: what decides, without the status and metadata that clusters add."""
    return "sha256:" + hashlib.sha256(canonical_json({"spec": document.get("spec")})).hexdigest()


def _check_schemas(document: Mapping[str, Any]) -> None:
    errors: list[InvalidField] = []
    for index, version in enumerate(document["spec"]["versions"]):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        path = f"/definition/spec/versions/{index}/schema/openAPIV3Schema"
        if not schema:
            errors.append(InvalidField(path, "is required: a version without a schema prunes nothing"))
            continue
        status = (version.get("subresources") or {}).get("status") is not None
        errors += [
            InvalidField(path, str(error))
            for error in validate_schema(schema, "schema", status_enabled=status)
        ]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise InvalidInput(
            f"an API server would refuse the CRD: {errors[0].message}{more}", *errors[:_MOST_ERRORS]
        )


def _invalid(path: str, message: str) -> InvalidInput:
    return InvalidInput(f"{path.lstrip('/').replace('/', '.')} {message}", InvalidField(path, message))
