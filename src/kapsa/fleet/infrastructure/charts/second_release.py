"""The second release of blue-green: a chart's objects under names of their own, and at rest.

Whether a chart can have one is decided here alone: for the plan of a deployment, which refuses it with the reason, and
for the facts about a chart, which show the reason when it is registered.
"""

from collections.abc import Iterable
from typing import Any

from kapsa.fleet.domain.errors import InvalidField, InvalidInput
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.charts.scopes import Kinds
from kapsa.fleet.infrastructure.charts.suffixed_names import suffixed
from kapsa.fleet.infrastructure.operations.handover.idle_marks import rest

__all__ = ["blue_green_refusal", "second_release"]

Manifest = dict[str, Any]


def second_release(objects: Iterable[Manifest], release: ReleaseRef, cluster_scoped: Kinds) -> list[Manifest]:
    """Return the objects of a release next to the one that runs.

    Raises `InvalidInput` if an object cannot be renamed, or cannot be at rest.
    """
    listed = list(objects)
    for each in listed:
        if each["kind"] == "DaemonSet":
            name = each["metadata"].get("name", "")
            message = (
                f"BlueGreen cannot be used: DaemonSet {name} cannot be scaled to zero; use Canary or Rolling"
            )
            raise InvalidInput(message, InvalidField("/strategy", message))
    return [rest(each) for each in suffixed(listed, release, cluster_scoped)]


def blue_green_refusal(objects: Iterable[Manifest], release: ReleaseRef, cluster_scoped: Kinds) -> str:
    """Return why a chart cannot have a second release; empty if it can."""
    try:
        second_release(objects, release, cluster_scoped)
    except InvalidInput as error:
        return str(error)
    return ""
