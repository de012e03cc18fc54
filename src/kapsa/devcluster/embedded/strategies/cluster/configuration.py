"""ConfigMaps and Secrets."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from kapsa.devcluster.embedded.kinds.names import config_key
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.schemas.field_errors import FieldError, forbidden, invalid, required, too_long

_SIZE = 1024 * 1024
_REQUIRED_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_FROZEN = "field is immutable when `immutable` is set"


class ConfigMapStrategy(BuiltInStrategy):
    immutable_first = True

    def validate(self, obj: Object) -> list[FieldError]:
        errors, size = [], 0
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        for key, value in data.items():
            errors += [invalid(f"data[{key}]", key, problem) for problem in config_key(key)]
            if key in binary:
                errors.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
            size += len(value.encode())
        for key, value in binary.items():
            errors += [invalid(f"binaryData[{key}]", key, problem) for problem in config_key(key)]
            size += len(value) * 3 // 4
        if size > _SIZE:
            errors.append(too_long("[]", _SIZE))
        return errors

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        return _frozen(obj, old, ("data", "binaryData"))


class SecretStrategy(BuiltInStrategy):
    immutable_first = True

    def default(self, obj: Object) -> None:
        obj["type"] = obj.get("type") or "Opaque"
        plain = obj.pop("stringData", None)
        if plain:
            encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in plain.items()}
            obj["data"] = {**(obj.get("data") or {}), **encoded}

    def validate(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        data, size = obj.get("data") or {}, 0
        for key, value in data.items():
            errors += [invalid(f"data[{key}]", key, problem) for problem in config_key(key)]
            size += len(value or "") * 3 // 4
        if size > _SIZE:
            errors.append(too_long("data", _SIZE))
        kind = obj["type"]
        for key in _REQUIRED_KEYS.get(kind, ()):
            if key not in data:
                errors.append(required(f"data[{key}]"))
        if kind == "kubernetes.io/basic-auth" and "username" not in data and "password" not in data:
            errors += [required("data[username]"), required("data[password]")]
        if kind == "kubernetes.io/service-account-token":
            annotations = obj["metadata"].get("annotations") or {}
            if not annotations.get("kubernetes.io/service-account.name"):
                errors.append(required("metadata.annotations[kubernetes.io/service-account.name]"))
        if kind == "kubernetes.io/dockerconfigjson" and ".dockerconfigjson" in data:
            errors += _docker_config(data[".dockerconfigjson"])
        return errors

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        errors = []
        if obj["type"] != old["type"]:
            errors.append(invalid("type", obj["type"], "field is immutable"))
        return errors + _frozen(obj, old, ("data",))


def _docker_config(text: str) -> list[FieldError]:
    try:
        content = base64.b64decode(text)
        json.loads(content)
    except json.JSONDecodeError as error:
        why = _go_json_error(content.decode(errors="replace"), error)
    except (ValueError, binascii.Error):
        why = "invalid character looking for beginning of value"
    else:
        return []
    return [invalid("data[.dockerconfigjson]", "<secret contents redacted>", why)]


def _go_json_error(text: str, error: json.JSONDecodeError) -> str:
    """Return a decoding error in the words of Go's encoding/json."""
    if error.pos >= len(text):
        return "unexpected end of JSON input"
    character = text[error.pos]
    shown = f"\\x{ord(character):02x}" if ord(character) < 0x20 else character
    return f"invalid character '{shown}' looking for beginning of value"


def _frozen(obj: Object, old: Object, fields: tuple[str, ...]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    errors: list[FieldError] = []
    if not obj.get("immutable"):
        errors.append(forbidden("immutable", _FROZEN))
    errors += [forbidden(field, _FROZEN) for field in fields if _plain(obj, field) != _plain(old, field)]
    return errors


def _plain(obj: Object, field: str) -> dict[str, Any]:
    value: dict[str, Any] = obj.get(field) or {}
    return value
