"""The JSON patch (RFC 6902) between two documents."""

from typing import Any

__all__ = ["difference"]

Operation = dict[str, Any]


def difference(before: Any, after: Any, path: str = "") -> list[Operation]:
    """Return the operations that turn `before` into `after`."""
    if type(before) is type(after):
        if isinstance(before, dict):
            return _of_objects(before, after, path)
        if isinstance(before, list):
            return _of_lists(before, after, path)
    if type(before) is type(after) and before == after:
        return []
    return [{"op": "replace", "path": path, "value": after}]


def _of_objects(before: dict[str, Any], after: dict[str, Any], path: str) -> list[Operation]:
    operations: list[Operation] = [
        {"op": "remove", "path": f"{path}/{_escape(name)}"} for name in before if name not in after
    ]
    for name, value in after.items():
        where = f"{path}/{_escape(name)}"
        if name not in before:
            operations.append({"op": "add", "path": where, "value": value})
        else:
            operations += difference(before[name], value, where)
    return operations


def _of_lists(before: list[Any], after: list[Any], path: str) -> list[Operation]:
    operations: list[Operation] = []
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        operations += difference(old, new, f"{path}/{index}")
    # From the end, so that the remaining indexes stay valid.
    operations += [
        {"op": "remove", "path": f"{path}/{index}"} for index in range(len(before) - 1, len(after) - 1, -1)
    ]
    operations += [{"op": "add", "path": f"{path}/-", "value": value} for value in after[len(before) :]]
    return operations


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
