"""LimitRanger: defaults, minima, maxima and ratios of the LimitRanges in a namespace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kapsa.devcluster.embedded.admission.plugin import Object, Plugin, forbidden
from kapsa.devcluster.embedded.admission.pod_amounts import pod_amounts
from kapsa.devcluster.embedded.requests.mutations import WriteRequest
from kapsa.schemas.quantities import parse

__all__ = ["LimitRanger"]

_PODS, _CLAIMS = ("", "pods"), ("", "persistentvolumeclaims")
_ANNOTATION = "kubernetes.io/limit-ranger"
_CONTAINERS = (("containers", "container"), ("initContainers", "init container"))


class LimitRanger(Plugin):
    """The LimitRanger plugin of the real server."""

    resources = frozenset({_PODS, _CLAIMS})

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        if write.info.resource == "pods" and _is_limited(write, old):
            for limits in self._limits(write):
                _set_defaults(obj, limits)
        return obj

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        if not _is_limited(write, old):
            return
        violations = _pod_violations if write.info.resource == "pods" else _claim_violations
        for limits in self._limits(write):
            problems = list(dict.fromkeys(violations(obj, limits)))
            if problems:
                text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
                raise forbidden(write, obj, text)

    def _limits(self, write: WriteRequest) -> Iterator[list[Object]]:
        """Yield the limits of each LimitRange of the namespace."""
        for limit_range in self._objects("", "limitranges", write.namespace):
            yield (limit_range.get("spec") or {}).get("limits") or []


def _is_limited(write: WriteRequest, old: Object | None) -> bool:
    if old is not None and old["metadata"].get("deletionTimestamp"):
        return False
    if write.subresource == "resize":
        return True
    # The containers of a pod are immutable, so that its updates need no check.
    return not write.subresource and (old is None or write.info.resource != "pods")


# Defaults


def _set_defaults(pod: Object, limits: list[Object]) -> None:
    requests: Object = {}
    maxima: Object = {}
    for limit in limits:
        if limit.get("type") == "Container":
            requests |= limit.get("defaultRequest") or {}
            maxima |= limit.get("default") or {}
    notes = [
        note
        for field, title in _CONTAINERS
        for container in pod["spec"].get(field) or ()
        for note in _default_container(container, title, requests, maxima)
    ]
    if notes:
        annotations = pod["metadata"].get("annotations") or {}
        text = f"LimitRanger plugin set: {'; '.join(notes)}"
        pod["metadata"]["annotations"] = {**annotations, _ANNOTATION: text}


def _default_container(container: Object, title: str, requests: Object, maxima: Object) -> Iterator[str]:
    resources = container.setdefault("resources", {})
    for field, word, defaults in (("requests", "request", requests), ("limits", "limit", maxima)):
        given = resources.get(field) or {}
        missing = {name: amount for name, amount in defaults.items() if name not in given}
        if missing:
            resources[field] = {**given, **missing}
            yield f"{', '.join(sorted(missing))} {word} for {title} {container['name']}"


# Checks


def _pod_violations(pod: Object, limits: list[Object]) -> Iterator[str]:
    for limit in limits:
        if limit.get("type") == "Container":
            for field, _ in _CONTAINERS:
                for container in pod["spec"].get(field) or ():
                    resources = container.get("resources") or {}
                    yield from _violations(
                        limit, resources.get("requests") or {}, resources.get("limits") or {}
                    )
        elif limit.get("type") == "Pod":
            yield from _violations(
                limit, pod_amounts(pod["spec"], "requests"), pod_amounts(pod["spec"], "limits")
            )


def _claim_violations(claim: Object, limits: list[Object]) -> Iterator[str]:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    for limit in limits:
        if limit.get("type") != "PersistentVolumeClaim":
            continue
        for name, least in (limit.get("min") or {}).items():
            yield from _below("PersistentVolumeClaim", name, least, requests, {})
        for name, most in (limit.get("max") or {}).items():
            if name not in requests:
                yield f"maximum {name} usage per PersistentVolumeClaim is {most}.  No request is specified"
            elif parse(requests[name]) > parse(most):
                yield f"maximum {name} usage per PersistentVolumeClaim is {most}, but request is {requests[name]}"


def _violations(limit: Object, requests: Mapping[str, str], limits: Mapping[str, str]) -> Iterator[str]:
    per = limit["type"]
    for name, least in (limit.get("min") or {}).items():
        yield from _below(per, name, least, requests, limits)
    for name, most in (limit.get("max") or {}).items():
        yield from _above(per, name, most, requests, limits)
    for name, ratio in (limit.get("maxLimitRequestRatio") or {}).items():
        yield from _beyond_ratio(per, name, ratio, requests, limits)


def _below(
    per: str, name: str, least: str, requests: Mapping[str, str], limits: Mapping[str, str]
) -> Iterator[str]:
    minimum = f"minimum {name} usage per {per} is {least}"
    if name not in requests:
        yield f"{minimum}.  No request is specified"
    elif parse(requests[name]) < parse(least):
        yield f"{minimum}, but request is {requests[name]}"
    elif name in limits and parse(limits[name]) < parse(least):
        yield f"{minimum}, but limit is {limits[name]}"


def _above(
    per: str, name: str, most: str, requests: Mapping[str, str], limits: Mapping[str, str]
) -> Iterator[str]:
    maximum = f"maximum {name} usage per {per} is {most}"
    if name not in limits:
        yield f"{maximum}.  No limit is specified"
    elif parse(limits[name]) > parse(most):
        yield f"{maximum}, but limit is {limits[name]}"
    elif name in requests and parse(requests[name]) > parse(most):
        yield f"{maximum}, but request is {requests[name]}"


def _beyond_ratio(
    per: str, name: str, most: str, requests: Mapping[str, str], limits: Mapping[str, str]
) -> Iterator[str]:
    ratio = f"{name} max limit to request ratio per {per} is {most}"
    if not parse(requests.get(name, "0")):
        yield f"{ratio}, but no request is specified or request is 0"
    elif not parse(limits.get(name, "0")):
        yield f"{ratio}, but no limit is specified or limit is 0"
    else:
        provided = parse(limits[name]) / parse(requests[name])
        if provided > parse(most):
            yield f"{ratio}, but provided ratio is {provided:.6f}"
