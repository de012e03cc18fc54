"""Services: defaults, and the allocation of cluster IPs and node ports."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic.addresses import AddressError
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.network.ip_families import set_ip_families
from kapsa.devcluster.embedded.strategies.network.service_validation import validate_service
from kapsa.devcluster.wire.status_errors import StatusError, internal
from kapsa.devcluster.wire.status_errors import invalid as invalid_object
from kapsa.schemas.field_errors import FieldError, invalid

_EXTERNAL = ("NodePort", "LoadBalancer")
_NO_IP = "None"


def _needs_node_ports(spec: Object) -> bool:
    allocates = spec.get("allocateLoadBalancerNodePorts") is not False
    return spec["type"] == "NodePort" or (spec["type"] == "LoadBalancer" and allocates)


def _needs_health_check_port(spec: Object) -> bool:
    return spec["type"] == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _is_external(spec: Object) -> bool:
    return spec["type"] in _EXTERNAL or (spec["type"] == "ClusterIP" and bool(spec.get("externalIPs")))


def _copy(source: Object, target: Object, field: str) -> None:
    if field in source:
        target[field] = source[field]


class ServiceStrategy(BuiltInStrategy):
    """Strategy of Services. All types but ExternalName have addresses until they are deleted."""

    immutable_first = True

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec["sessionAffinity"] = spec.get("sessionAffinity") or "None"
        if spec["sessionAffinity"] == "None":
            spec.pop("sessionAffinityConfig", None)
        elif ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
        spec["type"] = spec.get("type") or "ClusterIP"
        for port in spec.get("ports") or ():
            port["protocol"] = port.get("protocol") or "TCP"
            if port.get("targetPort") in (None, 0, "", "0") and port.get("port") is not None:
                port["targetPort"] = port["port"]
        if _is_external(spec) and not spec.get("externalTrafficPolicy"):
            spec["externalTrafficPolicy"] = "Cluster"
        if spec["type"] != "ExternalName" and spec.get("internalTrafficPolicy") is None:
            spec["internalTrafficPolicy"] = "Cluster"
        if spec["type"] == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is None:
            spec["allocateLoadBalancerNodePorts"] = True

    def initial_status(self, obj: Object) -> dict[str, Any]:
        return {"loadBalancer": {}}

    def prepare_for_create(self, obj: Object) -> None:
        super().prepare_for_create(obj)
        if obj["spec"].get("clusterIP") and not obj["spec"].get("clusterIPs"):
            obj["spec"]["clusterIPs"] = [obj["spec"]["clusterIP"]]
        if not validate_service(obj):
            self._allocate(obj, None)

    def prepare_for_update(self, obj: Object, old: Object) -> None:
        super().prepare_for_update(obj, old)
        self._keep_addresses(obj, old)
        self._drop_fields_of_old_type(obj, old)
        if not validate_service(obj) and not self.immutable(obj, old):
            self._allocate(obj, old)

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_service(obj)

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        after, before = obj["spec"], old["spec"]
        errors: list[FieldError] = []
        if after["type"] == before["type"] == "LoadBalancer":
            given = after.get("loadBalancerClass")
            if given != before.get("loadBalancerClass"):
                errors.append(invalid("spec.loadBalancerClass", given, "may not change once set"))
        if "ExternalName" in (after["type"], before["type"]) or not before.get("clusterIP"):
            return errors
        if after.get("clusterIP") != before.get("clusterIP"):
            detail = "may not change once set"
            errors.append(invalid("spec.clusterIPs[0]", after.get("clusterIPs"), detail))
        return errors

    def _keep_addresses(self, obj: Object, old: Object) -> None:
        """Copy the current addresses to an update that omits them."""
        spec, before = obj["spec"], old["spec"]
        if spec["type"] == "ExternalName":
            return
        if before["type"] != "ExternalName":
            if not spec.get("clusterIP") and not spec.get("clusterIPs"):
                for field in ("clusterIP", "clusterIPs"):
                    if field in before:
                        spec[field] = before[field]
            elif spec.get("clusterIP") != before.get("clusterIP") and spec.get("clusterIPs") == before.get(
                "clusterIPs"
            ):
                spec["clusterIPs"] = [spec["clusterIP"]] if spec.get("clusterIP") else []
            elif spec.get("clusterIP") and not spec.get("clusterIPs"):
                spec["clusterIPs"] = [spec["clusterIP"]]
            for field in ("ipFamilies", "ipFamilyPolicy"):
                if not spec.get(field) and field in before:
                    spec[field] = before[field]
        if _needs_health_check_port(spec) and not spec.get("healthCheckNodePort"):
            _copy(before, spec, "healthCheckNodePort")
        if spec["type"] in _EXTERNAL and before["type"] in _EXTERNAL:
            held = {
                (p.get("protocol"), p["port"]): p["nodePort"]
                for p in before.get("ports") or ()
                if p.get("nodePort")
            }
            requested = {p["nodePort"] for p in spec.get("ports") or () if p.get("nodePort")}
            for port in spec.get("ports") or ():
                kept = held.get((port.get("protocol"), port.get("port")))
                if not port.get("nodePort") and kept and kept not in requested:
                    port["nodePort"] = kept

    def _drop_fields_of_old_type(self, obj: Object, old: Object) -> None:
        """Remove the fields that only the old type has, unless the update changes them."""
        spec, before = obj["spec"], old["spec"]
        dropped: list[str] = []
        if before["type"] != "ExternalName" and spec["type"] == "ExternalName":
            dropped += ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]
        if _needs_node_ports(before) and not _needs_node_ports(spec):
            had = {port.get("nodePort") for port in before.get("ports") or ()}
            for port in spec.get("ports") or ():
                if port.get("nodePort") in had:
                    port.pop("nodePort", None)
        if _needs_health_check_port(before) and not _needs_health_check_port(spec):
            dropped.append("healthCheckNodePort")
        if before["type"] == "LoadBalancer" and spec["type"] != "LoadBalancer":
            dropped += ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
        if _is_external(before) and not _is_external(spec):
            dropped.append("externalTrafficPolicy")
        for field in dropped:
            if spec.get(field) == before.get(field):
                spec.pop(field, None)

    def _allocate(self, obj: Object, old: Object | None) -> None:
        spec = obj["spec"]
        if spec["type"] == "ExternalName":
            for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
                if not spec.get(field):
                    spec.pop(field, None)
            return
        self._allocate_ip(obj, old)
        if _needs_node_ports(spec):
            self._allocate_ports(obj, old)
        if _needs_health_check_port(spec):
            self._allocate_health_check_port(obj, old)

    def _allocate_ip(self, obj: Object, old: Object | None) -> None:
        spec = obj["spec"]
        ip = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or ()), "")
        held = (old or {}).get("spec", {}).get("clusterIP")
        try:
            if not ip:
                ip = self.addresses.new_ip()
            elif ip not in (_NO_IP, held):
                self.addresses.check_ip(ip)
        except AddressError as error:
            if not ip:
                raise internal(str(error)) from None
            raise self._invalid(
                obj, invalid("spec.clusterIPs", spec.get("clusterIPs") or [ip], str(error))
            ) from None
        spec["clusterIP"] = ip
        spec["clusterIPs"] = spec.get("clusterIPs") or [ip]
        if errors := set_ip_families(spec, (old or {}).get("spec")):
            raise self._invalid(obj, *errors)

    def _allocate_ports(self, obj: Object, old: Object | None) -> None:
        own = frozenset(
            p["nodePort"] for p in (old or {}).get("spec", {}).get("ports") or () if p.get("nodePort")
        )
        given: dict[int, str] = {}
        for index, port in enumerate(obj["spec"].get("ports") or ()):
            number = port.get("nodePort")
            if not number:
                continue
            try:
                if number not in given:
                    self.addresses.check_port(number, own=own)
            except AddressError as error:
                raise self._invalid(
                    obj, invalid(f"spec.ports[{index}].nodePort", number, str(error))
                ) from None
            given[number] = port["protocol"]
        taken = set(given)
        for port in obj["spec"].get("ports") or ():
            if not port.get("nodePort"):
                try:
                    port["nodePort"] = self.addresses.new_port(taken)
                except AddressError as error:
                    raise internal(str(error)) from None
                taken.add(port["nodePort"])

    def _allocate_health_check_port(self, obj: Object, old: Object | None) -> None:
        spec = obj["spec"]
        own = (old or {}).get("spec", {}).get("healthCheckNodePort")
        taken = {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}
        number = spec.get("healthCheckNodePort")
        try:
            if not number:
                spec["healthCheckNodePort"] = self.addresses.new_port(taken)
            elif number != own:
                self.addresses.check_port(number)
        except AddressError as error:
            raise internal(
                f"failed to allocate requested HealthCheck NodePort {number}: {error}"
                if number
                else str(error)
            ) from None

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        spec = obj["spec"]
        if spec.get("externalName") and spec["type"] != "ExternalName":
            return ['spec.externalName is ignored when spec.type is not "ExternalName"']
        return []

    def _invalid(self, obj: Object, *errors: FieldError) -> StatusError:
        return invalid_object(self.info, obj["metadata"]["name"], list(errors))
