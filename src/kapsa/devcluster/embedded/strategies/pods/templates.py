"""Pod templates: their defaults, and the warnings about them."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.pods.defaults import default_pod_spec
from kapsa.devcluster.embedded.strategies.pods.warnings import name_warnings, pod_spec_warnings


def default_template(obj: Object) -> None:
    """Set the defaults of `spec.template`."""
    template = (obj.get("spec") or {}).get("template")
    if isinstance(template, dict):
        default_pod_spec(template.setdefault("spec", {}))


class PodTemplateStrategy(BuiltInStrategy):
    """A built-in kind with a pod template."""

    template: tuple[str, ...] = ("spec", "template")
    """Path of the pod template."""
    names_pods = False
    """True if pods have names made from the object's."""

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        if old is not None and not self._changes_template(obj, old):
            return []
        found = []
        if old is None and self.names_pods:
            found = name_warnings(obj["metadata"]["name"], "Pod names and hostnames")
        at: Any = obj
        for field in self.template:
            at = at.get(field) or {}
        return found + pod_spec_warnings(at.get("spec") or {}, ".".join((*self.template, "spec")))

    def _changes_template(self, obj: Object, old: Object) -> bool:
        """Whether an update is one that the template is looked at for: any that raises the generation."""
        return bool(obj["metadata"].get("generation") != old["metadata"].get("generation"))
