"""Validation of a CRD's schema: structurality, then extensions, list keys, defaults and CEL rules."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kapsa.schemas import field_errors, string_formats
from kapsa.schemas.crd_structs import schema_struct
from kapsa.schemas.embedded_resources import validate_embedded
from kapsa.schemas.field_errors import FieldError
from kapsa.schemas.pruning import prune
from kapsa.schemas.rule_nodes import RuleNode
from kapsa.schemas.schema import Schema
from kapsa.schemas.structurality import validate_structural
from kapsa.schemas.validation import has_rules, validate_at

__all__ = ["unrecognized_formats", "validate_schema"]

Raw = dict[str, Any]
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_META = ("metadata", "kind", "apiVersion")
_NOT_SUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_LINE_BREAK = re.compile(r"[\n\r]")
_AT_ROOT_WITH_STATUS = {
    "description": "Description",
    "type": "Type",
    "format": "Format",
    "title": "Title",
    "maximum": "Maximum",
    "exclusiveMaximum": "ExclusiveMaximum",
    "minimum": "Minimum",
    "exclusiveMinimum": "ExclusiveMinimum",
    "maxLength": "MaxLength",
    "minLength": "MinLength",
    "pattern": "Pattern",
    "maxItems": "MaxItems",
    "minItems": "MinItems",
    "uniqueItems": "UniqueItems",
    "multipleOf": "MultipleOf",
    "required": "Required",
    "items": "Items",
    "properties": "Properties",
    "externalDocs": "ExternalDocs",
    "example": "Example",
    "x-kubernetes-preserve-unknown-fields": "XPreserveUnknownFields",
    "x-kubernetes-validations": "XValidations",
}


class _Surroundings(msgspec.Struct, frozen=True):
    """The constraints on a node that follow from its position in the schema."""

    no_defaults: str | None = None
    """The reason why defaults are forbidden here; None if they are allowed."""
    inside_metadata: bool = False
    uncorrelatable: str = ""
    """Path of the outermost list or map in which new values cannot be matched to old ones."""
    with_rules: bool = True
    """False below a logical junctor, where CEL rules are forbidden."""
    cardinality: int | None = 1
    """The most values of the node that an object can have, None if nothing bounds it."""

    def below_uncorrelatable(self, path: str) -> _Surroundings:
        return self if self.uncorrelatable else msgspec.structs.replace(self, uncorrelatable=path)

    def below(self, schema: Raw) -> _Surroundings:
        """Return the surroundings of the nodes below a schema, which may repeat them."""
        most: int | None = 1
        if schema.get("type") == "array":
            most = schema.get("maxItems")
        elif schema.get("type") == "object" and schema.get("additionalProperties") is not None:
            most = schema.get("maxProperties")
        if most == 1 or self.cardinality is None:
            return self
        return msgspec.structs.replace(
            self, cardinality=None if most is None else self.cardinality * max(0, most)
        )


def validate_schema(schema: Raw, path: str, *, status_enabled: bool) -> list[FieldError]:
    """Return all errors in the `openAPIV3Schema` of one version."""
    errors: list[FieldError] = []
    if status_enabled:
        errors += _root_with_status(schema, path)
    if schema.get("nullable"):
        errors.append(field_errors.forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    structural = validate_structural(schema, path) or _defaults(schema, path, root=True)
    errors += structural
    walk = _Walk()
    walk.node(schema, path, _Surroundings(), root=True)
    errors += walk.errors
    # Rules are compiled against the types of the schema, so it must be structural first.
    if structural or not walk.rules:
        return errors
    from kapsa.schemas.cel.rule_compilation import validate_rules

    return [*errors, *validate_rules(walk.rules, schema, path)]


def unrecognized_formats(schema: Any) -> list[str]:
    """Return the formats in a schema that validation ignores; kube-apiserver warns about them."""
    unrecognized: list[str] = []
    if not isinstance(schema, dict):
        return unrecognized
    format_, type_ = schema.get("format"), schema.get("type") or ""
    if format_:
        is_recognized = {
            "": lambda: string_formats.is_checked(format_),
            "string": lambda: string_formats.is_checked(format_),
            "integer": lambda: format_ in ("int32", "int64"),
            "number": lambda: format_ in ("float", "double"),
        }.get(type_)
        if is_recognized is None or not is_recognized():
            unrecognized.append(format_)
    for key in ("items", "not", "additionalProperties"):
        unrecognized += unrecognized_formats(schema.get(key))
    for key in ("allOf", "anyOf", "oneOf"):
        for branch in schema.get(key) or ():
            unrecognized += unrecognized_formats(branch)
    for child in (schema.get("properties") or {}).values():
        unrecognized += unrecognized_formats(child)
    return unrecognized


def _root_with_status(schema: Raw, path: str) -> list[FieldError]:
    if schema.get("type") and schema["type"] != "object":
        text = (
            'only "object" is allowed as the type at the root of the schema '
            "if the status subresource is enabled"
        )
        return [field_errors.invalid(f"{path}.type", schema["type"], text)]
    for name, value in schema.items():
        if value and name not in _AT_ROOT_WITH_STATUS:
            allowed = " ".join(_AT_ROOT_WITH_STATUS.values())
            text = (
                f"only [{allowed}] fields are allowed at the root of the schema "
                "if the status subresource is enabled"
            )
            return [field_errors.invalid(path, schema_struct(schema), text)]
    return []


class _Walk:
    """A pass over a schema that collects errors, and the rules to compile."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []
        self.rules: list[RuleNode] = []
        """The nodes with rules that have no errors, neither themselves nor below."""

    def node(self, schema: Any, path: str, surroundings: _Surroundings, *, root: bool = False) -> None:
        if not isinstance(schema, dict):
            return
        errors = self.errors
        before = len(errors)
        errors += _standard(schema, path, surroundings)
        if schema.get("uniqueItems"):
            text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            errors.append(field_errors.forbidden(f"{path}.uniqueItems", text))
        below = surroundings.below(schema)
        self._additional(schema, path, below)
        self._properties(schema, path, below, root=root)
        without_rules = msgspec.structs.replace(surroundings, with_rules=False)
        self.node(schema.get("not"), f"{path}.not", without_rules)
        for junctor in ("allOf", "oneOf", "anyOf"):
            for index, branch in enumerate(schema.get(junctor) or ()):
                self.node(branch, f"{path}.{junctor}[{index}]", without_rules)
        if schema.get("items"):
            keyed = schema.get("x-kubernetes-list-type") == "map"
            self.node(
                schema["items"],
                f"{path}.items",
                below if keyed else below.below_uncorrelatable(path),
            )
        errors += _map_and_list_types(schema, path)
        errors += _list_keys(schema, path)
        if schema.get("x-kubernetes-validations"):
            errors += _rule_texts(schema, path)
            if surroundings.with_rules and len(errors) == before:
                self.rules.append(
                    RuleNode(schema, path, surroundings.uncorrelatable, surroundings.cardinality)
                )

    def _additional(self, schema: Raw, path: str, surroundings: _Surroundings) -> None:
        additional = schema.get("additionalProperties")
        if additional is None:
            return
        if schema.get("properties") and additional is not True:
            text = "additionalProperties and properties are mutual exclusive"
            self.errors.append(field_errors.forbidden(f"{path}.additionalProperties", text))
        if surroundings.inside_metadata:
            reason = "inside additionalProperties applying to object metadata"
            surroundings = msgspec.structs.replace(surroundings, no_defaults=reason)
        self.node(additional, f"{path}.additionalProperties", surroundings)

    def _properties(self, schema: Raw, path: str, surroundings: _Surroundings, *, root: bool) -> None:
        for name, child in (schema.get("properties") or {}).items():
            inner = surroundings
            if (root or schema.get("x-kubernetes-embedded-resource")) and name in _META:
                inner = msgspec.structs.replace(inner, inside_metadata=True)
                if root:
                    inner = msgspec.structs.replace(inner, no_defaults=f"in top-level {name}")
            self.node(child, f"{path}.properties[{name}]", inner)


def _standard(schema: Raw, path: str, surroundings: _Surroundings) -> list[FieldError]:
    errors: list[FieldError] = []
    type_ = schema.get("type")
    if type_ and type_ not in _TYPES:
        errors.append(field_errors.not_supported(f"{path}.type", type_, _TYPES))
    if schema.get("default") is not None and surroundings.no_defaults is not None:
        errors.append(
            field_errors.forbidden(f"{path}.default", f"must not be set {surroundings.no_defaults}")
        )
    errors += [
        field_errors.forbidden(f"{path}.{name}", f"{name} is not supported")
        for name in _NOT_SUPPORTED
        if schema.get(name)
    ]
    if type_ == "null":
        text = "type cannot be set to null, use nullable as an alternative"
        errors.append(field_errors.forbidden(f"{path}.type", text))
    if isinstance(schema.get("items"), list):
        text = "items must be a schema object and not an array"
        errors.append(field_errors.forbidden(f"{path}.items", text))
    if surroundings.inside_metadata and schema.get("x-kubernetes-embedded-resource"):
        where = f"{path}.x-kubernetes-embedded-resource"
        errors.append(field_errors.forbidden(where, "must not be used inside of resource meta"))
    return errors


def _wrong_type(schema: Raw, path: str, expected: str, extension: str) -> list[FieldError]:
    text = f"must be {expected} if {extension} is specified"
    if not schema.get("type"):
        return [field_errors.required(f"{path}.type", text)]
    return [field_errors.invalid(f"{path}.type", schema["type"], text)]


def _map_and_list_types(schema: Raw, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    map_type, list_type = schema.get("x-kubernetes-map-type"), schema.get("x-kubernetes-list-type")
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        where = f"{path}.x-kubernetes-preserve-unknown-fields"
        errors.append(field_errors.invalid(where, False, "must be true or undefined"))
    if map_type is not None and schema.get("type") != "object":
        errors += _wrong_type(schema, path, "object", "x-kubernetes-map-type")
    if map_type not in (None, "atomic", "granular"):
        where = f"{path}.x-kubernetes-map-type"
        errors.append(field_errors.not_supported(where, map_type, ("atomic", "granular")))
    if list_type is not None and schema.get("type") != "array":
        errors += _wrong_type(schema, path, "array", "x-kubernetes-list-type")
    elif list_type == "set" and isinstance(schema.get("items"), dict):
        errors += _set_items(schema["items"], f"{path}.items")
    if list_type not in (None, "atomic", "set", "map"):
        where = f"{path}.x-kubernetes-list-type"
        errors.append(field_errors.not_supported(where, list_type, ("atomic", "set", "map")))
    return errors


def _set_items(items: Raw, path: str) -> list[FieldError]:
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    list_type = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        return [field_errors.invalid(f"{path}.x-kubernetes-list-type", list_type, text)]
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        return [field_errors.invalid(f"{path}.x-kubernetes-map-type", list_type, text)]
    return []


def _list_keys(schema: Raw, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    keys, list_type = schema.get("x-kubernetes-list-map-keys") or [], schema.get("x-kubernetes-list-type")
    if keys and list_type != "map":
        where, text = (
            f"{path}.x-kubernetes-list-type",
            "must be map if x-kubernetes-list-map-keys is non-empty",
        )
        missing = list_type is None
        errors.append(
            field_errors.required(where, text) if missing else field_errors.invalid(where, list_type, text)
        )
    items = schema.get("items")
    if list_type == "map":
        errors += _map_list(keys, items, path)
    if list_type in ("set", "map") and isinstance(items, dict) and items.get("nullable"):
        text = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        errors.append(field_errors.forbidden(f"{path}.items.nullable", text))
    if list_type == "map" and isinstance(items, dict):
        errors += _key_fields(keys, items, path)
    return errors


def _map_list(keys: list[str], items: Any, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if not keys:
        where = f"{path}.x-kubernetes-list-map-keys"
        errors.append(field_errors.required(where, "must not be empty if x-kubernetes-list-type is map"))
    if items is None:
        text = "must have a schema if x-kubernetes-list-type is map"
        return [*errors, field_errors.required(f"{path}.items", text)]
    if not isinstance(items, dict):
        return errors
    if items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        return [*errors, field_errors.invalid(f"{path}.items.type", items.get("type", ""), text)]
    for index, key in enumerate(keys):
        child = (items.get("properties") or {}).get(key)
        if child is None:
            text = "entries must all be names of item properties"
            errors.append(field_errors.invalid(f"{path}.x-kubernetes-list-map-keys", keys, text))
        elif child.get("type") in ("array", "object"):
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            errors.append(field_errors.invalid(f"{path}.items.properties[{key}].type", "object", text))
        if key in keys[:index]:
            where = f"{path}.x-kubernetes-list-map-keys"
            errors.append(field_errors.invalid(where, keys, "must not contain duplicate entries"))
    return errors


def _key_fields(keys: list[str], items: Raw, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for key in keys:
        child = (items.get("properties") or {}).get(key)
        if child is None:
            continue
        where = f"{path}.items.properties[{key}]"
        if key not in (items.get("required") or ()) and child.get("default") is None:
            text = (
                "this property is in x-kubernetes-list-map-keys, "
                "so it must have a default or be a required property"
            )
            errors.append(field_errors.required(f"{where}.default", text))
        if child.get("nullable"):
            text = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            errors.append(field_errors.forbidden(f"{where}.nullable", text))
    return errors


def _rule_texts(schema: Raw, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, rule in enumerate(schema["x-kubernetes-validations"]):
        where = f"{path}.x-kubernetes-validations[{index}]"
        text, message = rule.get("rule", "").strip(), rule.get("message", "")
        if not text:
            errors.append(field_errors.required(f"{where}.rule", "rule is not specified"))
        elif message and not message.strip():
            errors.append(field_errors.invalid(f"{where}.message", message, "must be non-empty if specified"))
        elif _LINE_BREAK.search(message.strip()):
            errors.append(field_errors.invalid(f"{where}.message", message, "must not contain line breaks"))
        elif _LINE_BREAK.search(text) and not message.strip():
            detail = "message must be specified if rule contains line breaks"
            errors.append(field_errors.required(f"{where}.message", detail))
        expression = rule.get("messageExpression", "")
        if expression and not expression.strip():
            detail = "messageExpression must be non-empty if specified"
            errors.append(field_errors.required(f"{where}.messageExpression", detail))
        if rule.get("reason") is not None and rule["reason"] not in _REASONS:
            errors.append(field_errors.not_supported(f"{where}.reason", rule["reason"], _REASONS))
        errors += _field_path(schema, rule.get("fieldPath", ""), f"{where}.fieldPath")
    return errors


def _field_path(schema: Raw, field_path: str, where: str) -> list[FieldError]:
    if not field_path:
        return []
    errors: list[FieldError] = []
    if not field_path.strip():
        errors.append(field_errors.invalid(where, field_path, "must be non-empty if specified"))
    if _LINE_BREAK.search(field_path):
        errors.append(field_errors.invalid(where, field_path, "must not contain line breaks"))
    if find_field(schema, field_path) is None:
        errors.append(field_errors.invalid(where, field_path, "must be a valid path"))
    return errors


_PATH_PART = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\['([^']+)'\]")


def find_field(schema: Raw, field_path: str) -> Raw | None:
    """Return the node at a CEL field path (`.spec.foo`, `.map['key']`), None if the path does not exist."""
    at = 0
    while at < len(field_path):
        part = _PATH_PART.match(field_path, at)
        if part is None:
            return None
        at = part.end()
        child = (schema.get("properties") or {}).get(part[1] or part[2])
        if child is None and isinstance(schema.get("additionalProperties"), dict):
            child = schema["additionalProperties"]
        if child is None:
            return None
        schema = child
    return schema


def _defaults(schema: Raw, path: str, *, root: bool = False) -> list[FieldError]:
    """Check that defaults have no unknown fields and are valid against their own schema."""
    errors: list[FieldError] = []
    default = schema.get("default")
    if default is not None and not root:
        errors += _default(schema, default, f"{path}.default")
    if isinstance(schema.get("items"), dict):
        errors += _defaults(schema["items"], f"{path}.items")
    for name, child in (schema.get("properties") or {}).items():
        errors += _defaults(child, f"{path}.properties[{name}]")
    return errors


def _default(schema: Raw, default: Any, path: str) -> list[FieldError]:
    parsed = Schema.from_node(schema)
    errors: list[FieldError] = []
    pruned = msgspec.json.decode(msgspec.json.encode(default))
    if isinstance(pruned, dict):
        prune(parsed, pruned)
    if pruned != default:
        errors.append(field_errors.invalid(path, default, "must not have unknown fields"))
    embedded = validate_embedded(parsed, default, path) if isinstance(default, dict) else []
    errors += embedded or validate_at(parsed, default, path)
    if not errors and has_rules(parsed):
        from kapsa.schemas.cel.rules import check_default

        errors += check_default(parsed, default, path)
    return errors
