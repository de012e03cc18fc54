"""Names for the second release of blue-green: what both releases share a scope for carries the release's suffix.

Most charts name everything after the release, which ends in `-blue` or `-green` already. A name that does not follow
the release, because of the chart or of its values, is suffixed here, with the references to it. What cannot be
renamed is refused with the reason.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kapsa.fleet.domain.errors import InvalidField, InvalidInput
from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.charts.scopes import Kinds, is_crd

__all__ = ["suffixed"]

Manifest = dict[str, Any]
_RBAC = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_RENAMED = frozenset({*_RBAC, *_WEBHOOKS, "PriorityClass"})
"""Kinds whose references are known: role bindings, resource names of roles, and classes of pods."""
_LONGEST = 253


def suffixed(objects: Iterable[Manifest], release: ReleaseRef, cluster_scoped: Kinds) -> list[Manifest]:
    """Return the objects of a release, with names that no other release of the chart has.

    Raises `InvalidInput` if an object cannot be renamed.
    """
    listed = list(objects)
    names = {
        _key(each): _new_name(each, release) for each in listed if _is_shared(each, release, cluster_scoped)
    }
    renames = {key: new for key, new in names.items() if key[1] != new}
    if not renames:
        return listed
    for each in listed:
        _check_arguments(each, renames)
    return [_renamed(each, renames) for each in listed]


def _is_shared(manifest: Manifest, release: ReleaseRef, cluster_scoped: Kinds) -> bool:
    """Return whether two releases of the chart would meet in this object."""
    if is_crd(manifest):
        return False  # both releases use the one CRD
    group, slash, _ = str(manifest["apiVersion"]).partition("/")
    if (group if slash else "", manifest["kind"]) in cluster_scoped:
        return (manifest["kind"], manifest["metadata"].get("name")) != ("Namespace", release.namespace)
    return str(manifest["metadata"].get("namespace") or release.namespace) != release.namespace


def _new_name(manifest: Manifest, release: ReleaseRef) -> str:
    name = str(manifest["metadata"].get("name", ""))
    if release.name in name:
        return name
    new = f"{name}-{release.name.rpartition('-')[2]}"
    if manifest["kind"] not in _RENAMED:
        raise _refused(
            f"{manifest['kind']} {name} is shared by both releases, and other objects refer to its name"
        )
    if len(new) > _LONGEST:
        raise _refused(f"{manifest['kind']} {name} has a name that is too long for a suffix")
    return new


def _renamed(manifest: Manifest, renames: Mapping[tuple[str, str], str]) -> Manifest:
    new = renames.get(_key(manifest))
    changed = manifest if new is None else {**manifest, "metadata": {**manifest["metadata"], "name": new}}
    if changed["kind"] in ("ClusterRoleBinding", "RoleBinding"):
        reference = changed.get("roleRef") or {}
        role = renames.get((str(reference.get("kind")), str(reference.get("name"))))
        return changed if role is None else {**changed, "roleRef": {**reference, "name": role}}
    if changed["kind"] in ("ClusterRole", "Role") and changed.get("rules"):
        return {**changed, "rules": [_renamed_rule(rule, renames) for rule in changed["rules"]]}
    return _with_priority_class(changed, renames)


def _renamed_rule(rule: Manifest, renames: Mapping[tuple[str, str], str]) -> Manifest:
    """Return a rule that names renamed objects by their new names."""
    if not rule.get("resourceNames"):
        return rule
    resources = set(rule.get("resources") or ())
    new = {old: name for (kind, old), name in renames.items() if f"{kind.lower()}s" in resources}
    return {**rule, "resourceNames": [new.get(each, each) for each in rule["resourceNames"]]}


def _with_priority_class(manifest: Manifest, renames: Mapping[tuple[str, str], str]) -> Manifest:
    spec = manifest.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    pod = template.get("spec") if isinstance(template, dict) else None
    if not isinstance(spec, dict) or not isinstance(template, dict) or not isinstance(pod, dict):
        return manifest
    name = renames.get(("PriorityClass", str(pod.get("priorityClassName"))))
    if name is None:
        return manifest
    changed = {**template, "spec": {**pod, "priorityClassName": name}}
    return {**manifest, "spec": {**spec, "template": changed}}


def _check_arguments(manifest: Manifest, renames: Mapping[tuple[str, str], str]) -> None:
    """Refuse a controller that is given the name of a renamed webhook configuration, which it would not find."""
    for kind, old in renames:
        if kind not in _WEBHOOKS:
            continue
        token = re.compile(rf"(^|[\s=,/]){re.escape(old)}($|[\s,/])")
        if any(token.search(text) for text in _container_texts(manifest)):
            where = f"{manifest['kind']} {manifest['metadata'].get('name', '')}"
            raise _refused(f"{where} refers to {kind} {old} in its arguments or environment")


def _container_texts(manifest: Manifest) -> Iterator[str]:
    spec = manifest.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    pod = template.get("spec") if isinstance(template, dict) else None
    for container in pod.get("containers") or () if isinstance(pod, dict) else ():
        yield from (str(each) for each in [*(container.get("command") or ()), *(container.get("args") or ())])
        yield from (str(each.get("value", "")) for each in container.get("env") or ())


def _key(manifest: Manifest) -> tuple[str, str]:
    return str(manifest["kind"]), str(manifest["metadata"].get("name", ""))


def _refused(reason: str) -> InvalidInput:
    message = f"BlueGreen cannot be used: {reason}; use Canary or Rolling"
    return InvalidInput(message, InvalidField("/strategy", message))
