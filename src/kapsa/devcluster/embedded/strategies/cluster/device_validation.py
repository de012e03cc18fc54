"""Validation of claims for devices, of their classes, and of the slices in which drivers publish devices."""

from __future__ import annotations

import json
import re
from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.checks import (
    LABEL,
    LABEL_KEY,
    LABEL_VALUE,
    SUBDOMAIN,
    Check,
    at_least,
    at_most,
    each,
    every,
    fields,
    filled,
    given,
    one_of,
    present,
    unique,
)
from kapsa.devcluster.embedded.strategies.generic.claims import csi_driver
from kapsa.devcluster.embedded.strategies.generic.node_selectors import node_selector
from kapsa.schemas.field_errors import FieldError, invalid, not_supported, required, too_long

__all__ = ["CLAIM_SPEC", "CLAIM_TEMPLATE", "CLASS_SPEC", "validate_slice_spec"]

Object = dict[str, Any]

_LONGEST_EXPRESSION = _LARGEST_PARAMETERS = 10 * 1024
_LONGEST_ID, _LONGEST_VALUE, _LONGEST_POOL = 32, 64, 253
_MOST, _MOST_ALTERNATIVES, _MOST_DEVICES, _MOST_ATTRIBUTES = 32, 8, 128, 32
_EFFECTS = one_of("NoExecute", "NoSchedule", "None")
_NOT_A_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_IDENTIFIER_PROBLEM = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    "characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is "
    "'[A-Za-z_][A-Za-z0-9_]*')"
)
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?"
)
_VALUES = ("bool", "int", "string", "version", "bools", "ints", "strings", "versions")


def _expression(value: Any, path: str) -> list[FieldError]:
    text = value or ""
    if len(text) > _LONGEST_EXPRESSION:
        return [too_long(path, _LONGEST_EXPRESSION)]
    # CEL is imported with the first selector: a server without any starts sooner.
    from kapsa.devcluster.embedded.expressions.device_selectors import selector_problem

    problem = selector_problem(text)
    return [invalid(path, text, problem)] if problem else []


def _selector(selector: Object, path: str) -> list[FieldError]:
    if selector.get("cel") is None:
        return [required(f"{path}.cel")]
    return _expression(selector["cel"].get("expression"), f"{path}.cel.expression")


def _parameters(value: Any, path: str) -> list[FieldError]:
    if value is None:
        return [required(path)]
    if not isinstance(value, dict):
        return [invalid(path, "<value omitted>", "must be a valid JSON object")]
    large = len(json.dumps(value, separators=(",", ":"))) > _LARGEST_PARAMETERS
    return [too_long(path, _LARGEST_PARAMETERS)] if large else []


def _configuration(config: Object, path: str) -> list[FieldError]:
    if config.get("opaque") is None:
        return [required(f"{path}.opaque")]
    return _OPAQUE(config["opaque"], f"{path}.opaque")


def _toleration(toleration: Object, path: str) -> list[FieldError]:
    operator, value = toleration.get("operator") or "", toleration.get("value") or ""
    errors = filled(LABEL_KEY)(toleration.get("key"), f"{path}.key")
    if operator == "Exists" and value:
        errors.append(invalid(f"{path}.value", value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        errors += LABEL_VALUE(value, f"{path}.value")
    errors += present(one_of("Equal", "Exists"))(operator, f"{path}.operator")
    return errors + filled(_EFFECTS)(toleration.get("effect"), f"{path}.effect")


def _amount(request: Object, path: str) -> list[FieldError]:
    mode, count = request.get("allocationMode") or "", request.get("count") or 0
    if mode == "All":
        detail = "must not be specified when allocationMode is 'All'"
        return [invalid(f"{path}.count", count, detail)] if count else []
    if mode == "ExactCount":
        return at_least(1)(count, f"{path}.count")
    return [not_supported(f"{path}.allocationMode", mode, ("All", "ExactCount"))]


def _distinct(limit: int, check: Check, key: str = "") -> Check:
    """Return the check of a list that is a set: its length, its items, and that none occurs twice."""
    return at_most(limit, every(each(check), unique(key, field="")))


def _request(request: Object, path: str) -> list[FieldError]:
    errors = LABEL(request.get("name"), f"{path}.name")
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
    detail = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not alternatives:
        return [*errors, required(path, detail)]
    if exactly is not None and alternatives:
        return [*errors, invalid(path, None, f"{detail}, but multiple fields are set")]
    if exactly is not None:
        return errors + _DEVICES(exactly, f"{path}.exactly")
    return errors + _ALTERNATIVES(alternatives, f"{path}.firstAvailable")


def _claim(devices: Any, path: str) -> list[FieldError]:
    claim = devices or {}
    requests = claim.get("requests") or []
    errors = _distinct(_MOST, _request, "name")(requests, f"{path}.requests")
    listed = {request.get("name") or "" for request in requests}
    listed |= {
        f"{request.get('name') or ''}/{alternative.get('name') or ''}"
        for request in requests
        for alternative in request.get("firstAvailable") or ()
    }

    def reference(name: str, where: str) -> list[FieldError]:
        wrong = [error for part in name.split("/") for error in LABEL(part, where)]
        return wrong if name in listed else [*wrong, invalid(where, name, _NOT_A_REQUEST)]

    references = fields(requests=_distinct(_MOST, reference))
    errors += at_most(_MOST, each(references, _constraint))(claim.get("constraints"), f"{path}.constraints")
    return errors + at_most(_MOST, each(references, _configuration))(claim.get("config"), f"{path}.config")


def _constraint(constraint: Object, path: str) -> list[FieldError]:
    for field in ("matchAttribute", "distinctAttribute"):
        if constraint.get(field) is not None:
            return _full_name(constraint[field], f"{path}.{field}")
    detail = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
    return [required(path, detail)]


def _full_name(name: str, path: str) -> list[FieldError]:
    errors = _qualified_name(name, path)
    if "/" not in name:
        detail = "a fully qualified name must be a domain and a name separated by a slash"
        errors.append(invalid(path, name, detail))
    return errors


def _qualified_name(name: str, path: str) -> list[FieldError]:
    domain, slash, identifier = name.partition("/")
    if not slash:
        return _c_identifier(name, path)
    errors = csi_driver(domain, path) if domain else [invalid(path, "", "the domain must not be empty")]
    if not identifier:
        return [*errors, invalid(path, "", "the name must not be empty")]
    return errors + _c_identifier(identifier, path)


def _c_identifier(name: str, path: str) -> list[FieldError]:
    errors = [too_long(path, _LONGEST_ID)] if len(name) > _LONGEST_ID else []
    return errors if _IDENTIFIER.fullmatch(name) else [*errors, invalid(path, name, _IDENTIFIER_PROBLEM)]


_OPAQUE = fields(driver=csi_driver, parameters=_parameters)
_SELECTORS = at_most(_MOST, each(_selector))
_DEVICES = every(
    fields(deviceClassName=present(SUBDOMAIN), selectors=_SELECTORS, tolerations=each(_toleration)), _amount
)
_ALTERNATIVES = _distinct(_MOST_ALTERNATIVES, every(fields(name=LABEL), _DEVICES), "name")
CLAIM_SPEC = fields(devices=_claim)
CLAIM_TEMPLATE = fields(metadata=fields(labels=rules.labels), spec=CLAIM_SPEC)
CLASS_SPEC = fields(selectors=_SELECTORS, config=at_most(_MOST, each(_configuration)))


def _pool_name(name: str, path: str) -> list[FieldError]:
    errors = [too_long(path, _LONGEST_POOL)] if len(name) > _LONGEST_POOL else []
    return errors + [
        invalid(path, part, problem) for part in name.split("/") for problem in names.dns1123_subdomain(part)
    ]


def _version(value: str, path: str) -> list[FieldError]:
    detail = "must be a string compatible with semver.org spec 2.0.0"
    errors = [] if _SEMVER.fullmatch(value) else [invalid(path, value, detail)]
    return errors + _short(value, path)


def _short(value: str, path: str) -> list[FieldError]:
    return [too_long(path, _LONGEST_VALUE)] if len(value) > _LONGEST_VALUE else []


def _attribute(attribute: Object, path: str) -> list[FieldError]:
    errors = _ATTRIBUTE(attribute, path)
    count = sum(attribute.get(field) is not None for field in _VALUES)
    if count == 1:
        return errors
    return [*errors, invalid(path, attribute if count else "", "exactly one value must be specified")]


def _device(device: Object, path: str) -> list[FieldError]:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    errors = LABEL(device.get("name"), f"{path}.name")
    total = len(attributes) + len(capacity)
    if total > _MOST_ATTRIBUTES:
        detail = f"the total number of attributes and capacities must not exceed {_MOST_ATTRIBUTES}"
        errors.append(invalid(path, total, detail))
    for name, attribute in attributes.items():
        errors += _qualified_name(name, f"{path}.attributes")
        errors += _attribute(attribute or {}, f"{path}.attributes[{name}]")
    for name in capacity:
        errors += _qualified_name(name, f"{path}.capacity")
    return errors + each(_TAINT)(device.get("taints"), f"{path}.taints")


_TAINT = fields(key=LABEL_KEY, value=filled(LABEL_VALUE), effect=present(_EFFECTS))
_ATTRIBUTE = fields(
    string=given(_short), version=given(_version), strings=each(_short), versions=each(_version)
)
_POOL = fields(
    name=present(_pool_name),
    resourceSliceCount=at_least(1),
    generation=at_least(0, "must be greater than or equal to zero"),
)
_DEVICE_NAMES = _distinct(_MOST_DEVICES, _device, "name")
_PLACES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")


def validate_slice_spec(value: Any, path: str) -> list[FieldError]:
    """Return the errors in the spec of a slice of devices."""
    spec = value or {}
    errors = csi_driver(spec.get("driver"), f"{path}.driver") + _POOL(spec.get("pool"), f"{path}.pool")
    errors += _where(spec, path)
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        errors.append(invalid(path, "", "only one of `sharedCounters` or `devices` is allowed"))
    return errors + _DEVICE_NAMES(spec.get("devices"), f"{path}.devices")


def _where(spec: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    node = spec.get("nodeName")
    if node == "":
        detail = "must be either unset or set to a non-empty string"
        errors.append(invalid(f"{path}.nodeName", node, detail))
    errors += filled(SUBDOMAIN)(node, f"{path}.nodeName")
    if spec.get("nodeSelector") is not None:
        errors += node_selector(spec["nodeSelector"], f"{path}.nodeSelector")
    for field in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(field) is False:
            errors.append(invalid(f"{path}.{field}", False, "must be either unset or set to true"))
    chosen = [f"`{field}`" for field in _PLACES if spec.get(field) not in (None, "", False)]
    detail = f"exactly one of {', '.join(f'`{field}`' for field in _PLACES)} is required"
    if not chosen:
        errors.append(required(path, detail))
    elif len(chosen) > 1:
        shown = f"{{{', '.join(chosen)}}}"
        errors.append(invalid(path, shown, f"{detail}, but multiple fields are set"))
    return errors
