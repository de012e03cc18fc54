"""Validation of CustomResourceDefinitions: names, versions, subresources, columns, conversion.

kube-apiserver validates its internal form, which has the fields that all versions share at the top of the
spec: a single-version CRD therefore reports `spec.validation.openAPIV3Schema...`, and so does this module.
"""

from __future__ import annotations

import functools
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kapsa.devcluster.embedded.kinds.names import dns1035_label, dns1123_subdomain
from kapsa.schemas import field_errors
from kapsa.schemas.crd_schema import find_field, unrecognized_formats, validate_schema
from kapsa.schemas.crd_structs import version_struct
from kapsa.schemas.field_errors import FieldError

__all__ = ["set_defaults", "validate_definition", "validate_definition_update", "warnings"]

CRD = dict[str, Any]
_SHARED = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MAX_SELECTABLE_FIELDS = 8
_APPROVED = "api-approved.kubernetes.io"
_APPROVAL_TEXT = "see https://github.com/kubernetes/enhancements/pull/1111"


def set_defaults(crd: CRD) -> None:
    """Set the fields that the server defaults on decoding."""
    spec = crd.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if not names.get("singular") and names.get("kind"):
        names["singular"] = names["kind"].lower()
    if not names.get("listKind") and names.get("kind"):
        names["listKind"] = f"{names['kind']}List"
    if not spec.get("conversion"):
        spec["conversion"] = {"strategy": "None"}
    service = ((spec["conversion"].get("webhook") or {}).get("clientConfig") or {}).get("service")
    if service is not None:
        service.setdefault("port", 443)


def validate_definition(crd: CRD) -> list[FieldError]:
    """Return the errors in a new CRD, including its name."""
    spec = crd.get("spec") or {}
    expected = f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group', '')}"
    errors: list[FieldError] = []
    name = crd["metadata"].get("name", "")
    if name != expected:
        text = 'must be spec.names.plural+"."+spec.group'
        errors.append(field_errors.invalid("metadata.name", name, text))
    return [*errors, *_validate(crd, spec, None)]


def validate_definition_update(crd: CRD, old: CRD) -> list[FieldError]:
    """Return the errors in an updated CRD.

    Group, plural and, once established, kind and scope are immutable.
    """
    spec, before = crd.get("spec") or {}, old["spec"]
    errors = _validate(crd, spec, old)
    fixed = [("group",), ("names", "plural")]
    if _is_established(old):
        fixed = [("scope",), ("names", "kind"), *fixed]
    for keys in fixed:
        now, then = _dig(spec, keys), _dig(before, keys)
        if now != then:
            errors.append(field_errors.invalid(f"spec.{'.'.join(keys)}", now or "", "field is immutable"))
    return errors


def warnings(crd: CRD, old: CRD | None) -> list[str]:
    """Return a warning for each unrecognized format that a write adds."""
    before = set(_formats(old)) if old is not None else set()
    return [f'unrecognized format "{name}"' for name in _formats(crd) if name not in before]


def _formats(crd: CRD) -> list[str]:
    spec = _hoisted(crd["spec"])
    schemas = [spec.get("validation"), *(version.get("schema") for version in spec.get("versions") or ())]
    return [
        name for schema in schemas if schema for name in unrecognized_formats(schema.get("openAPIV3Schema"))
    ]


def _dig(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = (value or {}).get(key)
    return value


def _is_established(crd: CRD) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or []
    return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)


def _hoisted(spec: CRD) -> CRD:
    """Return the spec in kube-apiserver's internal form: fields that all versions share are at its top."""
    versions = [dict(version) for version in spec.get("versions") or ()]
    hoisted = {**spec, "versions": versions}
    for key, name in _SHARED.items():
        values = [version.get(key) for version in versions]
        if versions and all(value == values[0] for value in values):
            hoisted[name] = values[0]
            for version in versions:
                version.pop(key, None)
    return hoisted


def _validate(crd: CRD, raw_spec: CRD, old: CRD | None) -> list[FieldError]:
    spec = _hoisted(raw_spec)
    errors = _group_and_scope(spec)
    errors += _missing_schemas(spec)
    errors += _versions(spec)
    errors += _names(spec.get("names") or {}, "spec.names", needed=True)
    errors += _schema(spec.get("validation"), "spec.validation", _status_enabled(spec.get("subresources")))
    errors += _subresources(spec.get("subresources"), "spec.subresources")
    errors += _columns(spec.get("additionalPrinterColumns"), "spec.additionalPrinterColumns")
    errors += _selectable(spec.get("selectableFields"), spec.get("validation"), "spec.selectableFields")
    errors += _conversion(spec.get("conversion") or {})
    errors += _stored_versions(crd, spec)
    errors += _approval(crd, old)
    if spec.get("preserveUnknownFields"):
        text = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true "
            "in spec.versions[*].schema instead"
        )
        errors.append(field_errors.invalid("spec.preserveUnknownFields", True, text))
    return errors


def _group_and_scope(spec: CRD) -> list[FieldError]:
    errors: list[FieldError] = []
    group, scope = spec.get("group") or "", spec.get("scope") or ""
    if not group:
        errors.append(field_errors.required("spec.group"))
    elif problems := dns1123_subdomain(group):
        errors.append(field_errors.invalid("spec.group", group, ",".join(problems)))
    elif "." not in group:
        errors.append(field_errors.invalid("spec.group", group, "should be a domain with at least one dot"))
    if not scope:
        errors.append(field_errors.required("spec.scope"))
    elif scope not in ("Cluster", "Namespaced"):
        errors.append(field_errors.not_supported("spec.scope", scope, ("Cluster", "Namespaced")))
    return errors


def _missing_schemas(spec: CRD) -> list[FieldError]:
    if (spec.get("validation") or {}).get("openAPIV3Schema") is not None:
        return []
    return [
        field_errors.required(f"spec.versions[{index}].schema.openAPIV3Schema")
        for index, version in enumerate(spec["versions"])
        if (version.get("schema") or {}).get("openAPIV3Schema") is None
    ]


def _versions(spec: CRD) -> list[FieldError]:
    errors: list[FieldError] = []
    versions = spec["versions"]
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        name = version.get("name") or ""
        if problems := dns1035_label(name):
            errors.append(field_errors.invalid(f"{path}.name", name, ",".join(problems)))
        errors += _deprecation(version, f"{path}.deprecationWarning")
        subresources = version.get("subresources") or spec.get("subresources")
        errors += _schema(version.get("schema"), f"{path}.schema", _status_enabled(subresources))
        errors += _subresources(version.get("subresources"), f"{path}.subresources")
        errors += _columns(version.get("additionalPrinterColumns"), f"{path}.additionalPrinterColumns")
        errors += _selectable(
            version.get("selectableFields"), version.get("schema"), f"{path}.selectableFields"
        )
    if versions and (problems := dns1035_label(versions[0].get("name") or "")):
        errors.append(field_errors.invalid("spec.version", versions[0].get("name", ""), ",".join(problems)))
    names = [version.get("name") for version in versions]
    if len(set(names)) != len(names):
        errors.append(_about_versions(versions, "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        errors.append(_about_versions(versions, "must have exactly one version marked as storage version"))
    return errors


def _about_versions(versions: list[CRD], text: str) -> FieldError:
    return field_errors.invalid("spec.versions", [version_struct(version) for version in versions], text)


def _deprecation(version: CRD, path: str) -> list[FieldError]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return []
    texts: list[str] = []
    if not version.get("deprecated"):
        texts = ["can only be set for deprecated versions"]
    else:
        if len(warning.encode()) > 256:
            texts.append("must be <= 256 characters long")
        if not warning:
            texts.append("must not be an empty string")
        index = next((at for at, character in enumerate(warning) if not character.isprintable()), None)
        if index is not None:
            texts.append(
                "must only contain printable UTF-8 characters; "
                f"non-printable character found at index {index}"
            )
    return [field_errors.invalid(path, warning, text) for text in texts]


def _status_enabled(subresources: CRD | None) -> bool:
    return subresources is not None and subresources.get("status") is not None


def _schema(validation: CRD | None, path: str, status_enabled: bool) -> list[FieldError]:
    schema = (validation or {}).get("openAPIV3Schema")
    if schema is None:
        return []
    return list(_schema_errors(msgspec.json.encode(schema), f"{path}.openAPIV3Schema", status_enabled))


@functools.lru_cache(maxsize=128)
def _schema_errors(schema: bytes, path: str, status_enabled: bool) -> tuple[FieldError, ...]:
    """Return the errors in a schema, cached by its text.

    Tests define the same kinds again and again, and compiling a schema's rules is most of that cost.
    """
    return tuple(validate_schema(msgspec.json.decode(schema), path, status_enabled=status_enabled))


def _names(names: CRD, path: str, *, needed: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    if needed:
        errors += [
            field_errors.required(f"{path}.{key}")
            for key in ("plural", "singular", "kind", "listKind")
            if not names.get(key)
        ]
    for key in ("plural", "singular"):
        if names.get(key) and (problems := dns1035_label(names[key])):
            errors.append(field_errors.invalid(f"{path}.{key}", names[key], ",".join(problems)))
    for key in ("kind", "listKind"):
        if names.get(key) and (problems := dns1035_label(names[key].lower())):
            text = f"may have mixed case, but should otherwise match: {','.join(problems)}"
            errors.append(field_errors.invalid(f"{path}.{key}", names[key], text))
    if names.get("kind") and names["kind"] == names.get("listKind"):
        text = "kind and listKind may not be the same"
        errors.append(field_errors.invalid(f"{path}.listKind", names["listKind"], text))
    for key in ("shortNames", "categories"):
        errors += [
            field_errors.invalid(f"{path}.{key}[{index}]", name, ",".join(problems))
            for index, name in enumerate(names.get(key) or ())
            if (problems := dns1035_label(name))
        ]
    return errors


def _json_path(text: str, path: str) -> list[FieldError]:
    if not text.startswith("."):
        return [field_errors.invalid(path, text, "must be a simple json path starting with .")]
    return []


def _subresources(subresources: CRD | None, path: str) -> list[FieldError]:
    scale = (subresources or {}).get("scale")
    if scale is None:
        return []
    errors: list[FieldError] = []
    for key, root in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        where, value = f"{path}.scale.{key}", scale.get(key) or ""
        if not value:
            errors.append(field_errors.required(where))
        else:
            problems = _json_path(value, where)
            if not problems and not value.startswith(root):
                problems = [field_errors.invalid(where, value, f"should be a json path under {root[:-1]}")]
            errors += problems
    selector = scale.get("labelSelectorPath")
    if selector:
        where = f"{path}.scale.labelSelectorPath"
        problems = _json_path(selector, where)
        if not problems and not selector.startswith((".spec.", ".status.")):
            text = "should be a json path under either .spec or .status"
            problems = [field_errors.invalid(where, selector, text)]
        errors += problems
    return errors


def _columns(columns: list[CRD] | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, column in enumerate(columns or ()):
        where = f"{path}[{index}]"
        if not column.get("name"):
            errors.append(field_errors.required(f"{where}.name"))
        type_, types = column.get("type"), f"must be one of {','.join(_COLUMN_TYPES)}"
        if not type_:
            errors.append(field_errors.required(f"{where}.type", types))
        elif type_ not in _COLUMN_TYPES:
            errors.append(field_errors.invalid(f"{where}.type", type_, types))
        if column.get("format") and column["format"] not in _COLUMN_FORMATS:
            text = f"must be one of {','.join(_COLUMN_FORMATS)}"
            errors.append(field_errors.invalid(f"{where}.format", column["format"], text))
        if not column.get("jsonPath"):
            errors.append(field_errors.required(f"{where}.JSONPath"))
        else:
            errors += _json_path(column["jsonPath"], f"{where}.JSONPath")
    return errors


def _selectable(fields: list[CRD] | None, validation: CRD | None, path: str) -> list[FieldError]:
    if not fields:
        return []
    schema = (validation or {}).get("openAPIV3Schema")
    if schema is None:
        return [field_errors.invalid(path, "", "may only be set when validations.schema is included")]
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, field in enumerate(fields):
        where, value = f"{path}[{index}].jsonPath", field.get("jsonPath") or ""
        if not value:
            errors.append(field_errors.required(where))
            continue
        target = find_field(schema, value) if value.startswith(".") and "[" not in value else None
        if target is None:
            errors.append(field_errors.invalid(where, value, _invalid_path(value)))
            continue
        if value.startswith(".metadata"):
            errors.append(field_errors.invalid(where, value, "must not point to fields in metadata"))
        if target.get("type") not in ("string", "boolean", "integer"):
            text = (
                "must point to a field of type string, boolean or integer. "
                "Enum string fields and strings with formats are allowed."
            )
            errors.append(field_errors.invalid(where, value, text))
        if value in seen:
            errors.append(field_errors.duplicate(where, value))
        seen.add(value)
    if len(seen) > _MAX_SELECTABLE_FIELDS:
        errors.append(field_errors.too_many(path, len(seen), _MAX_SELECTABLE_FIELDS))
    return errors


def _invalid_path(path: str) -> str:
    if not path.startswith("."):
        return f"is an invalid path: expected [ or . but got: {path.partition('.')[0]}"
    return "is an invalid path: does not refer to a valid field"


def _conversion(conversion: CRD) -> list[FieldError]:
    strategy = conversion.get("strategy") or ""
    if not strategy:
        return [field_errors.required("spec.conversion.strategy")]
    if strategy not in ("None", "Webhook"):
        return [field_errors.not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))]
    webhook = conversion.get("webhook") or {}
    if strategy == "None":
        text = "should not be set when strategy is not set to Webhook"
        return [
            field_errors.forbidden(f"spec.conversion.{name}", text)
            for name, key in (
                ("webhookClientConfig", "clientConfig"),
                ("conversionReviewVersions", "conversionReviewVersions"),
            )
            if webhook.get(key)
        ]
    return [*_client_config(webhook.get("clientConfig")), *_review_versions(webhook)]


def _client_config(config: CRD | None) -> list[FieldError]:
    path = "spec.conversion.webhookClientConfig"
    if config is None:
        return [field_errors.required(path, "required when strategy is set to Webhook")]
    if (config.get("url") is None) == (config.get("service") is None):
        return [field_errors.required(path, "exactly one of url or service is required")]
    if config.get("url") is not None:
        return webhook_url_problems(config["url"], f"{path}.url")
    return [
        field_errors.required(f"{path}.service.{key}", f"service {key} is required")
        for key in ("name", "namespace")
        if not config["service"].get(key)
    ]


def webhook_url_problems(url: str, path: str) -> list[FieldError]:
    """Return the errors in a webhook's URL: it must be https, without credentials, query or fragment."""
    form = "; desired format: https://host[/path]"
    parts = urlsplit(url)
    errors: list[FieldError] = []
    if parts.scheme != "https":
        text = f"'https' is the only allowed URL scheme{form}"
        errors.append(field_errors.invalid(path, parts.scheme, text))
    if not parts.netloc:
        errors.append(field_errors.invalid(path, parts.netloc, f"host must be specified{form}"))
    if parts.username or parts.password:
        text = "user information is not permitted in the URL"
        errors.append(field_errors.invalid(path, parts.username or "", text))
    if parts.fragment:
        text = "fragments are not permitted in the URL"
        errors.append(field_errors.invalid(path, parts.fragment, text))
    if parts.query:
        text = "query parameters are not permitted in the URL"
        errors.append(field_errors.invalid(path, parts.query, text))
    return errors


def _review_versions(webhook: CRD) -> list[FieldError]:
    path, versions = "spec.conversion.conversionReviewVersions", webhook.get("conversionReviewVersions") or []
    if not versions:
        return [field_errors.required(path)]
    errors: list[FieldError] = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            errors.append(field_errors.invalid(f"{path}[{index}]", version, "duplicate version"))
        else:
            texts = dns1035_label(version)
            errors += [field_errors.invalid(f"{path}[{index}]", version, text) for text in texts]
    if not {"v1", "v1beta1"} & set(versions):
        errors.append(field_errors.invalid(path, versions, "must include at least one of v1, v1beta1"))
    return errors


def _stored_versions(crd: CRD, spec: CRD) -> list[FieldError]:
    path, stored = "status.storedVersions", (crd.get("status") or {}).get("storedVersions") or []
    if not stored:
        return [field_errors.invalid(path, stored or None, "must have at least one stored version")]
    names = [version.get("name") for version in spec["versions"]]
    errors = [
        field_errors.invalid(path, stored, f"must have the storage version {version['name']}")
        for version in spec["versions"]
        if version.get("storage") and version["name"] not in stored
    ]
    for index, name in enumerate(stored):
        if name not in names:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} "
                f"and removes {name} from status.storedVersions"
            )
            errors.append(field_errors.invalid(f"{path}[{index}]", name, text))
    return errors


def _approval(crd: CRD, old: CRD | None) -> list[FieldError]:
    group = (crd.get("spec") or {}).get("group") or ""
    if not (f".{group}".endswith((".k8s.io", ".kubernetes.io"))):
        return []
    state, reason = _approval_state(crd)
    if old is not None and _approval_state(old)[0] == state:
        return []
    path = f"metadata.annotations[{_APPROVED}]"
    if state == "missing":
        return [field_errors.required(path, reason)]
    if state == "invalid":
        return [field_errors.invalid(path, crd["metadata"]["annotations"][_APPROVED], reason)]
    return []


def _approval_state(crd: CRD) -> tuple[str, str]:
    value = (crd["metadata"].get("annotations") or {}).get(_APPROVED) or ""
    needed = f'protected groups must have approval annotation "{_APPROVED}"'
    if not value:
        return "missing", f"{needed}, {_APPROVAL_TEXT}"
    if value.startswith("unapproved"):
        return "bypassed", f'not approved: "{value}"'
    parts = urlsplit(value)
    if parts.scheme and parts.netloc:
        return "approved", f"approved in {value}"
    either = 'with either a URL or a reason starting with "unapproved"'
    return "invalid", f"{needed} {either}, {_APPROVAL_TEXT}"
