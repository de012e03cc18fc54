"""Generated values that stay as they were deployed, over restarts of the operator and over commits.

The random part of a Secret's value, such as a database's password, is kept as long as the Secret exists, and is
the same in all other values. Another value, such as the checksum of such a Secret in an annotation, is kept while
the inputs of the rendering stay the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from kapsa.environments.namespace_objects.apply_set import PARENT, RENDERED_FROM, membership
from kapsa.environments.namespace_objects.copies import CONFIG_MAP, SECRET
from kapsa.environments.ports import Rendered
from kapsa.environments.render.generated_values import ValueAddress, kept_values, settle, value_at
from kapsa.environments.step_run import Manifest, StepRun
from kapsa.runtime import NotFound

__all__ = ["KeptValues"]


class KeptValues:
    """The generated values of environments, read from the cluster once per rendering."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, dict[ValueAddress, Any], list[str]]] = {}

    async def settle(self, visit: StepRun, made: Rendered, objects: Sequence[Manifest]) -> None:
        """Set the generated values of the objects, in place, to those that are deployed."""
        if not made.generated:
            return
        uid, visit.render_inputs = visit.environment.metadata.uid, made.inputs
        inputs, values, warnings = self._kept.get(uid, ("", {}, []))
        if inputs != made.inputs:
            values, warnings = kept_values(objects, made.generated, await _deployed(visit, made))
        visit.warnings = (*visit.warnings, *warnings)
        self._kept[uid] = made.inputs, settle(objects, made.generated, values), warnings

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a deleted environment."""
        self._kept.pop(uid, None)


async def _deployed(visit: StepRun, made: Rendered) -> dict[ValueAddress, Any]:
    """Return the values that the cluster has and that stay."""
    parent = visit.ctx.get(CONFIG_MAP, PARENT, namespace=visit.namespace)
    annotations = (parent["metadata"].get("annotations") or {}) if parent is not None else {}
    same = annotations.get(RENDERED_FROM) == made.inputs
    kept = [each for each in made.generated if same or each.kind == SECRET]
    live = {identity: await _live(visit, *identity) for identity in {(each.kind, each.name) for each in kept}}
    return {each.address: value_at(live[each.kind, each.name], each.path) for each in kept}


async def _live(visit: StepRun, kind: str, name: str) -> Manifest | None:
    """Return an object of the environment; None if it is not there, or not one that was rendered."""
    live = visit.ctx.get(kind, name, namespace=visit.namespace)
    if live is None or not membership(visit).items() <= (live["metadata"].get("labels") or {}).items():
        return None
    if kind not in (SECRET, CONFIG_MAP):
        return live
    with contextlib.suppress(NotFound):  # the cache has no content of these
        content: Manifest = await visit.ctx.client.get(kind, name, namespace=visit.namespace)
        return content
    return None
