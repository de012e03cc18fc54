"""Nodes."""

from __future__ import annotations

from ipaddress import ip_network

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.generic.checks import LABEL_KEY, each, one_of, present
from kapsa.devcluster.embedded.strategies.generic.networks import is_range, range_of_addresses
from kapsa.schemas.field_errors import DUPLICATE, INTERNAL, FieldError, duplicate, forbidden, invalid
from kapsa.schemas.go_format import GoStruct
from kapsa.schemas.quantities import canonical

_EFFECT = present(one_of("NoSchedule", "PreferNoSchedule", "NoExecute"))
_FIXED = 'node updates may not change {} except from "" to valid'
_ONE_OF_EACH = "may specify no more than one CIDR for each IP family"


class NodeStrategy(BuiltInStrategy):
    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {})
        spec = obj["spec"]
        # The old field is the first of the new one, and wins over another.
        first = spec.get("podCIDR")
        if first and (spec.get("podCIDRs") or [""])[0] != first:
            spec["podCIDRs"] = [first]
        elif spec.get("podCIDRs"):
            spec["podCIDR"] = spec["podCIDRs"][0]
        status = obj.get("status") or {}
        for field in ("capacity", "allocatable"):
            for name, amount in (status.get(field) or {}).items():
                status[field][name] = canonical(amount)
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])

    def reset_for_create(self, obj: Object) -> None:
        # A kubelet registers its node with its status in one request.
        self.default(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        # The real server reports taints in the metadata.
        errors = _taints(obj["spec"].get("taints") or [], "metadata.taints")
        return errors + _pod_ranges(obj["spec"].get("podCIDRs") or [], "spec.podCIDRs")

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        """Return the errors for what was assigned to a node once: its ranges of addresses and its provider's ID."""
        spec, before = obj["spec"], old.get("spec") or {}
        errors: list[FieldError] = []
        for field, name in (("podCIDRs", "podCIDR"), ("providerID", "providerID")):
            if before.get(field) and spec.get(field) != before[field]:
                errors.append(forbidden(f"spec.{field}", _FIXED.format(name)))
        return errors

    def validate_status(self, obj: Object, old: Object) -> list[FieldError]:
        addresses = (obj.get("status") or {}).get("addresses") or []
        return [
            duplicate(
                f"status.addresses[{index}]", GoStruct(Type=one.get("type"), Address=one.get("address"))
            )
            for index, one in enumerate(addresses)
            if one in addresses[:index]
        ]


def _taints(taints: list[Object], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        where, value = f"{path}[{index}]", taint.get("value") or ""
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        errors += LABEL_KEY(key, f"{where}.key")
        if wrong := names.label_value(value):
            errors.append(invalid(f"{where}.value", value, ";".join(wrong)))
        errors += _EFFECT(effect, f"{where}.effect")
        if (key, effect) in seen:
            shown = GoStruct(Key=key, Value=value, Effect=effect, TimeAdded=taint.get("timeAdded"))
            detail = "taints must be unique by key and effect pair"
            errors.append(FieldError(DUPLICATE, where, shown, detail))
        seen.add((key, effect))
    return errors


def _pod_ranges(ranges: list[str], path: str) -> list[FieldError]:
    errors = each(range_of_addresses)(ranges, path)
    if len(ranges) < 2:
        return errors
    wrong = [one for one in ranges if not is_range(one)]
    if wrong:
        detail = "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR address: "
        errors.append(FieldError(INTERNAL, path, "", detail + wrong[0]))
    families = {ip_network(one, strict=False).version for one in ranges if is_range(one)}
    if len(families) < 2 or len(ranges) > 2:
        errors.append(invalid(path, ranges, _ONE_OF_EACH))
    return errors
