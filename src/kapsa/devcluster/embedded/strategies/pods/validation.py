"""Validation of pod specs, in pods and in pod templates."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.checks import (
    LABEL,
    SUBDOMAIN,
    between,
    each,
    fields,
    filled,
    given,
    one_of,
    present,
    problems,
)
from kapsa.devcluster.embedded.strategies.generic.networks import ip
from kapsa.devcluster.embedded.strategies.pods.containers import (
    PodContext,
    validate_container,
    validate_host_ports,
    validate_lifecycle,
    validate_resources,
    validate_restarts,
)
from kapsa.devcluster.embedded.strategies.pods.scheduling import validate_scheduling
from kapsa.devcluster.embedded.strategies.pods.security import validate_pod_security
from kapsa.devcluster.embedded.strategies.pods.volumes import validate_volumes
from kapsa.schemas.field_errors import (
    NOT_FOUND,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from kapsa.schemas.go_format import GoStruct

Object = dict[str, Any]

_NOT_EPHEMERAL = (
    *("ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules"),
    *("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"),
)
"""Fields of containers that an ephemeral one cannot have."""
_NOT_ONCE = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
"""Fields of containers that an init container which ends cannot have."""
_MOST_NAMESERVERS, _MOST_SEARCHES, _LONGEST_SEARCH_LIST = 3, 32, 2048
_LONGEST_HOST_NAME = 64


def validate_pod_spec(spec: Object, path: str, pod: str = "") -> list[FieldError]:
    """Return the errors in a defaulted pod spec, in kube-apiserver's order; `pod` is the pod's name, if any."""
    errors, volumes = validate_volumes(spec.get("volumes") or [], f"{path}.volumes", pod)
    errors += _resource_claims(spec.get("resourceClaims") or [], f"{path}.resourceClaims")
    context = PodContext(spec, volumes)
    errors += _containers(context, path)
    if spec.get("resources") is not None:
        errors += _pod_resources(spec["resources"], f"{path}.resources")
    errors += _host_network(spec, path) + _POLICIES(spec, path)
    errors += validate_pod_security(spec, path)
    errors += validate_scheduling(spec, path)
    errors += _dns(spec, path) + _SCALARS(spec, path)
    if spec.get("overhead"):
        errors += validate_resources({"limits": spec["overhead"]}, f"{path}.overhead")
    return errors + _system(spec, path)


def _containers(pod: PodContext, path: str) -> list[FieldError]:
    spec = pod.spec
    containers = spec.get("containers") or []
    errors: list[FieldError] = [] if containers else [required(f"{path}.containers")]
    taken: set[str] = set()
    for index, container in enumerate(containers):
        where = f"{path}.containers[{index}]"
        errors += validate_container(container, where, pod) + _taken(container, where, taken)
        errors += validate_lifecycle(container, where, pod) + validate_restarts(container, where)
    errors += validate_host_ports(containers, f"{path}.containers")
    for index, container in enumerate(spec.get("initContainers") or ()):
        where = f"{path}.initContainers[{index}]"
        errors += validate_container(container, where, pod) + validate_restarts(container, where)
        errors += _taken(container, where, taken)
        # The real server reports a conflict of any init container at the first.
        errors += validate_host_ports([container], f"{path}.initContainers")
        if container.get("restartPolicy") == "Always":
            errors += validate_lifecycle(container, where, pod)
        else:
            detail = "may not be set for init containers without restartPolicy=Always"
            once = [field for field in _NOT_ONCE if container.get(field) is not None]
            errors += [forbidden(f"{where}.{field}", detail) for field in once]
            errors += _resized_once(container, where)
    return errors + _ephemeral_containers(pod, path, taken)


def _taken(container: Object, path: str, taken: set[str]) -> list[FieldError]:
    name = container.get("name") or ""
    errors = [duplicate(f"{path}.name", name)] if name in taken else []
    taken.add(name)
    return errors


def _resized_once(container: Object, path: str) -> list[FieldError]:
    detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
    return [
        invalid(f"{path}.resizePolicy[{index}].restartPolicy", "RestartContainer", detail)
        for index, policy in enumerate(container.get("resizePolicy") or ())
        if policy.get("restartPolicy") == "RestartContainer"
    ]


def _resource_claims(claims: list[Object], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        where, name = f"{path}[{index}]", claim.get("name") or ""
        errors += [duplicate(f"{where}.name", name)] if name in seen else _CLAIM_NAME(name, f"{where}.name")
        seen.update({name} - {""})
        sources = [claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")]
        shown = GoStruct(Name=name, ResourceClaimName=sources[0], ResourceClaimTemplateName=sources[1])
        if None not in sources:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errors.append(invalid(where, shown, detail))
        elif sources == [None, None]:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errors.append(invalid(where, shown, detail))
        errors += _CLAIM_SOURCES(claim, where)
    return errors


def _pod_resources(resources: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if resources.get("claims") is not None:
        errors.append(forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level"))
    return errors + validate_resources(resources, path)


def _host_network(spec: Object, path: str) -> list[FieldError]:
    detail = "must match `containerPort` when `hostNetwork` is true"
    return [
        invalid(f"{path}.containers[{index}].ports[{position}].hostPort", port["hostPort"], detail)
        for index, container in enumerate(spec.get("containers") or () if spec.get("hostNetwork") else ())
        for position, port in enumerate(container.get("ports") or ())
        if port.get("hostPort") and port["hostPort"] != port.get("containerPort")
    ]


def _dns(spec: Object, path: str) -> list[FieldError]:
    config, where = spec.get("dnsConfig"), f"{path}.dnsConfig"
    if spec.get("dnsPolicy") == "None":
        if config is None:
            return [required(where, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{where}.nameservers", detail)]
    config = config or {}
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    errors: list[FieldError] = []
    if len(servers) > _MOST_NAMESERVERS:
        detail = f"must not have more than {_MOST_NAMESERVERS} nameservers"
        errors.append(invalid(f"{where}.nameservers", servers, detail))
    if len(searches) > _MOST_SEARCHES:
        detail = f"must not have more than {_MOST_SEARCHES} search paths"
        errors.append(invalid(f"{where}.searches", searches, detail))
    if len(" ".join(searches)) > _LONGEST_SEARCH_LIST:
        detail = (
            f"must not have more than {_LONGEST_SEARCH_LIST} characters (including spaces) in the search list"
        )
        errors.append(invalid(f"{where}.searches", searches, detail))
    return errors + _DNS(config, where)


def _search(value: str, path: str) -> list[FieldError]:
    name = value if value == "." else value.removesuffix(".")
    return [] if name == "." else problems(names.search_domain)(name, path)


def _dns_option(option: Object, path: str) -> list[FieldError]:
    return present(detail="must not be empty")(option.get("name"), path)


def _host_name(name: str, path: str) -> list[FieldError]:
    long = [too_long(path, _LONGEST_HOST_NAME)] if len(name) > _LONGEST_HOST_NAME else []
    return long + SUBDOMAIN(name, path)


def _system(spec: Object, path: str) -> list[FieldError]:
    system = spec.get("os")
    if system is None:
        return []
    name = system.get("name") or ""
    if not name:
        return [required(f"{path}.os.name")]
    if name not in ("linux", "windows"):
        return [not_supported(f"{path}.os", name, ("linux", "windows"))]
    if name == "windows":
        return []
    detail, field = "windows options cannot be set for a linux pod", "securityContext.windowsOptions"
    holders = [(path, spec)] + [
        (f"{path}.{group}[{index}]", container)
        for group in ("initContainers", "containers", "ephemeralContainers")
        for index, container in enumerate(spec.get(group) or ())
    ]
    return [
        forbidden(f"{where}.{field}", detail)
        for where, holder in holders
        if (holder.get("securityContext") or {}).get("windowsOptions") is not None
    ]


_CLAIM_NAME = present(LABEL)
_CLAIM_SOURCES = fields(resourceClaimName=given(SUBDOMAIN), resourceClaimTemplateName=given(SUBDOMAIN))
_POLICIES = fields(
    restartPolicy=present(one_of("Always", "OnFailure", "Never")),
    dnsPolicy=present(one_of("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")),
    nodeSelector=rules.labels,
)
_DNS = fields(nameservers=each(ip), searches=each(_search), options=each(_dns_option))
_SCALARS = fields(
    hostnameOverride=given(_host_name),
    serviceAccountName=filled(SUBDOMAIN),
    nodeName=filled(SUBDOMAIN),
    activeDeadlineSeconds=given(between(1)),
    hostname=filled(LABEL),
    subdomain=filled(LABEL),
    hostAliases=each(fields(ip=ip, hostnames=each(SUBDOMAIN))),
    priorityClassName=filled(SUBDOMAIN),
    runtimeClassName=given(SUBDOMAIN),
    preemptionPolicy=given(present(one_of("PreemptLowerPriority", "Never"))),
)


def _ephemeral_containers(pod: PodContext, path: str, taken: set[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    others = set(taken)
    for index, container in enumerate(pod.spec.get("ephemeralContainers") or ()):
        where = f"{path}.ephemeralContainers[{index}]"
        errors += validate_container(container, where, pod) + _taken(container, where, taken)
        target = container.get("targetContainerName")
        if target and target not in others:
            errors.append(FieldError(NOT_FOUND, f"{where}.targetContainerName", target))
        detail = "cannot be set for an Ephemeral Container"
        errors += [forbidden(f"{where}.{field}", detail) for field in _NOT_EPHEMERAL if container.get(field)]
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            paths = [field for field in ("subPath", "subPathExpr") if mount.get(field)]
            errors += [forbidden(f"{where}.volumeMounts[{number}].{field}", detail) for field in paths]
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


def validate_image_volumes(spec: Object, path: str) -> list[FieldError]:
    """Return the errors of image volumes without a reference, which only a pod template may have."""
    return [
        required(f"{path}.volumes[{index}].image.reference")
        for index, volume in enumerate(spec.get("volumes") or ())
        if volume.get("image") is not None and not volume["image"].get("reference")
    ]


def validate_template(template: Object, path: str) -> list[FieldError]:
    """Return the errors in a pod template."""
    errors = validate_template_metadata(template, path)
    errors += validate_pod_spec(template.get("spec") or {}, f"{path}.spec")
    if (template.get("spec") or {}).get("ephemeralContainers"):
        errors.append(
            forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")
        )
    return errors


def validate_template_metadata(template: Object, path: str) -> list[FieldError]:
    """Return the errors in the labels and annotations of a pod template."""
    metadata = template.get("metadata") or {}
    errors = rules.labels(metadata.get("labels"), f"{path}.labels")
    for key in metadata.get("annotations") or ():
        errors += [invalid(f"{path}.annotations", key, p) for p in names.label_key(key.lower())]
    return errors
