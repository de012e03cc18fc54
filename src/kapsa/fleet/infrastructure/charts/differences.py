"""The difference between two renders: which objects, and never their content, which may be secret."""

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["differences"]

_MOST = 100


def differences(
    rendered: Iterable[Mapping[str, Any]], installed: Iterable[Mapping[str, Any]], namespace: str
) -> tuple[str, ...]:
    """Return the objects that only one side has, or that both have with another content, sorted."""
    ours, theirs = _by_name(rendered, namespace), _by_name(installed, namespace)
    changes = [f"{name} is only in the chart" for name in ours.keys() - theirs.keys()]
    changes += [f"{name} is only in the release" for name in theirs.keys() - ours.keys()]
    changes += [f"{name} differs" for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]]
    return tuple(sorted(changes)[:_MOST])


def _by_name(objects: Iterable[Mapping[str, Any]], namespace: str) -> dict[str, Mapping[str, Any]]:
    return {
        f"{each['kind']} {each['metadata'].get('namespace') or namespace}/{each['metadata'].get('name', '')}": each
        for each in objects
    }
