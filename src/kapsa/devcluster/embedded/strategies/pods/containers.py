"""Validation of containers: ports, probes, life cycle, resources, restarts."""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.checks import (
    LABEL,
    Check,
    at_least,
    each,
    fields,
    given,
    needed,
    one_of,
    present,
)
from kapsa.devcluster.embedded.strategies.pods.environment import validate_environment
from kapsa.devcluster.embedded.strategies.pods.security import validate_security_context
from kapsa.devcluster.embedded.strategies.pods.volumes import validate_devices, validate_mounts
from kapsa.schemas.field_errors import (
    NOT_FOUND,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)
from kapsa.schemas.quantities import parse

__all__ = [
    "PodContext",
    "validate_container",
    "validate_host_ports",
    "validate_lifecycle",
    "validate_resources",
    "validate_restarts",
]

Object = dict[str, Any]

_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PROTOCOL = present(one_of("SCTP", "TCP", "UDP"))
_PROBE_NUMBERS = (
    *("initialDelaySeconds", "timeoutSeconds", "periodSeconds"),
    *("successThreshold", "failureThreshold"),
)
_HEADER_PROBLEM = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', "
    "regex used for validation is '[-A-Za-z0-9]+')"
)
_HEADER_ALPHABET = frozenset("-ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_WINDOWS_SIGNALS = ("SIGKILL", "SIGTERM")


class PodContext(msgspec.Struct, frozen=True):
    """The parts of a pod that its containers share: the spec, and the usable volumes by name."""

    spec: Object
    volumes: dict[str, Object]

    @property
    def host_users(self) -> bool:
        return self.spec.get("hostUsers") is not False

    @property
    def claims(self) -> list[str]:
        return sorted(
            {each_one.get("name") or "" for each_one in self.spec.get("resourceClaims") or ()} - {""}
        )


_NAMED = fields(
    name=present(LABEL),
    image=present(),
    terminationMessagePolicy=present(one_of("File", "FallbackToLogsOnError")),
)
_PULL_POLICY = present(one_of("Always", "IfNotPresent", "Never"))


def validate_container(container: Object, path: str, pod: PodContext) -> list[FieldError]:
    """Return the errors that a container of any type may have."""
    errors = _NAMED(container, path)
    errors += _ports(container.get("ports") or [], f"{path}.ports")
    errors += validate_environment(container, path)
    errors += validate_mounts(container, f"{path}.volumeMounts", pod.volumes)
    errors += validate_devices(container, f"{path}.volumeDevices", pod.volumes)
    errors += _PULL_POLICY(container.get("imagePullPolicy"), f"{path}.imagePullPolicy")
    resources = container.get("resources") or {}
    errors += validate_resources(resources, f"{path}.resources")
    errors += _claims(resources.get("claims") or [], f"{path}.resources.claims", pod.claims)
    errors += _resize(container.get("resizePolicy") or [], f"{path}.resizePolicy", pod.spec)
    context = container.get("securityContext")
    return errors + validate_security_context(context, f"{path}.securityContext", host_users=pod.host_users)


def _ports(ports: list[Object], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        where, name = f"{path}[{index}]", port.get("name") or ""
        if name:
            wrong = rules.port_name(name, f"{where}.name")
            errors += wrong
            if not wrong and name in seen:
                errors.append(duplicate(f"{where}.name", name))
            seen.add(name)
        errors += present(rules.port_number)(port.get("containerPort"), f"{where}.containerPort")
        if port.get("hostPort"):
            errors += rules.port_number(port["hostPort"], f"{where}.hostPort")
        errors += _PROTOCOL(port.get("protocol"), f"{where}.protocol")
    return errors


def validate_host_ports(containers: list[Object], path: str) -> list[FieldError]:
    """Return the errors of containers that claim the same port of the host."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for position, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            key = f"{port.get('protocol') or ''}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if key in seen:
                errors.append(duplicate(f"{path}[{index}].ports[{position}].hostPort", key))
            seen.add(key)
    return errors


def validate_lifecycle(container: Object, path: str, pod: PodContext) -> list[FieldError]:
    """Return the errors in the hooks and the probes of a container."""
    lifecycle = container.get("lifecycle") or {}
    errors: list[FieldError] = []
    for hook in ("postStart", "preStop"):
        if lifecycle.get(hook) is not None:
            errors += _handler(lifecycle[hook], f"{path}.lifecycle.{hook}", pod)
    if lifecycle.get("stopSignal") is not None:
        errors += _stop_signal(lifecycle["stopSignal"], f"{path}.lifecycle.stopSignal", pod)
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(field) is not None:
            errors += _probe(container[field], f"{path}.{field}", pod, is_ready=field == "readinessProbe")
    return errors


def _stop_signal(signal: str, path: str, pod: PodContext) -> list[FieldError]:
    system = (pod.spec.get("os") or {}).get("name")
    if system is None:
        return [forbidden(path, "may not be set for containers with empty `spec.os.name`")]
    if system == "windows" and signal not in _WINDOWS_SIGNALS:
        return [not_supported(path, signal, _WINDOWS_SIGNALS)]
    return []


_NUMBERS = fields(**dict.fromkeys(_PROBE_NUMBERS, at_least(0)))
_GRACE = given(at_least(1, "must be greater than 0"))


def _probe(probe: Object, path: str, pod: PodContext, *, is_ready: bool) -> list[FieldError]:
    errors = _handler(probe, path, pod) + _NUMBERS(probe, path)
    grace, where = probe.get("terminationGracePeriodSeconds"), f"{path}.terminationGracePeriodSeconds"
    if is_ready and grace is not None:
        errors.append(invalid(where, grace, "must not be set for readinessProbes"))
    errors += _GRACE(grace, where)
    if not is_ready and probe.get("successThreshold") not in (None, 1):
        errors.append(invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))
    return errors


def _handler(handler: Object, path: str, pod: PodContext) -> list[FieldError]:
    kinds = [kind for kind in _HANDLERS if handler.get(kind) is not None]
    if not kinds:
        return [required(path, "must specify a handler type")]
    first, where = kinds[0], f"{path}.{kinds[0]}"
    if first == "sleep":
        errors = _sleep(handler[first], where, pod)
    else:
        errors = _ACTIONS[first](handler[first], where)
    return errors + [
        forbidden(f"{path}.{kind}", "may not specify more than 1 handler type") for kind in kinds[1:]
    ]


def _sleep(action: Object, path: str, pod: PodContext) -> list[FieldError]:
    seconds, grace = action.get("seconds") or 0, pod.spec.get("terminationGracePeriodSeconds")
    if grace is None or 0 <= seconds <= grace:
        return []
    detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
    return [invalid(path, seconds, detail)]


def _port(value: Any, path: str) -> list[FieldError]:
    return rules.port_number_or_name(0 if value is None else value, path)


def _headers(headers: list[Object] | None, path: str) -> list[FieldError]:
    listed = [header.get("name") or "" for header in headers or ()]
    return [
        invalid(path, name, _HEADER_PROBLEM)
        for name in listed
        if not name or not set(name) <= _HEADER_ALPHABET
    ]


_ACTIONS: dict[str, Check] = {
    "exec": needed("command"),
    "httpGet": fields(path=present(), port=_port, scheme=one_of("HTTP", "HTTPS"), httpHeaders=_headers),
    "tcpSocket": fields(port=_port),
    "grpc": fields(port=lambda value, path: rules.port_number(value or 0, path)),
}


def validate_resources(resources: Object, path: str) -> list[FieldError]:
    """Return the errors in the limits and requests of a container."""
    errors: list[FieldError] = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{path}.{field}[{name}]"
            errors += resource_name(name, where)
            if parse(amount) < 0:
                errors.append(invalid(where, str(amount), "must be greater than or equal to 0"))
            elif _is_extended(name) and parse(amount) % 1:
                errors.append(invalid(where, str(amount), "must be an integer"))
    for name, amount in requests.items():
        errors += _within_limit(name, amount, limits.get(name), path)
    named = {*limits, *requests}
    if any(name.startswith("hugepages-") for name in named) and not named & {"cpu", "memory"}:
        errors.append(forbidden(path, "HugePages require cpu or memory"))
    return errors


def resource_name(name: str, path: str) -> list[FieldError]:
    """Return the errors in the name of a resource that containers may have."""
    errors = [invalid(path, name, problem) for problem in names.label_key(name)]
    if "/" in name or name in _STANDARD or name.startswith("hugepages-"):
        return errors
    if not errors:
        errors.append(invalid(path, name, "must be a standard resource type or fully qualified"))
    return [*errors, invalid(path, name, "must be a standard resource for containers")]


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name


def _within_limit(name: str, amount: Any, limit: Any, path: str) -> list[FieldError]:
    is_fixed = name.startswith("hugepages-") or _is_extended(name)
    if limit is None:
        detail = "Limit must be set for non overcommitable resources"
        return [required(f"{path}.limits", detail)] if is_fixed else []
    if is_fixed and parse(amount) != parse(limit):
        return [invalid(f"{path}.requests", str(amount), f"must be equal to {name} limit of {limit}")]
    if parse(amount) > parse(limit):
        detail = f"must be less than or equal to {name} limit of {limit}"
        return [invalid(f"{path}.requests", str(amount), detail)]
    return []


def _claims(claims: list[Object], path: str, declared: list[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        where, name, request = f"{path}[{index}]", claim.get("name") or "", claim.get("request") or ""
        if not name:
            errors.append(required(where))
            continue
        if request:
            errors += LABEL(request, f"{where}.request")
        key = f"{name}/{request}" if request else name
        covered = {name, key} & seen or (not request and any(each_.startswith(f"{name}/") for each_ in seen))
        if covered:
            errors.append(duplicate(where, name if name in seen else key))
        seen.add(key)
        if name not in declared:
            listed = f": {', '.join(declared)}" if declared else " which is empty"
            detail = f"must be one of the names in pod.spec.resourceClaims{listed}"
            errors.append(FieldError(NOT_FOUND, where, name, detail))
    return errors


_RESIZED = (("resourceName", ("cpu", "memory")), ("restartPolicy", ("NotRequired", "RestartContainer")))


def _resize(policies: list[Object], path: str, spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name, restart = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if name in seen:
            errors.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
        for field, supported in _RESIZED:
            # The real server reports the list, not the field.
            errors += present(one_of(*supported))(policy.get(field), path)
        if spec.get("restartPolicy") == "Never" and restart != "NotRequired":
            detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errors.append(invalid(path, restart, detail))
    return errors


_MOST_RULES, _MOST_CODES = 20, 255
_POLICIES = one_of("Always", "Never", "OnFailure")


def validate_restarts(container: Object, path: str) -> list[FieldError]:
    """Return the errors in the restart policy of a container and in its rules."""
    policy, exceptions = container.get("restartPolicy"), container.get("restartPolicyRules") or []
    where = f"{path}.restartPolicyRules"
    errors = given(_POLICIES)(policy, f"{path}.restartPolicy")
    if policy is None and exceptions:
        detail = "must specify restartPolicy when restart rules are used"
        errors.append(required(f"{path}.restartPolicy", detail))
    if len(exceptions) > _MOST_RULES:
        errors.append(too_many(where, len(exceptions), _MOST_RULES))
    return errors + each(_restart_rule)(exceptions, where)


def _restart_rule(rule: Object, path: str) -> list[FieldError]:
    errors = one_of("Restart", "RestartAllContainers")(rule.get("action"), f"{path}.action")
    codes = rule.get("exitCodes")
    if codes is None:
        return [*errors, required(f"{path}.exitCodes", "must be specified")]
    errors += one_of("In", "NotIn")(codes.get("operator"), f"{path}.exitCodes.operator")
    count = len(codes.get("values") or ())
    return errors + (
        [too_many(f"{path}.exitCodes.values", count, _MOST_CODES)] if count > _MOST_CODES else []
    )
