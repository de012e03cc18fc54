"""PodSecurity: rejects pods that violate the level of their namespace, and warns about templates that do."""

from __future__ import annotations

from kapsa.devcluster.embedded.admission.plugin import Object, Plugin
from kapsa.devcluster.embedded.admission.pod_security.levels import Level, NamespacePolicy, policy_of
from kapsa.devcluster.embedded.admission.pod_security.pod import Violation
from kapsa.devcluster.embedded.admission.pod_security.violations import violations_of
from kapsa.devcluster.embedded.requests.mutations import WriteRequest
from kapsa.devcluster.wire import status_errors as errors
from kapsa.schemas import go_format

__all__ = ["PodSecurity"]

_TEMPLATES = {
    ("", "replicationcontrollers"): ("spec", "template"),
    ("", "podtemplates"): ("template",),
    ("apps", "replicasets"): ("spec", "template"),
    ("apps", "deployments"): ("spec", "template"),
    ("apps", "statefulsets"): ("spec", "template"),
    ("apps", "daemonsets"): ("spec", "template"),
    ("batch", "jobs"): ("spec", "template"),
    ("batch", "cronjobs"): ("spec", "jobTemplate", "spec", "template"),
}
"""Path to the pod template of each kind."""
_IGNORED = frozenset({"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"})
_MOST_PODS = 3000
"""Pods of a namespace that are checked when its level becomes stricter."""


class PodSecurity(Plugin):
    """The PodSecurity plugin of the real server, with its default configuration: no exemptions."""

    resources = frozenset({("", "pods"), ("", "namespaces"), *_TEMPLATES})

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        key = (write.info.group, write.info.resource)
        if key == ("", "namespaces"):
            if not write.subresource:
                self._check_namespace(write, obj, old)
        elif key == ("", "pods"):
            if write.subresource not in _IGNORED and (old is None or _runs_other_images(obj, old)):
                self._check_pod(write, obj)
        elif not write.subresource:
            self._check_template(write, obj, _TEMPLATES[key])

    # Pods and templates

    def _check_pod(self, write: WriteRequest, pod: Object) -> None:
        policy = self._policy(write.namespace)
        if policy.is_privileged:
            return
        violations = violations_of(policy.enforce, pod["metadata"], pod["spec"])
        if violations:
            why = f"violates PodSecurity {go_format.quote(str(policy.enforce))}: {_text(violations)}"
            raise errors.forbidden(write.info, write.name, why)
        self._warn(write, policy.warn, pod["metadata"], pod["spec"])

    def _check_template(self, write: WriteRequest, obj: Object, path: tuple[str, ...]) -> None:
        policy = self._policy(write.namespace)
        if policy.warn.is_privileged:
            return
        template = obj
        for field in path:
            template = template.get(field) or {}
        if template.get("spec"):
            self._warn(write, policy.warn, template.get("metadata") or {}, template["spec"])

    def _warn(self, write: WriteRequest, level: Level, metadata: Object, spec: Object) -> None:
        violations = violations_of(level, metadata, spec)
        if violations:
            write.warnings.append(
                f"would violate PodSecurity {go_format.quote(str(level))}: {_text(violations)}"
            )

    def _policy(self, namespace: str) -> NamespacePolicy:
        stored = self._backend.store.collection("", "namespaces").get(namespace)
        return _PRIVILEGED if stored is None or not stored.labels else policy_of(stored.labels)[0]

    # Namespaces

    def _check_namespace(self, write: WriteRequest, namespace: Object, old: Object | None) -> None:
        policy, problems = policy_of(namespace["metadata"].get("labels") or {})
        if old is None:
            if problems:
                raise errors.invalid(write.info, write.name, problems)
            return
        before, old_problems = policy_of(old["metadata"].get("labels") or {})
        if problems and problems != old_problems:
            raise errors.invalid(write.info, write.name, problems)
        level, previous = policy.enforce, before.enforce
        is_relaxed = level.minor == previous.minor and not level.is_stricter_than(previous)
        if not level.is_privileged and not is_relaxed:
            write.warnings.extend(self._violating_pods(write.name, level))

    def _violating_pods(self, namespace: str, level: Level) -> list[str]:
        """Return the warnings for a stricter level: which pods it would reject."""
        pods = _one_of_each_controller_first(self._objects("", "pods", namespace))
        names: dict[str, list[str]] = {}
        for pod in pods[:_MOST_PODS]:
            violations = violations_of(level, pod["metadata"], pod["spec"])
            if violations:
                reasons = ", ".join(violation.reason for violation in violations)
                names.setdefault(reasons, []).append(pod["metadata"]["name"])
        warnings = []
        if len(pods) > _MOST_PODS:
            checked = f"the first {_MOST_PODS} of {len(pods)} existing pods"
            warnings.append(f"new PodSecurity enforce level only checked against {checked}")
        if names:
            quoted = go_format.quote(namespace)
            warnings.append(
                f'existing pods in namespace {quoted} violate the new PodSecurity enforce level "{level}"'
            )
        return warnings + sorted(f"{_listed(named)}: {reasons}" for reasons, named in names.items())


_PRIVILEGED = NamespacePolicy()


def _text(violations: list[Violation]) -> str:
    return ", ".join(str(violation) for violation in violations)


def _listed(names: list[str]) -> str:
    others = len(names) - 1
    if not others:
        return names[0]
    return f"{min(names)} (and {others} other {'pod' if others == 1 else 'pods'})"


def _runs_other_images(pod: Object, old: Object) -> bool:
    """Return whether an update of a pod changes what it runs."""
    for field in ("containers", "initContainers"):
        after, before = pod["spec"].get(field) or [], old["spec"].get(field) or []
        if [each.get("image") for each in after] != [each.get("image") for each in before]:
            return True
    images = {each["name"]: each.get("image") for each in old["spec"].get("ephemeralContainers") or ()}
    return any(
        each["name"] not in images or images[each["name"]] != each.get("image")
        for each in pod["spec"].get("ephemeralContainers") or ()
    )


def _one_of_each_controller_first(pods: list[Object]) -> list[Object]:
    first: list[Object] = []
    rest: list[Object] = []
    seen: set[str] = set()
    for pod in pods:
        owners = [o["uid"] for o in pod["metadata"].get("ownerReferences") or () if o.get("controller")]
        (rest if owners and owners[0] in seen else first).append(pod)
        seen.update(owners[:1])
    return first + rest
