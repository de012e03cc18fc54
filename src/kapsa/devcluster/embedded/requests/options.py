"""Query parameters as typed options."""

from __future__ import annotations

import re

import msgspec

from kapsa.devcluster.wire.exchange import Request
from kapsa.devcluster.wire.query import is_true, parse_query
from kapsa.devcluster.wire.status_errors import StatusError, bad_request, invalid
from kapsa.schemas import field_errors, go_format

__all__ = ["ListParameters", "WriteParameters", "list_options", "write_options"]

MAXIMUM_MANAGER_LENGTH = 128
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LONGEST_INTEGER = 40


class WriteParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Create, update and patch options."""

    dry_run: bool = False
    manager: str = "unknown"
    field_validation: str = "Warn"
    force: bool | None = None
    asked: tuple[tuple[str, str], ...] = ()
    """What the client said of managers and validation itself; admission is told no more."""


class ListParameters(msgspec.Struct, frozen=True, kw_only=True):
    """List and watch options."""

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


class _OptionsKind(msgspec.Struct, frozen=True):
    """Stands for the options' kind in an Invalid error."""

    kind: str
    group: str = "meta.k8s.io"
    resource: str = ""


def write_options(
    request: Request, kind: str, *, patch: bool = False, apply: bool = False
) -> WriteParameters:
    """Options of a write; ``kind`` is CreateOptions, UpdateOptions or PatchOptions."""
    values = parse_query(request.query) if request.query else {}
    given = values.get("fieldManager", [""])[0]
    dry_run = values.get("dryRun", [])
    validation = values.get("fieldValidation", [""])[0]
    force = values.get("force", [""])[0]
    errors: list[field_errors.FieldError] = []
    if patch:
        errors += _patch_errors(force=force, given=given, apply=apply)
    errors += _manager_errors(given)
    if dry_run and dry_run != ["All"]:
        errors.append(field_errors.not_supported("dryRun", dry_run, ["All"]))
    if validation not in ("", "Ignore", "Warn", "Strict"):
        errors.append(
            field_errors.not_supported("fieldValidation", validation, ["", "Ignore", "Strict", "Warn"])
        )
    if errors:
        raise invalid(_OptionsKind(kind), "", errors)
    return WriteParameters(
        dry_run=bool(dry_run),
        manager=given or manager_of(request.headers.get("user-agent", "")),
        field_validation=validation or "Warn",
        force=is_true(force) if force else None,
        asked=tuple(
            (name, value)
            for name, value in (("fieldManager", given), ("fieldValidation", validation))
            if value
        ),
    )


def _patch_errors(*, force: str, given: str, apply: bool) -> list[field_errors.FieldError]:
    if not apply:
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
    """The field manager of a client that names none: its user agent up to the first slash."""
    printable = "".join(character for character in user_agent.partition("/")[0] if character.isprintable())
    return printable.encode()[:MAXIMUM_MANAGER_LENGTH].decode(errors="ignore") or "unknown"


def list_options(query: str, *, watch: bool = False) -> ListParameters:
    """Options of list, watch and deletecollection."""
    if not query and not watch:
        return _NO_OPTIONS
    values = parse_query(query)

    def first(name: str) -> str:
        found = values.get(name)
        return found[0] if found else ""

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
    """A watch from nowhere begins with what exists, and says so, whether it was asked to or not."""
    if options.resource_version not in ("", "0"):
        return options
    return msgspec.structs.replace(options, send_initial_events=True, resource_version_match="NotOlderThan")


_NO_OPTIONS = ListParameters()


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
    # Longer ones are not even read: Python refuses numbers of thousands of digits.
    if len(text) > _LONGEST_INTEGER or not -(1 << 63) <= int(text) < 1 << 63:
        raise _unparsable(text, "value out of range")
    return int(text)


def _unparsable(text: str, problem: str) -> StatusError:
    return bad_request(f"strconv.ParseInt: parsing {go_format.quote(text)}: {problem}")
