"""The trial of one object: a dry run of the server-side apply that Helm would make, as the manager `helm`."""

import itertools
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from kapsa.adapters.redaction import printable, redact
from kapsa.fleet.domain.field_paths import without_field
from kapsa.fleet.domain.health.templates import template_additions
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy
from kapsa.fleet.domain.rollout.plans import FieldConflict, PreflightProblem
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.clusters.answers import clean_text
from kapsa.fleet.infrastructure.preflight.field_owners import FieldOwner, field_owners
from kapsa.runtime import (
    ApiError,
    Client,
    Conflict,
    Forbidden,
    InternalError,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from kapsa.runtime import Timeout as ServerTimeout

__all__ = ["MANAGER", "ObjectOutcome", "ObjectTrial"]

MANAGER = "helm"
_ROUNDS = 3
_STAND_IN = "default"
_LONGEST = 600
_MOST_ADDITIONS = 500
_NO_RIGHT = re.compile(r'User "[^"]*" cannot |is attempting to grant RBAC permissions not currently held')
_DENIED = re.compile(
    r"admission webhook|ValidatingAdmissionPolicy|MutatingAdmissionPolicy|exceeded quota|violates "
)
_NO_DRY_RUN = "does not support dry run"
_NO_EVIDENCE = (Unauthorized, TooManyRequests, Unavailable, ServerTimeout)
"""Errors that prove nothing about the object."""


class ObjectOutcome(msgspec.Struct, frozen=True):
    """The answer of the API server to one object."""

    content: dict[str, Any]
    """The object to apply: without the fields that are left to their owners."""
    conflicts: tuple[FieldConflict, ...] = ()
    problems: tuple[PreflightProblem, ...] = ()
    notices: tuple[str, ...] = ()
    additions: tuple[FieldConflict, ...] = ()
    """The fields of a pod template that other managers have added, and an upgrade leaves as they are."""


class ObjectTrial:
    """Dry runs of the objects of one release."""

    def __init__(
        self,
        client: Client,
        release: ReleaseRef,
        policy: ConflictPolicy,
        *,
        secrets: tuple[str, ...] = (),
        migrates: bool = False,
    ) -> None:
        self._client = client
        self._release = release
        self._policy = policy
        self._secrets = secrets
        self._migrates = migrates
        """True if Helm takes over its own fields from the time before server-side apply."""

    async def attempt(self, content: dict[str, Any], name: str, namespace: str) -> ObjectOutcome:
        """Try an object in its own namespace, under the conflict policy."""
        conflicts: list[FieldConflict] = []
        error: ApiError | None = None
        applied: Mapping[str, Any] = {}
        for _ in range(_ROUNDS):
            applied, error = await self._apply(content, namespace, force=False)
            foreign = [each for each in field_owners(error) if not self._is_ours(each)]
            conflicts += [FieldConflict(name, each.field, each.manager) for each in foreign]
            if not foreign or self._policy is not ConflictPolicy.LEAVE:
                break
            rest = _without_fields(content, foreign)
            if rest is None:
                return ObjectOutcome(content, tuple(conflicts), (self._cannot_leave(name, foreign),))
            content = rest
        if field_owners(error):
            # Conflicts are checked before admission: what the cluster thinks of the object comes with force only.
            applied, error = await self._apply(content, namespace, force=True)
        problems, notices = self._judge(error, name)
        additions = _additions(content, applied, name)
        notices += tuple(_sentences(name, additions))
        return ObjectOutcome(content, tuple(dict.fromkeys(conflicts)), problems, notices, additions)

    async def attempt_elsewhere(self, content: dict[str, Any], name: str, namespace: str) -> ObjectOutcome:
        """Try an object whose namespace does not exist yet, under another name in the namespace `default`.

        An invalid object is invalid there, too. Admission may decide otherwise there, and is a notice.
        """
        body = self._owned(content)
        body["metadata"] |= {"name": f"kapsa-preflight-{uuid.uuid4().hex[:8]}", "namespace": _STAND_IN}
        try:
            await self._client.create(body, namespace=_STAND_IN, field_manager=MANAGER, dry_run=True)
        except _NO_EVIDENCE:
            raise
        except ApiError as error:
            problems, notices = self._judge(error, name)
            notices += tuple(
                f"{each.message}, if it were in the namespace {_STAND_IN}; {namespace} does not exist yet"
                for each in problems
                if each.check != "InvalidObject"
            )
            return ObjectOutcome(
                content, (), tuple(each for each in problems if each.check == "InvalidObject"), notices
            )
        return ObjectOutcome(content)

    async def _apply(
        self, content: Mapping[str, Any], namespace: str, *, force: bool
    ) -> tuple[Mapping[str, Any], ApiError | None]:
        """Return the object as a dry run leaves it, or the error of the dry run."""
        try:
            applied = await self._client.apply(
                self._owned(content), force=force, namespace=namespace, field_manager=MANAGER, dry_run=True
            )
        except _NO_EVIDENCE:
            raise
        except ApiError as error:
            return {}, error
        return applied, None

    def _owned(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the object with the marks that Helm adds to each object of a release."""
        metadata = content["metadata"]
        marks = {
            "meta.helm.sh/release-name": self._release.name,
            "meta.helm.sh/release-namespace": self._release.namespace,
        }
        labels = {**(metadata.get("labels") or {}), "app.kubernetes.io/managed-by": "Helm"}
        annotations = {**(metadata.get("annotations") or {}), **marks}
        return {**content, "metadata": {**metadata, "labels": labels, "annotations": annotations}}

    def _is_ours(self, owner: FieldOwner) -> bool:
        return self._migrates and owner.updates and owner.manager == MANAGER

    def _cannot_leave(self, name: str, owners: list[FieldOwner]) -> PreflightProblem:
        fields = ", ".join(f"{each.field} ({each.manager})" for each in owners[:5])
        return PreflightProblem(
            "Conflict", f"{name}: {fields} cannot be left to its owner, because Helm itself sets it: use take"
        )

    def _judge(
        self, error: ApiError | None, name: str
    ) -> tuple[tuple[PreflightProblem, ...], tuple[str, ...]]:
        """Return an error as problems, or as notices if it says nothing about the object."""
        if error is None:
            return (), ()
        text = " ".join(redact(printable(error.message), self._secrets).split())[:_LONGEST]
        if _NO_DRY_RUN in text:
            return (), (f"{name} cannot be tried: {text}",)
        if isinstance(error, NotFound) and error.status.details and "role" in error.status.details.kind:
            return (), ()  # a binding to a role of the same manifest, which is applied before it
        return (PreflightProblem(_check(error), f"{name}: {text}"),), ()


def _additions(
    content: Mapping[str, Any], applied: Mapping[str, Any], name: str
) -> tuple[FieldConflict, ...]:
    """Return the fields of a pod template that others have added, named as the health of the release names them."""
    owners = (applied.get("metadata") or {}).get("managedFields")
    fields = itertools.islice(template_additions(content, owners, MANAGER), _MOST_ADDITIONS)
    return tuple(FieldConflict(name, field, clean_text(manager)) for field, manager in fields)


def _sentences(name: str, additions: Iterable[FieldConflict]) -> Iterator[str]:
    """Yield a sentence for each manager whose own fields of a pod template an upgrade would leave as they are."""
    fields: dict[str, list[str]] = {}
    for each in additions:
        fields.setdefault(each.manager, []).append(each.field)
    for manager, own in fields.items():
        more = f" and {len(own) - 3} more" if len(own) > 3 else ""
        text = (
            f"{manager} has set {', '.join(own[:3])}{more}, which the chart does not; the upgrade leaves that"
        )
        yield f"{name}: {' '.join(redact(printable(text)).split())[:_LONGEST]}"


def _without_fields(content: dict[str, Any], owners: list[FieldOwner]) -> dict[str, Any] | None:
    """Return the object without these fields, None if it does not have one of them."""
    for each in owners:
        rest = without_field(content, each.field)
        if rest is None:
            return None
        content = rest
    return content


def _check(error: ApiError) -> str:
    if _NO_RIGHT.search(error.message):
        return "Rights"
    if isinstance(error, Forbidden) or _DENIED.search(error.message):
        return "AdmissionDenied"
    if isinstance(error, InternalError):
        return "AdmissionFailed"
    return "Conflict" if isinstance(error, Conflict) else "InvalidObject"
