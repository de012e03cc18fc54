"""IP families of Services, on a cluster that has IPv4 alone."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from kapsa.schemas.field_errors import FieldError, invalid

__all__ = ["set_ip_families"]

Object = dict[str, Any]
_NO_IP = "None"
_SINGLE, _REQUIRED = "SingleStack", "RequireDualStack"
_POLICY = "spec.ipFamilyPolicy"


def set_ip_families(spec: Object, old: Object | None) -> list[FieldError]:
    """Set the policy and the families that a Service omits, in place, and return the errors of those it has."""
    needs_no_address = spec.get("clusterIP") == _NO_IP and not spec.get("selector")
    if not spec.get("ipFamilyPolicy"):
        inherited = (old or {}).get("ipFamilyPolicy")
        spec["ipFamilyPolicy"] = inherited or (_REQUIRED if needs_no_address else _SINGLE)
    if errors := _contradictions(spec, old):
        return errors
    families = spec["ipFamilies"] = spec.get("ipFamilies") or [_family_of(spec.get("clusterIP") or _NO_IP)]
    if needs_no_address:
        # Nothing is allocated for it, so it may have families that the cluster lacks.
        if len(families) == 1 and spec["ipFamilyPolicy"] != _SINGLE:
            spec["ipFamilies"] = [*families, "IPv6" if families[0] == "IPv4" else "IPv4"]
        return []
    if spec["ipFamilyPolicy"] == _REQUIRED:
        errors = [invalid(_POLICY, _REQUIRED, "this cluster is not configured for dual-stack services")]
    return errors + [
        invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
        for index, family in enumerate(families)
        if family != "IPv4"
    ]


def _contradictions(spec: Object, old: Object | None) -> list[FieldError]:
    """Return the errors of a policy that does not fit the families, after an update to a single stack took effect."""
    families, before = spec.get("ipFamilies") or [], (old or {}).get("ipFamilies") or []
    policy = spec["ipFamilyPolicy"]
    if policy == _SINGLE:
        if old is not None and families == before:
            spec["ipFamilies"] = families[:1]
        elif len(families) == 2:
            advice = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"
            return [invalid(_POLICY, policy, advice)]
    elif old is not None and len(before) == 2 and families == before[:1]:
        return [invalid(_POLICY, policy, "must be 'SingleStack' to release the secondary IP family")]
    return []


def _family_of(ip: str) -> str:
    return "IPv4" if ip == _NO_IP else f"IPv{ip_address(ip).version}"
