"""Live verdicts: the resources that a cluster has, page by page, against the schema that it would get.

A resource is judged as if it were created again: ratcheting does not help a restore from a backup or from git.
Only counts and the first few reasons are kept, and no reason contains a value of a resource.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from kapsa.fleet.domain.crds import CrdDefinition, parse_crd
from kapsa.fleet.domain.rollout.plans import LiveVerdict
from kapsa.fleet.orchestrator.ports.crds import ResourcesUnreadable
from kapsa.schemas.defaulting import apply_defaults
from kapsa.schemas.field_errors import REQUIRED, TYPE_INVALID, FieldError
from kapsa.schemas.go_format import quote
from kapsa.schemas.pruning import prune, unknown_fields
from kapsa.schemas.schema import Schema
from kapsa.schemas.validation import validate

__all__ = ["MOST_SECONDS", "ResourceJudge", "judge_resources", "verdict_line"]

MOST_SECONDS = 120.0
"""The time that one CRD on one cluster may take, at most."""
_MOST_EXAMPLES = 5
_MOST_TEXT = 240
_TYPE_NAMES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


class ResourceJudge:
    """The new schemas of a CRD, and what they would do to resources."""

    def __init__(self, definition: Mapping[str, Any], deadline: float) -> None:
        crd = parse_crd(definition)
        raw = {version["name"]: version.get("schema") or {} for version in definition["spec"]["versions"]}
        self._schemas = {name: Schema.from_crd(schema.get("openAPIV3Schema")) for name, schema in raw.items()}
        self._deadline = deadline
        self._fallback = _fallback_version(crd)
        self.checked = self.rejected = self.pruned = self.skipped = 0
        self.examples: list[str] = []
        self.out_of_time = False

    def judge(self, page: Sequence[dict[str, Any]]) -> None:
        """Judge the resources of a page. They are changed on the way."""
        for resource in page:
            if time.monotonic() > self._deadline:
                self.out_of_time = True
                return
            self._judge(resource)

    def _judge(self, resource: dict[str, Any]) -> None:
        schema = self._schemas.get(str(resource.get("apiVersion", "")).rpartition("/")[2])
        if schema is None:
            schema = self._schemas.get(self._fallback)
        if schema is None:
            self.skipped += 1
            return
        self.checked += 1
        metadata = resource.get("metadata")
        if isinstance(metadata, dict):
            metadata.pop("managedFields", None)
        lost = unknown_fields(schema, resource)
        apply_defaults(schema, prune(schema, resource))
        errors = validate(schema, resource)
        self.rejected += bool(errors)
        self.pruned += bool(lost)
        if (errors or lost) and len(self.examples) < _MOST_EXAMPLES:
            reason = _reason(errors[0]) if errors else f"{lost[0].removeprefix('unknown ')} would be pruned"
            self.examples.append(_shortened(f"{_name(metadata)}: {reason}"))


async def judge_resources(
    definition: Mapping[str, Any],
    pages: AsyncIterator[Sequence[dict[str, Any]]],
    *,
    most_seconds: float = MOST_SECONDS,
) -> LiveVerdict:
    """Return the verdict on all resources, by the schemas of the new `definition`.

    It is partial, with the reason, if the resources could not be read to the end.
    """
    judge = await asyncio.to_thread(ResourceJudge, definition, time.monotonic() + most_seconds)
    reason = ""
    try:
        async for page in pages:
            await asyncio.to_thread(judge.judge, page)
            if judge.out_of_time:
                reason = f"stopped after {most_seconds:g} s: {judge.checked} resources were checked"
                break
    except ResourcesUnreadable as error:
        reason = str(error)
    if judge.skipped and not reason:
        reason = f"{judge.skipped} resources are converted by a webhook that is not installed yet"
    return LiveVerdict(
        str(definition["metadata"]["name"]),
        judge.checked,
        judge.rejected,
        tuple(judge.examples),
        reason,
        judge.pruned,
    )


def verdict_line(verdict: LiveVerdict, cluster: str) -> str:
    """Return the verdict in one line: `3 of 412 in prod-eu would be rejected`."""
    parts = [f"{verdict.rejected} of {verdict.checked} in {cluster} would be rejected"]
    if verdict.pruned:
        parts.append(f"{verdict.pruned} would lose fields")
    if verdict.partial_reason:
        parts.append(f"not all were checked: {verdict.partial_reason}")
    return "; ".join(parts)


def _fallback_version(crd: CrdDefinition) -> str:
    """Return the version whose schema judges resources of a version that is gone; empty if a webhook converts them."""
    return "" if crd.conversion.strategy == "Webhook" else crd.storage.name


def _name(metadata: Any) -> str:
    if not isinstance(metadata, dict):
        return "a resource without metadata"
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return f"{namespace}/{name}" if namespace else str(name)


def _reason(error: FieldError) -> str:
    """Return an error without the value that caused it, which may be a secret."""
    detail = error.detail
    if error.reason == TYPE_INVALID and isinstance(error.value, str) and error.value not in _TYPE_NAMES:
        detail = detail.replace(quote(error.value), "the value")
    if error.reason == REQUIRED:
        detail = f"is required{': ' + detail if detail else ''}"
    return f"{error.field}: {detail or 'is not accepted'}"


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"
