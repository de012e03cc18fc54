"""The types with which a mutation of an admission policy builds its result: `Object{...}` and `JSONPatch{...}`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from kapsa.schemas.cel.declared_types import DeclaredType, Field
from kapsa.schemas.cel.language import types
from kapsa.schemas.cel.language.types import Type
from kapsa.schemas.cel.library.signatures import Functions, function

__all__ = ["JSON_PATCHES", "OBJECT", "PATCH_FUNCTIONS", "patch_type"]

_ANYTHING = DeclaredType(scalar=types.DYN)
_TEXT = DeclaredType(scalar=types.STRING)


class _AnyFields(Mapping[str, Field]):
    """The fields of an object without a schema: each name is a field of any type."""

    def __getitem__(self, name: str) -> Field:
        return Field(name, _ANYTHING)

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _AnyObject:
    """The declaration of an object without a schema."""

    fields: Mapping[str, Field] = _AnyFields()


_PATCH = DeclaredType(
    fields={
        **{name: Field(name, _TEXT) for name in ("op", "from", "path")},
        "value": Field("value", _ANYTHING),
    }
)


@lru_cache(maxsize=1024)
def patch_type(name: str) -> Type | None:
    """Return the type of this name: JSONPatch, Object, or one for each path of fields such as Object.spec."""
    if name == "JSONPatch":
        return types.struct(name, _PATCH)
    if name == "Object" or name.startswith("Object."):
        return types.struct(name, _AnyObject())
    return None


OBJECT = types.struct("Object", _AnyObject())
JSON_PATCHES = types.list_of(types.struct("JSONPatch", _PATCH))


def _escape_key(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


PATCH_FUNCTIONS: Functions = {
    "jsonpatch.escapeKey": [function("string_jsonpatch_escapeKey_string", "string", "string", _escape_key)]
}
