"""Decoding a written object into its kind: types, unknown fields, defaults, and the errors for what does not fit."""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.devcluster.embedded.codec.claimed_version import unknown_in_its_version
from kapsa.devcluster.embedded.codec.go_types import DecodingError, check_metadata, check_types
from kapsa.devcluster.embedded.codec.restored_types import print_as_go, restore_types
from kapsa.devcluster.embedded.requests.mutations import WriteRequest
from kapsa.devcluster.embedded.requests.parameters import WriteMethod
from kapsa.devcluster.wire import status_errors as errors
from kapsa.schemas import field_errors, go_format
from kapsa.schemas.defaulting import apply_defaults, fill_defaults
from kapsa.schemas.pruning import prune
from kapsa.schemas.schema import Schema
from kapsa.schemas.validation import unknown_fields

__all__ = [
    "cannot_decode",
    "check_claimed_version",
    "decode_into_schema",
    "drop_unknown_fields",
    "shown_patched",
]

Object = dict[str, Any]
_STRICT_PROBLEMS = 100


def decode_into_schema(write: WriteRequest, obj: Object) -> None:
    """Check an object's types, report and drop its unknown fields, and set defaults.

    Raises StatusError 400 (422 for a patch) when a value does not fit, or a field is unknown under Strict validation.
    """
    info = write.info
    schema = info.schema
    if schema is None:
        return
    if write.method is WriteMethod.APPLY and info.is_custom:
        # An applied configuration fits its schema already, and its nulls are left to validation.
        fill_defaults(schema, obj)
        return
    try:
        if info.is_custom:
            check_metadata(obj)
        elif write.strategic_patch is not None:
            restore_types(schema, obj)
        else:
            check_types(schema, obj, info)
    except DecodingError as error:
        raise cannot_decode(write, obj, str(error)) from None
    drop_unknown_fields(write, schema, obj)
    apply_defaults(schema, obj)


def drop_unknown_fields(write: WriteRequest, schema: Schema, obj: Object) -> None:
    """Drop an object's unknown fields with a warning. Raises StatusError 400 or 422 under Strict validation."""
    directive = write.parameters.field_validation
    if directive == "Ignore":
        prune(schema, obj)
    elif problems := _strict_problems(write, unknown_fields(schema, obj)):
        if directive == "Strict":
            raise cannot_decode(write, obj, f"strict decoding error: {_joined(problems)}")
        write.warnings.extend(problems)
        prune(schema, obj)


def _strict_problems(write: WriteRequest, unknown: list[str]) -> list[str]:
    # Problems of a patch's own text come before those of the object it produces.
    text = write.strict_problems
    problems = [*text, *unknown] if write.method.is_patch else [*unknown, *text]
    # Go's decoder of built-in kinds stops after a hundred.
    return problems if write.info.is_custom else problems[:_STRICT_PROBLEMS]


def check_claimed_version(write: WriteRequest, obj: Object) -> None:
    """Report the fields of a custom resource that are unknown in the version its apiVersion claims."""
    if not write.info.is_custom or not isinstance(obj.get("apiVersion"), str):
        return
    directive = write.parameters.field_validation
    problems = [] if directive == "Ignore" else unknown_in_its_version(write.info, obj)
    if problems and directive == "Strict":
        raise cannot_decode(write, obj, f"strict decoding error: {_joined(problems)}")
    write.warnings.extend(problems)


def _joined(problems: list[str]) -> str:
    if problems[0].startswith("line "):
        return "yaml: unmarshal errors:\n  " + "\n  ".join(problems)
    return ", ".join(problems)


def cannot_decode(write: WriteRequest, obj: Any, why: str) -> errors.StatusError:
    """Return the error for an object that does not fit its kind; a patch's includes the object it produced."""
    if write.method is not WriteMethod.PATCH:
        kind, version = write.info.kind, go_format.quote(obj["apiVersion"].rpartition("/")[2])
        return errors.bad_request(f"{kind} in version {version} cannot be handled as a {kind}: {why}")
    return errors.invalid(_NoKind(), "", [field_errors.invalid("patch", shown_patched(write, obj), why)])


def shown_patched(write: WriteRequest, obj: Any) -> str:
    """Return what the real server shows of a patch: a strategic one itself, for others the object it produced."""
    if write.strategic_patch is not None:
        return print_as_go(write.strategic_patch)
    if write.info.is_custom or not isinstance(obj, dict):
        return msgspec.json.encode(obj, order="sorted").decode()
    return msgspec.json.encode(dict(sorted(obj.items()))).decode()


class _NoKind(msgspec.Struct, frozen=True):
    """The kind of an error that names none."""

    group: str = ""
    resource: str = ""
    kind: str = ""
