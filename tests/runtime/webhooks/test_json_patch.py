"""The JSON patch between two documents."""

from typing import Any

import pytest

from kapsa.runtime.webhooks._json_patch import difference


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [{"op": "replace", "path": "/a", "value": 2}]),
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
        ({"a/b~c": 1}, {}, [{"op": "remove", "path": "/a~1b~0c"}]),
        ({"l": [1, 2, 3]}, {"l": [1, 9]}, [
            {"op": "replace", "path": "/l/1", "value": 9}, {"op": "remove", "path": "/l/2"}]),
        ({"l": [1]}, {"l": [1, 2, 3]}, [
            {"op": "add", "path": "/l/-", "value": 2}, {"op": "add", "path": "/l/-", "value": 3}]),
        ({"a": {"b": 1}}, {"a": [1]}, [{"op": "replace", "path": "/a", "value": [1]}]),
        ({"a": None}, {"a": {}}, [{"op": "replace", "path": "/a", "value": {}}]),
    ],
)  # fmt: skip
def test_the_patch_between_two_documents(before: Any, after: Any, patch: list[Any]) -> None:
    assert difference(before, after) == patch
    from kapsa.devcluster.embedded.apply.json_patch import json_patch

    assert json_patch(before, patch) == after
