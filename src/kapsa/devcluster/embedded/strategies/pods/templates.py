"""Pod templates: their defaults, and the warnings about them."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.pods.defaults import default_pod_spec
from kapsa.devcluster.embedded.strategies.pods.validation import validate_template
from kapsa.devcluster.embedded.strategies.pods.warnings import name_warnings, pod_spec_warnings
from kapsa.schemas.field_errors import FieldError


def default_template(obj: Object) -> None:
    """Set the defaults of `spec.template`."""
    template = (obj.get("spec") or {}).get("template")
    if isinstance(template, dict):
        default_pod_spec(template.setdefault("spec", {}))


class PodTemplateStrategy(BuiltInStrategy):
    """A strategy of a built-in kind with a pod template."""

    template: tuple[str, ...] = ("spec", "template")
    """Path of the pod template."""
    names_pods = False
    """True if the names of pods are derived from the object's name."""

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        if old is not None and not self._changes_template(obj, old):
            return []
        warnings = []
        if old is None and self.names_pods:
            warnings = name_warnings(obj["metadata"]["name"], "Pod names and hostnames")
        template: Any = obj
        for field in self.template:
            template = template.get(field) or {}
        return warnings + pod_spec_warnings(template.get("spec") or {}, ".".join((*self.template, "spec")))

    def _changes_template(self, obj: Object, old: Object) -> bool:
        """Return whether an update may change the template: any that raises the generation."""
        return bool(obj["metadata"].get("generation") != old["metadata"].get("generation"))


class StoredPodTemplateStrategy(PodTemplateStrategy):
    """Strategy of PodTemplates, which are nothing but a template."""

    template = ("template",)

    def default(self, obj: Object) -> None:
        default_pod_spec(obj.setdefault("template", {}).setdefault("spec", {}))

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_template(obj["template"], "template")
