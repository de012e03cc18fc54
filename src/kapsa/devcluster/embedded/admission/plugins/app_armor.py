"""AppArmor annotations, which became fields: a new pod's annotations are copied to the fields they stand for."""

from __future__ import annotations

from kapsa.devcluster.embedded.admission.plugin import Object, Plugin
from kapsa.devcluster.embedded.requests.mutations import WriteRequest
from kapsa.schemas.go_format import quote

__all__ = ["AppArmorAnnotations"]

_PREFIX = "container.apparmor.security.beta.kubernetes.io/"
_LOCALHOST = "localhost/"
_LONGEST = 4095
_TYPES = {"runtime/default": "RuntimeDefault", "unconfined": "Unconfined"}


class AppArmorAnnotations(Plugin):
    """The copies of annotations to fields. The real server's storage of pods makes them, after the webhooks."""

    resources = frozenset({("", "pods")})

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        annotations = obj["metadata"].get("annotations") or {}
        if old is not None or not any(key.startswith(_PREFIX) for key in annotations):
            return obj
        spec = obj["spec"]
        if (spec.get("os") or {}).get("name") == "windows":
            return obj
        pod_profile = (spec.get("securityContext") or {}).get("appArmorProfile")
        for group in ("initContainers", "containers", "ephemeralContainers"):
            for container in spec.get(group) or ():
                key = f"{_PREFIX}{container.get('name', '')}"
                if key in annotations and _copy(container, annotations[key], pod_profile):
                    path = f"metadata.annotations[{key}]"
                    text = f"{path}: deprecated since v1.30; use the {quote('appArmorProfile')} field instead"
                    write.warnings.append(text)
        return obj


def _copy(container: Object, annotation: str, pod_profile: Object | None) -> bool:
    """Copy an annotation to its container's field. Returns whether the annotation needs a warning."""
    context = container.get("securityContext") or {}
    if context.get("appArmorProfile") is not None:
        return False
    profile = _profile(annotation)
    if profile is not None and profile == pod_profile:
        return False
    if profile is not None:
        container["securityContext"] = {**context, "appArmorProfile": profile}
    return True


def _profile(annotation: str) -> Object | None:
    """Return the profile that an annotation names; None if it names none."""
    if annotation in _TYPES:
        return {"type": _TYPES[annotation]}
    name = annotation.removeprefix(_LOCALHOST)
    valid = annotation.startswith(_LOCALHOST) and name and name == name.strip() and len(name) <= _LONGEST
    return {"type": "Localhost", "localhostProfile": name} if valid else None
