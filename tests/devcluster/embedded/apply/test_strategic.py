"""Strategic merge patch with a schema that has merge keys."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kapsa.devcluster.embedded.apply.strategic_patch import strategic_merge_patch
from kapsa.devcluster.wire.status_errors import StatusError
from kapsa.schemas.schema import Schema

TEXT = Schema(type="string")
ITEM = Schema(
    type="object", properties={"name": TEXT, "value": TEXT, "tags": Schema(type="array", items=TEXT)}
)
SCHEMA = Schema(
    type="object",
    properties={
        "items": Schema(type="array", items=ITEM, patch_strategy="merge", patch_merge_key="name"),
        "words": Schema(type="array", items=TEXT, patch_strategy="merge"),
        "plain": Schema(type="array", items=TEXT),
        "keyless": Schema(type="array", items=ITEM, patch_strategy="merge"),
        "map": Schema(type="object", additional=TEXT),
        "whole": Schema(type="object", additional=TEXT, patch_strategy="replace"),
        "union": Schema(type="object", properties={"a": TEXT, "b": TEXT}, patch_strategy="retainKeys"),
    },
)


def items(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


CASES: list[tuple[str, Any, Any, Any]] = [
    ("maps merge and null removes", {"map": {"a": "1", "b": "2"}}, {"map": {"a": None, "c": "3"}}, {"map": {"b": "2", "c": "3"}}),
    ("a map with the replace strategy is replaced", {"whole": {"a": "1"}}, {"whole": {"b": "2"}}, {"whole": {"b": "2"}}),
    ("$patch: replace replaces a map", {"map": {"a": "1"}}, {"map": {"$patch": "replace", "b": "2"}}, {"map": {"b": "2"}}),
    ("$patch: delete empties a map", {"map": {"a": "1"}}, {"map": {"$patch": "delete"}}, {"map": {}}),
    ("a list without a strategy is replaced", {"plain": ["a", "b"]}, {"plain": ["c"]}, {"plain": ["c"]}),
    ("scalars merge without duplicates", {"words": ["a", "b"]}, {"words": ["c", "b"]}, {"words": ["c", "a", "b"]}),
    ("items merge by key", {"items": [{"name": "a", "value": "1"}, {"name": "b"}]}, {"items": [{"name": "a", "tags": ["t"]}]}, {"items": [{"name": "a", "value": "1", "tags": ["t"]}, {"name": "b"}]}),
    ("a new item comes behind", {"items": items("a", "b")}, {"items": items("c")}, {"items": items("c", "a", "b")}),
    ("an item is deleted", {"items": items("a", "b")}, {"items": [{"$patch": "delete", "name": "a"}]}, {"items": items("b")}),
    ("deleting an absent item does nothing", {"items": items("a")}, {"items": [{"$patch": "delete", "name": "z"}]}, {"items": items("a")}),
    ("$patch: replace in a list replaces it", {"items": items("a", "b")}, {"items": [{"$patch": "replace"}, {"name": "c"}]}, {"items": items("c")}),
    ("items of a scalar list are deleted", {"words": ["a", "b", "c"]}, {"$deleteFromPrimitiveList/words": ["a", "c"]}, {"words": ["b"]}),
    ("the order list orders what is there", {"items": items("a", "b", "c")}, {"$setElementOrder/items": items("c", "a"), "items": []}, {"items": items("b", "c", "a")}),
    ("the order list without a list in the patch", {"items": items("a", "b")}, {"$setElementOrder/items": items("b", "a")}, {"items": items("b", "a")}),
    ("the order list with new items", {"items": items("a", "b")}, {"$setElementOrder/items": items("x", "b", "a"), "items": items("x")}, {"items": items("x", "b", "a")}),
    ("a new item takes the place of a deleted one", {"items": items("b", "c")}, {"$setElementOrder/items": items("a"), "items": [{"name": "a"}, {"name": "c", "$patch": "delete"}]}, {"items": items("b", "a")}),
    ("the order list of scalars", {"words": ["a", "b"]}, {"$setElementOrder/words": ["b", "c", "a"], "words": ["c"]}, {"words": ["b", "c", "a"]}),
    ("retainKeys clears the other fields", {"union": {"a": "1"}}, {"union": {"$retainKeys": ["b"], "b": "2"}}, {"union": {"b": "2"}}),
    ("a new value loses its directives and nulls", {}, {"map": {"a": None, "b": "1"}, "items": [{"name": "a"}, {"$patch": "delete", "name": "b"}]}, {"map": {"b": "1"}, "items": items("a")}),
    ("a null list is removed", {"items": items("a")}, {"items": None}, {}),
    ("another type replaces", {"map": {"a": "1"}}, {"map": "x"}, {"map": "x"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "doc", "patch", "expected"), CASES, ids=[case[0] for case in CASES])
def test_a_strategic_merge_patch(name: str, doc: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy((doc, patch))
    assert strategic_merge_patch(doc, patch, SCHEMA) == expected
    assert (doc, patch) == before


REJECTED: list[tuple[str, Any, Any, int, str]] = [
    ("an unknown directive", {"map": {"a": "1"}}, {"map": {"$patch": "x"}}, 500, "unknown patch type: x in map: map[$patch:x]"),
    ("merge as a list directive", {"items": items("a")}, {"items": [{"$patch": "merge", "name": "a"}]}, 500, "merging lists cannot yet be specified in the patch"),
    ("an item without its key", {"items": items("a")}, {"items": [{"value": "x"}]}, 500, "map: map[value:x] does not contain declared merge key: name"),
    ("a list without a merge key", {"keyless": items("a")}, {"keyless": items("b")}, 500, "cannot merge lists without merge key for struct"),
    ("mixed items", {"words": ["a"]}, {"words": [1]}, 500, "list element types are not identical: [[a] [1]]"),
    ("lists of lists", {"words": ["a"]}, {"words": [["a"]]}, 422, "the server rejected our request due to an error in our request"),
    ("retainKeys that omits a field", {"union": {"a": "1"}}, {"union": {"$retainKeys": ["a"], "b": "2"}}, 400, "invalid patch format of retainKeys"),
    ("retainKeys that is not a list", {"union": {"a": "1"}}, {"union": {"$retainKeys": "a"}}, 400, "invalid patch format of retainKeys"),
    ("a delete list without a name", {}, {"$deleteFromPrimitiveList": ["a"]}, 400, "invalid patch format of primitive list"),
    ("an order list without a name", {}, {"$setElementOrder": ["a"]}, 400, "invalid patch format of setElementOrder list"),
    ("an order that is not the patch's", {"items": items("a")}, {"$setElementOrder/items": items("b", "a"), "items": items("a", "b")}, 500, "The order in patch list:\n[map[name:a] map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:b] map[name:a]]\n"),
    ("an order list that is not a list", {"items": items("a")}, {"$setElementOrder/items": "x"}, 500, "expected a []interface {}, but received a string"),
    ("a list", {}, [], 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "doc", "patch", "code", "message"), REJECTED, ids=[case[0] for case in REJECTED]
)
def test_an_invalid_strategic_merge_patch_is_rejected(
    name: str, doc: Any, patch: Any, code: int, message: str
) -> None:
    with pytest.raises(StatusError) as caught:
        strategic_merge_patch(doc, patch, SCHEMA)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_custom_resources_do_not_support_strategic_merge_patch() -> None:
    with pytest.raises(StatusError, match="strategic merge patch format is not supported"):
        strategic_merge_patch({}, {}, None)
