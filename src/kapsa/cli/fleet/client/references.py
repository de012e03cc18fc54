"""References to objects: ids that people abbreviate, and names that the shell completes."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

from kapsa.cli.fleet.client.connection import connect
from kapsa.cli.fleet.client.manager_api import ManagerApi
from kapsa.cli.fleet.client.profile import Profile, profile_path
from kapsa.cli.target import TargetError

__all__ = [
    "complete_clusters",
    "complete_crds",
    "complete_deployments",
    "complete_operators",
    "complete_pending_approvals",
    "find_approval",
    "find_deployment",
    "short_id",
]

RECENT = 1000
"""The newest objects that an abbreviated id is looked for among."""
_SHORTEST = 4
_COMPLETIONS = 100
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_APPROVAL_STATES = ("Pending", "Approved", "Used", "Rejected", "Void", "Expired")


def short_id(identifier: object) -> str:
    """Return the beginning of an id, which is enough to refer to a recent object."""
    return str(identifier)[:8]


async def find_deployment(api: ManagerApi, text: str) -> str:
    """Return the id of the deployment whose id is `text`, or begins with it. Raises TargetError unless there is one."""
    return _full_id(text) or _only(
        "deployment",
        text,
        [each["id"] async for each in _beginning(api.items("/deployments", limit=RECENT), text)],
    )


async def find_approval(api: ManagerApi, text: str) -> dict[str, Any]:
    """Return the approval whose id is `text`, or begins with it. Raises TargetError unless there is one."""
    matching: dict[str, dict[str, Any]] = {}
    for state in _APPROVAL_STATES:
        listed = api.items("/approvals", limit=RECENT, state=state)
        matching |= {each["id"]: each async for each in _beginning(listed, text)}
        if _full_id(text) in matching:
            break
    return matching[_only("approval", text, list(matching))]


async def _beginning(items: AsyncIterator[Any], text: str) -> AsyncIterator[Any]:
    if len(text) < _SHORTEST:
        raise TargetError(f"{text!r} is too short for an id: give at least its first {_SHORTEST} characters")
    async for each in items:
        if each["id"].startswith(text.lower()):
            yield each


def _full_id(text: str) -> str:
    try:
        return str(uuid.UUID(text)) if len(text) == 36 else ""
    except ValueError:
        return ""


def _only(kind: str, text: str, ids: list[str]) -> str:
    if len(ids) == 1:
        return ids[0]
    if not ids:
        raise TargetError(
            f"no {kind} among the newest {RECENT} has an id that begins with {text!r}: "
            f"`kapsa fleet {kind}s ls` lists them, `-o name` shows full ids"
        )
    raise TargetError(f"{len(ids)} {kind}s have an id that begins with {text!r}: give more of it")


# -- completion ------------------------------------------------------------------------------------------------


def _completer(path: str, field: str, **query: object) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        async def names(api: ManagerApi) -> list[str]:
            return [str(each[field]) async for each in api.items(path, limit=_COMPLETIONS, **query)]

        try:
            listed = connect(Profile.load(profile_path()), names)
        except Exception:  # a shell that completes has nowhere to show an error
            return []
        # Some shells evaluate what they are given: anything but a plain name is dropped.
        return [each for each in listed if each.startswith(incomplete) and _SAFE.fullmatch(each)]

    return complete


complete_operators = _completer("/operators", "name")
complete_clusters = _completer("/clusters", "name")
complete_crds = _completer("/crds", "name")
complete_deployments = _completer("/deployments", "id")
complete_pending_approvals = _completer("/approvals", "id", state="Pending")
