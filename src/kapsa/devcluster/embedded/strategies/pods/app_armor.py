"""AppArmor annotations of pods: their format, and whether they agree with the fields that replaced them."""

from __future__ import annotations

from kapsa.devcluster.embedded.strategies.generic.builtin import Object
from kapsa.schemas.field_errors import FieldError, forbidden, invalid
from kapsa.schemas.go_format import quote

__all__ = ["PREFIX", "validate_annotations"]

PREFIX = "container.apparmor.security.beta.kubernetes.io/"
"""Beginning of the annotations; the rest is the name of a container."""
_LOCALHOST = "localhost/"
_PLAIN = {"runtime/default": "RuntimeDefault", "unconfined": "Unconfined"}
_GROUPS = ("initContainers", "containers", "ephemeralContainers")


def validate_annotations(pod: Object) -> list[FieldError]:
    """Return the errors in the AppArmor annotations of a new pod."""
    annotations = pod["metadata"].get("annotations") or {}
    profiles = {
        key.removeprefix(PREFIX): value for key, value in annotations.items() if key.startswith(PREFIX)
    }
    if not profiles:
        return []
    named = {each.get("name") for group in _GROUPS for each in pod["spec"].get(group) or ()}
    errors: list[FieldError] = []
    for name, profile in profiles.items():
        path = f"metadata.annotations[{PREFIX}{name}]"
        if name not in named:
            errors.append(invalid(path, name, "container not found"))
        if profile and profile not in _PLAIN and not profile.startswith(_LOCALHOST):
            errors.append(invalid(path, profile, f"invalid AppArmor profile name: {quote(profile)}"))
    return [*errors, *_mismatches(pod["spec"], profiles)]


def _mismatches(spec: Object, profiles: dict[str, str]) -> list[FieldError]:
    if (spec.get("os") or {}).get("name") == "windows":
        return []
    errors: list[FieldError] = []
    of_pod = (spec.get("securityContext") or {}).get("appArmorProfile")
    for group in _GROUPS:
        for index, container in enumerate(spec.get(group) or ()):
            field = (container.get("securityContext") or {}).get("appArmorProfile") or of_pod
            annotation = profiles.get(container.get("name", ""))
            if field is not None and annotation is not None:
                path = f"spec.{group}[{index}].securityContext.appArmorProfile"
                errors += _mismatch(field, annotation, path)
    return errors


def _mismatch(field: Object, annotation: str, path: str) -> list[FieldError]:
    if field.get("type") == "Localhost" and annotation.startswith(_LOCALHOST):
        if annotation.removeprefix(_LOCALHOST) == field.get("localhostProfile"):
            return []
        detail = "apparmor profile in annotation and field must match"
        return [forbidden(f"{path}.localhostProfile", detail)]
    if _PLAIN.get(annotation) == field.get("type"):
        return []
    return [forbidden(f"{path}.type", "apparmor type in annotation and field must match")]
