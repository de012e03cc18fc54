"""APIServices: defaults and validation. The embedded engine proxies to no extension server."""

from __future__ import annotations

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.generic.checks import (
    SUBDOMAIN,
    between,
    fields,
    filled,
    present,
    problems,
)
from kapsa.devcluster.embedded.strategies.policy.webhook_clients import service_port
from kapsa.schemas.field_errors import FieldError, invalid, required
from kapsa.schemas.go_format import quote

__all__ = ["APIServiceStrategy"]

_SPEC = fields(
    group=filled(SUBDOMAIN),
    version=problems(names.dns1035_label),
    groupPriorityMinimum=between(1, 20000, "must be positive and less than 20000"),
    versionPriority=between(1, 1000, "must be positive and less than 1000"),
)
_SERVICE = fields(namespace=present(), name=present(), port=service_port)
_INSECURE = "spec.insecureSkipTLSVerify"


class APIServiceStrategy(BuiltInStrategy):
    """Strategy of the registrations of API groups."""

    unenforced = "no request reaches the service, and its group is answered with 404"

    def default(self, obj: Object) -> None:
        service = (obj.get("spec") or {}).get("service")
        if service is not None and service.get("port") is None:
            service["port"] = 443

    def validate(self, obj: Object) -> list[FieldError]:
        spec, name = obj.get("spec") or {}, obj["metadata"].get("name") or ""
        group, version = spec.get("group") or "", spec.get("version") or ""
        errors: list[FieldError] = []
        proper = f"{version}.{group}"
        if name and name != proper and not names.path_segment(name):
            detail = f'must be `spec.version+"."+spec.group`: {quote(proper)}'
            errors.append(invalid("metadata.name", name, detail))
        if not group and version != "v1":
            detail = "only v1 may have an empty group and it better be legacy kube"
            errors.append(required("spec.group", detail))
        errors += _SPEC(spec, "spec")
        return errors + (_local(spec) if spec.get("service") is None else _remote(spec))

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        return super().warnings(obj, old) if obj["spec"].get("service") else []


def _local(spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    if bundle := spec.get("caBundle"):
        size = f"{len(bundle) * 3 // 4 - bundle.count('=')} bytes"
        errors.append(invalid("spec.caBundle", size, "local APIServices may not have a caBundle"))
    if spec.get("insecureSkipTLSVerify"):
        errors.append(invalid(_INSECURE, True, "local APIServices may not have insecureSkipTLSVerify"))
    return errors


def _remote(spec: Object) -> list[FieldError]:
    errors = _SERVICE(spec["service"], "spec.service")
    if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
        errors.append(invalid(_INSECURE, True, "may not be true if caBundle is present"))
    return errors
