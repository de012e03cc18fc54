"""Roles and their bindings."""

from __future__ import annotations

from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.generic.rules import dns_subdomain, label_selector, printed
from kapsa.schemas.field_errors import FieldError, invalid, not_supported, required

_GROUP = "rbac.authorization.k8s.io"


class RoleStrategy(BuiltInStrategy):
    def validate(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        for index, rule in enumerate(obj.get("rules") or ()):
            errors += _rule(rule, f"rules[{index}]", namespaced=self.info.namespaced)
        aggregation = obj.get("aggregationRule")
        return errors if aggregation is None else errors + _aggregation(aggregation)


def _aggregation(rule: Object) -> list[FieldError]:
    path, selectors = "aggregationRule.clusterRoleSelectors", rule.get("clusterRoleSelectors") or []
    if not selectors:
        return [required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")]
    errors: list[FieldError] = []
    for index, selector in enumerate(selectors):
        problems = label_selector(selector, f"{path}[{index}]")
        errors += problems
        if problems:
            errors.append(invalid(f"{path}[{index}]", None, "invalid label selector."))
    return errors


def _rule(rule: Object, path: str, *, namespaced: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    if not rule.get("verbs"):
        errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
    if rule.get("nonResourceURLs"):
        if namespaced:
            detail = "namespaced rules cannot apply to non-resource URLs"
            errors.append(invalid(f"{path}.nonResourceURLs", rule["nonResourceURLs"], detail))
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid(f"{path}.nonResourceURLs", rule["nonResourceURLs"], detail))
        return errors
    if not rule.get("apiGroups"):
        errors.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        errors.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return errors


class RoleBindingStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        reference = obj.setdefault("roleRef", {})
        reference["apiGroup"] = reference.get("apiGroup") or _GROUP
        for subject in obj.get("subjects") or ():
            if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
                subject["apiGroup"] = _GROUP

    def validate(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        reference = obj["roleRef"]
        if reference["apiGroup"] != _GROUP:
            errors.append(not_supported("roleRef.apiGroup", reference["apiGroup"], [_GROUP]))
        kinds = ("Role", "ClusterRole") if self.info.namespaced else ("ClusterRole",)
        if reference.get("kind") not in kinds:
            errors.append(not_supported("roleRef.kind", reference.get("kind") or "", kinds))
        if not reference.get("name"):
            errors.append(required("roleRef.name"))
        for index, subject in enumerate(obj.get("subjects") or ()):
            errors += self._subject(subject, f"subjects[{index}]")
        return errors

    def _subject(self, subject: Object, path: str) -> list[FieldError]:
        errors: list[FieldError] = []
        if not subject.get("name"):
            errors.append(required(f"{path}.name"))
        kind, group = subject.get("kind") or "", subject.get("apiGroup") or ""
        if kind == "ServiceAccount":
            if subject.get("name"):
                errors += dns_subdomain(subject["name"], f"{path}.name")
            if group:
                errors.append(not_supported(f"{path}.apiGroup", group, [""]))
            if not self.info.namespaced and not subject.get("namespace"):
                errors.append(required(f"{path}.namespace"))
        elif kind in ("User", "Group"):
            if group != _GROUP:
                errors.append(not_supported(f"{path}.apiGroup", group, [_GROUP]))
        else:
            errors.append(not_supported(f"{path}.kind", kind, ["ServiceAccount", "User", "Group"]))
        return errors

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        if obj["roleRef"] == old["roleRef"]:
            return []
        reference = obj["roleRef"]
        shown = (
            ("APIGroup", reference["apiGroup"]),
            ("Kind", reference.get("kind")),
            ("Name", reference.get("name")),
        )
        return [printed(invalid("roleRef", reference, "cannot change roleRef"), *shown)]
