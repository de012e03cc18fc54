"""Validation of pod specs, in pods and in pod templates."""

from __future__ import annotations

import re
from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.pods.volumes import validate_mounts, validate_volumes
from kapsa.schemas.field_errors import (
    NOT_FOUND,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kapsa.schemas.quantities import parse

Object = dict[str, Any]

_RESTART = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PULL = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_ENV_NAME = re.compile(r"^[ -<>-~]+$")
_ENV_PROBLEM = (
    "a valid environment variable name must consist only of printable ASCII characters other than '='"
)
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_NOT_EPHEMERAL = (
    *("ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules"),
    *("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"),
)
"""Fields of containers that an ephemeral one cannot have."""
_LARGEST_INT = 2**31 - 1


def validate_pod_spec(spec: Object, path: str) -> list[FieldError]:
    """Return the errors in a defaulted pod spec, in kube-apiserver's order."""
    errors, volumes = validate_volumes(spec.get("volumes") or [], f"{path}.volumes")
    containers = spec.get("containers") or []
    if not containers:
        errors.append(required(f"{path}.containers"))
    taken: set[str] = set()
    for index, container in enumerate(containers):
        errors += _container(container, f"{path}.containers[{index}]", volumes, taken)
        errors += _probes(container, f"{path}.containers[{index}]")
    for index, container in enumerate(spec.get("initContainers") or ()):
        where = f"{path}.initContainers[{index}]"
        errors += _container(container, where, volumes, taken)
        if container.get("restartPolicy") == "Always":
            errors += _probes(container, where)
        else:
            for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
                if container.get(field) is not None:
                    detail = "may not be set for init containers without restartPolicy=Always"
                    errors.append(forbidden(f"{where}.{field}", detail))
    errors += _ephemeral_containers(spec, path, volumes, taken)
    errors += _enum(spec.get("restartPolicy"), f"{path}.restartPolicy", _RESTART)
    errors += _enum(spec.get("dnsPolicy"), f"{path}.dnsPolicy", _DNS)
    errors += rules.labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    errors += _scalars(spec, path)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        errors += _toleration(toleration, f"{path}.tolerations[{index}]")
    return errors


def _ephemeral_containers(spec: Object, path: str, volumes: set[str], taken: set[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    others = set(taken)
    for index, container in enumerate(spec.get("ephemeralContainers") or ()):
        where = f"{path}.ephemeralContainers[{index}]"
        errors += _container(container, where, volumes, taken)
        target = container.get("targetContainerName")
        if target and target not in others:
            errors.append(FieldError(NOT_FOUND, f"{where}.targetContainerName", target))
        detail = "cannot be set for an Ephemeral Container"
        errors += [forbidden(f"{where}.{field}", detail) for field in _NOT_EPHEMERAL if container.get(field)]
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            fields = [field for field in ("subPath", "subPathExpr") if mount.get(field)]
            errors += [forbidden(f"{where}.volumeMounts[{number}].{field}", detail) for field in fields]
    return errors


def validate_images(spec: Object, path: str) -> list[FieldError]:
    """Return the errors in the images of a pod that a pod template may have."""
    errors: list[FieldError] = []
    for group in ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            image = container.get("image") or ""
            if image != image.strip():
                detail = "must not have leading or trailing whitespace"
                errors.append(invalid(f"{path}.{group}[{index}].image", image, detail))
    return errors


def validate_template(template: Object, path: str) -> list[FieldError]:
    """Return the errors in a pod template."""
    metadata = template.get("metadata") or {}
    errors = rules.labels(metadata.get("labels"), f"{path}.labels")
    for key in metadata.get("annotations") or ():
        errors += [invalid(f"{path}.annotations", key, p) for p in names.label_key(key.lower())]
    errors += validate_pod_spec(template.get("spec") or {}, f"{path}.spec")
    if (template.get("spec") or {}).get("ephemeralContainers"):
        errors.append(
            forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")
        )
    return errors


def _scalars(spec: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for field in ("serviceAccountName", "nodeName", "priorityClassName"):
        if spec.get(field):
            errors += rules.dns_subdomain(spec[field], f"{path}.{field}")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _LARGEST_INT:
        detail = f"must be between 1 and {_LARGEST_INT}, inclusive"
        errors.append(invalid(f"{path}.activeDeadlineSeconds", deadline, detail))
    for field in ("hostname", "subdomain"):
        if spec.get(field):
            errors += rules.dns_label(spec[field], f"{path}.{field}")
    return errors


def _enum(value: Any, path: str, supported: tuple[str, ...]) -> list[FieldError]:
    if not value:
        return [required(path)]
    return [] if value in supported else [not_supported(path, value, supported)]


def _container(container: Object, path: str, volumes: set[str], taken: set[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    name = container.get("name") or ""
    errors += rules.dns_label(name, f"{path}.name") if name else [required(f"{path}.name")]
    if not container.get("image"):
        errors.append(required(f"{path}.image"))
    policy = container.get("terminationMessagePolicy")
    errors += _enum(policy, f"{path}.terminationMessagePolicy", _MESSAGE_POLICIES)
    errors += _ports(container.get("ports") or [], f"{path}.ports")
    errors += _env(container, path)
    errors += validate_mounts(container.get("volumeMounts") or [], f"{path}.volumeMounts", volumes)
    errors += _enum(container.get("imagePullPolicy"), f"{path}.imagePullPolicy", _PULL)
    errors += _resources(container.get("resources") or {}, f"{path}.resources")
    if name in taken:
        errors.append(duplicate(f"{path}.name", name))
    taken.add(name)
    return errors


def _ports(ports: list[Object], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        where, name = f"{path}[{index}]", port.get("name") or ""
        if name:
            problems = rules.port_name(name, f"{where}.name")
            errors += problems
            if not problems and name in seen:
                errors.append(duplicate(f"{where}.name", name))
            seen.add(name)
        if not port.get("containerPort"):
            errors.append(required(f"{where}.containerPort"))
        else:
            errors += rules.port_number(port["containerPort"], f"{where}.containerPort")
        if port.get("hostPort"):
            errors += rules.port_number(port["hostPort"], f"{where}.hostPort")
        errors += _enum(port.get("protocol"), f"{where}.protocol", _PROTOCOLS)
    return errors


def _env(container: Object, path: str) -> list[FieldError]:
    errors = []
    for index, variable in enumerate(container.get("env") or ()):
        where, name = f"{path}.env[{index}]", variable.get("name") or ""
        if not name:
            errors.append(required(f"{where}.name"))
        elif not _ENV_NAME.match(name):
            errors.append(invalid(f"{where}.name", name, _ENV_PROBLEM))
        source = variable.get("valueFrom")
        if source is not None:
            errors += _env_source(variable, source, f"{where}.valueFrom")
    for index, source in enumerate(container.get("envFrom") or ()):
        where = f"{path}.envFrom[{index}]"
        refs = [r for r in ("configMapRef", "secretRef") if source.get(r) is not None]
        if not refs:
            errors.append(invalid(where, "", "must specify one of: `configMapRef` or `secretRef`"))
        for ref in refs:
            if not source[ref].get("name"):
                errors.append(required(f"{where}.{ref}.name"))
    return errors


def _env_source(variable: Object, source: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    kinds = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
    given = [kind for kind in kinds if source.get(kind) is not None]
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if source.get(kind) is not None:
            errors += [required(f"{path}.{kind}.{f}") for f in ("name", "key") if not source[kind].get(f)]
    if not given:
        detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        errors.append(invalid(path, "", detail))
    elif variable.get("value"):
        errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    return errors


def _resources(resources: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{path}.{field}[{name}]"
            if "/" not in name and not _is_standard(name):
                errors.append(invalid(where, name, "must be a standard resource type or fully qualified"))
                errors.append(invalid(where, name, "must be a standard resource for containers"))
            if parse(amount) < 0:
                errors.append(invalid(where, str(amount), "must be greater than or equal to 0"))
            if field == "requests" and name in limits and parse(amount) > parse(limits[name]):
                detail = f"must be less than or equal to {name} limit of {limits[name]}"
                errors.append(invalid(f"{path}.requests", str(amount), detail))
    return errors


def _is_standard(name: str) -> bool:
    return name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-")


def _probes(container: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(field)
        if probe is None:
            continue
        where = f"{path}.{field}"
        errors += _handler(probe, where)
        for number in (
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ):
            errors += rules.non_negative(probe.get(number), f"{where}.{number}")
        if field != "readinessProbe" and probe.get("successThreshold") not in (None, 1):
            errors.append(invalid(f"{where}.successThreshold", probe["successThreshold"], "must be 1"))
    for hook, handler in (container.get("lifecycle") or {}).items():
        if isinstance(handler, dict):
            errors += _handler(handler, f"{path}.lifecycle.{hook}")
    return errors


def _handler(handler: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    given = [kind for kind in _HANDLERS if handler.get(kind) is not None]
    for position, kind in enumerate(given):
        if position:
            errors.append(forbidden(f"{path}.{kind}", "may not specify more than 1 handler type"))
        elif kind == "exec" and not handler["exec"].get("command"):
            errors.append(required(f"{path}.exec.command"))
        elif kind in ("httpGet", "tcpSocket"):
            errors += rules.port_number_or_name(handler[kind].get("port", 0), f"{path}.{kind}.port")
        elif kind == "grpc":
            errors += rules.port_number(handler["grpc"].get("port", 0), f"{path}.grpc.port")
    return errors or ([] if given else [required(path, "must specify a handler type")])


def _toleration(toleration: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    key, operator = toleration.get("key") or "", toleration.get("operator") or ""
    if key:
        errors += [invalid(f"{path}.key", key, problem) for problem in names.label_key(key)]
    if not key and operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append(invalid(f"{path}.operator", operator, detail))
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(invalid(f"{path}.effect", toleration.get("effect") or "", detail))
    if operator == "Exists" and toleration.get("value"):
        errors.append(
            invalid(f"{path}.operator", toleration, "value must be empty when `operator` is 'Exists'")
        )
    elif operator not in ("", "Equal", "Exists"):
        errors.append(not_supported(f"{path}.operator", operator, ["Equal", "Exists"]))
    return errors
