"""Parameters of requests, from the query or from the body of a DELETE, as typed values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

import msgspec

from kapsa.devcluster.wire.exchange import Request
from kapsa.devcluster.wire.query import is_true, parse_query
from kapsa.devcluster.wire.status_errors import StatusError, bad_request, invalid
from kapsa.schemas import field_errors, go_format

__all__ = [
    "DeleteParameters",
    "ListParameters",
    "Preconditions",
    "WriteMethod",
    "WriteParameters",
    "delete_parameters",
    "list_parameters",
    "write_parameters",
]

MAXIMUM_MANAGER_LENGTH = 128
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LONGEST_INTEGER = 40
_POLICIES = ("Background", "Foreground", "Orphan")


class WriteMethod(Enum):
    """The way a write describes the object it requests."""

    CREATE = "create"
    """A new object."""
    UPDATE = "update"
    """A whole object, or a subresource of it, that replaces the stored one."""
    PATCH = "patch"
    """A JSON patch, a merge patch or a strategic merge patch."""
    APPLY = "apply"
    """A server-side apply, which records its field manager itself and may create."""

    @property
    def is_patch(self) -> bool:
        """True if the body describes a change and not a whole object."""
        return self is WriteMethod.PATCH or self is WriteMethod.APPLY

    @property
    def options_kind(self) -> str:
        """Kind of the request's options, as errors and AdmissionReviews name it."""
        return "PatchOptions" if self.is_patch else f"{self.value.capitalize()}Options"


class WriteParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a create, an update or a patch."""

    dry_run: bool = False
    manager: str = "unknown"
    field_validation: str = "Warn"
    force: bool | None = None
    explicit: tuple[tuple[str, str], ...] = ()
    """Field manager and validation as the client set them: admission does not see the defaults."""


class ListParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a list or a watch."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    watch: bool = False
    allow_bookmarks: bool = False
    timeout_seconds: int | None = None
    send_initial_events: bool | None = None


class Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    """The uid and revision that an object must have to be deleted."""

    uid: str | None = None
    resource_version: str | None = None


class DeleteParameters(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Parameters of a deletion: metav1.DeleteOptions."""

    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    dry_run: list[str] | None = None

    def validate(self) -> None:
        """Raise StatusError 422 for values that are unknown or contradict each other."""
        problems = []
        if self.orphan_dependents is not None and self.propagation_policy is not None:
            detail = "orphanDependents and deletionPropagation cannot be both set"
            problems.append(field_errors.invalid("propagationPolicy", self.propagation_policy, detail))
        if self.propagation_policy is not None and self.propagation_policy not in _POLICIES:
            problems.append(
                field_errors.not_supported(
                    "propagationPolicy",
                    self.propagation_policy,
                    ["Foreground", "Background", "Orphan", "nil"],
                )
            )
        if any(directive != "All" for directive in self.dry_run or ()):
            problems.append(field_errors.not_supported("dryRun", self.dry_run, ["All"]))
        if problems:
            raise invalid(_OptionsKind("DeleteOptions"), "", problems)


class _OptionsKind(msgspec.Struct, frozen=True):
    """The kind that an Invalid error names for parameters."""

    kind: str
    group: str = "meta.k8s.io"
    resource: str = ""


def write_parameters(request: Request, method: WriteMethod) -> WriteParameters:
    """Return the parameters of a write. Raises StatusError 422 for invalid ones."""
    values = parse_query(request.query) if request.query else {}
    given = values.get("fieldManager", [""])[0]
    dry_run = values.get("dryRun", [])
    validation = values.get("fieldValidation", [""])[0]
    force = values.get("force", [""])[0]
    errors: list[field_errors.FieldError] = []
    if method.is_patch:
        errors += _patch_errors(method, force=force, given=given)
    errors += _manager_errors(given)
    if any(directive != "All" for directive in dry_run):
        errors.append(field_errors.not_supported("dryRun", dry_run, ["All"]))
    if validation not in ("", "Ignore", "Warn", "Strict"):
        errors.append(
            field_errors.not_supported("fieldValidation", validation, ["", "Ignore", "Strict", "Warn"])
        )
    if errors:
        raise invalid(_OptionsKind(method.options_kind), "", errors)
    return WriteParameters(
        dry_run=bool(dry_run),
        manager=given or manager_of(request.headers.get("user-agent", "")),
        field_validation=validation or "Warn",
        force=is_true(force) if force else None,
        explicit=tuple(
            (name, value)
            for name, value in (("fieldManager", given), ("fieldValidation", validation))
            if value
        ),
    )


def _patch_errors(method: WriteMethod, *, force: str, given: str) -> list[field_errors.FieldError]:
    if method is WriteMethod.PATCH:
        return [field_errors.forbidden("force", "may not be specified for non-apply patch")] if force else []
    if not given:
        return [field_errors.required("fieldManager", "is required for apply patch")]
    return []


def _manager_errors(manager: str) -> list[field_errors.FieldError]:
    errors = []
    if len(manager.encode()) > MAXIMUM_MANAGER_LENGTH:
        errors.append(field_errors.too_long("fieldManager", MAXIMUM_MANAGER_LENGTH))
    for index, character in enumerate(manager):
        if not character.isprintable():
            detail = f"invalid character U+{ord(character):04X} (at position {index})"
            errors.append(field_errors.invalid("fieldManager", manager, detail))
    return errors


def manager_of(user_agent: str) -> str:
    """Return the field manager of a client that sets none: its user agent up to the first slash."""
    printable = "".join(character for character in user_agent.partition("/")[0] if character.isprintable())
    return printable.encode()[:MAXIMUM_MANAGER_LENGTH].decode(errors="ignore") or "unknown"


def list_parameters(query: str, *, watch: bool = False) -> ListParameters:
    """Return the parameters of a list, a watch or a deletecollection. Raises StatusError 400 or 422."""
    if not query and not watch:
        return _DEFAULTS
    values = parse_query(query)

    def first(name: str) -> str:
        given_values = values.get(name)
        return given_values[0] if given_values else ""

    timeout = first("timeoutSeconds")
    initial = first("sendInitialEvents")
    options = ListParameters(
        label_selector=first("labelSelector"),
        field_selector=first("fieldSelector"),
        limit=_integer(first("limit") or "0"),
        continue_token=first("continue"),
        resource_version=first("resourceVersion"),
        resource_version_match=first("resourceVersionMatch"),
        watch=watch or ("watch" in values and is_true(first("watch"))),
        allow_bookmarks="allowWatchBookmarks" in values and is_true(first("allowWatchBookmarks")),
        timeout_seconds=_integer(timeout) if timeout else None,
        send_initial_events=is_true(initial) if initial else None,
    )
    if options.watch and options.send_initial_events is None and not options.resource_version_match:
        options = _with_initial_events(options)
    _validate(options)
    return options


def _with_initial_events(options: ListParameters) -> ListParameters:
    """Set that a watch without a revision starts with the existing objects."""
    if options.resource_version not in ("", "0"):
        return options
    return msgspec.structs.replace(options, send_initial_events=True, resource_version_match="NotOlderThan")


_DEFAULTS = ListParameters()


def _validate(options: ListParameters) -> None:
    errors = _watch_errors(options) if options.watch else _list_errors(options)
    if errors:
        raise invalid(_OptionsKind("ListOptions"), "", errors)


def _watch_errors(options: ListParameters) -> list[field_errors.FieldError]:
    match, initial = options.resource_version_match, options.send_initial_events
    path = "resourceVersionMatch"
    errors = []
    if initial is not None and match != "NotOlderThan":
        errors.append(
            field_errors.forbidden(
                path, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        )
    if not match:
        return errors
    if initial is None:
        detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        errors.append(field_errors.forbidden(path, detail))
    if match != "NotOlderThan":
        errors.append(field_errors.not_supported(path, match, ["NotOlderThan"]))
    if options.continue_token:
        errors.append(
            field_errors.forbidden(path, "resourceVersionMatch is forbidden when continue is provided")
        )
    return errors


def _list_errors(options: ListParameters) -> list[field_errors.FieldError]:
    match = options.resource_version_match
    errors = _match_errors(options, match) if match else []
    if options.send_initial_events is not None:
        errors.append(field_errors.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def _match_errors(options: ListParameters, match: str) -> list[field_errors.FieldError]:
    errors = []
    if not options.resource_version:
        detail = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        errors.append(field_errors.forbidden("resourceVersionMatch", detail))
    if options.continue_token:
        detail = "resourceVersionMatch is forbidden when continue is provided"
        errors.append(field_errors.forbidden("resourceVersionMatch", detail))
    if match not in ("Exact", "NotOlderThan"):
        errors.append(
            field_errors.not_supported("resourceVersionMatch", match, ["Exact", "NotOlderThan", ""])
        )
    if match == "Exact" and options.resource_version == "0":
        detail = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        errors.append(field_errors.forbidden("resourceVersionMatch", detail))
    return errors


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise _unparsable(text, "invalid syntax")
    # Python does not convert numbers of thousands of digits.
    if len(text) > _LONGEST_INTEGER or not -(1 << 63) <= int(text) < 1 << 63:
        raise _unparsable(text, "value out of range")
    return int(text)


def _unparsable(text: str, problem: str) -> StatusError:
    return bad_request(f"strconv.ParseInt: parsing {go_format.quote(text)}: {problem}")


def delete_parameters(query: str) -> DeleteParameters:
    """Return the parameters of a deletion without a body. Raises StatusError 400 for a malformed period."""
    values = parse_query(query)
    grace = values.get("gracePeriodSeconds", [""])[0]
    orphan = values.get("orphanDependents", [""])[0]
    if grace and not re.fullmatch("[+-]?[0-9]{1,18}", grace):
        text = go_format.quote(grace)
        raise bad_request(f"strconv.ParseInt: parsing {text}: invalid syntax")
    return DeleteParameters(
        grace_period_seconds=int(grace) if grace else None,
        orphan_dependents=is_true(orphan) if orphan else None,
        propagation_policy=values["propagationPolicy"][0] if "propagationPolicy" in values else None,
        dry_run=values.get("dryRun"),
        preconditions=_preconditions(values),
    )


def _preconditions(values: Mapping[str, list[str]]) -> Preconditions | None:
    """Return the preconditions in a query: a deletion of a collection shares its revision with the list."""
    uid, revision = (values.get(name, [""])[0] or None for name in ("uid", "resourceVersion"))
    return Preconditions(uid=uid, resource_version=revision) if uid or revision else None
