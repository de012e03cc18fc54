"""Certificate signing requests: approval, denial, failure and the certificate."""

from __future__ import annotations

from typing import Any

from tests.behaviour.conformance.cases.requests import case, delete, get, merge, post, put
from tests.behaviour.conformance.cases.tables import REQUEST, REQUESTS
from tests.behaviour.conformance.exchange import Call, Case

ONE = f"{REQUESTS}/csr-{{ns}}"
APPROVAL = f"{ONE}/approval"
STATUS = f"{ONE}/status"
CERTIFICATE = (
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJNakNCNWFBREFnRUNBaFIyWlF4OUYrZlNiNU1RemVFaDRPYmhRcngxenpB"
    "RkJnTXJaWEF3RGpFTU1Bb0cKQTFVRUF3d0RZV1JoTUNBWERUSTJNVEV4T0RJd05UazFOVm9ZRHpJeE1qWXhNREkxTWpBMU9UVTFX"
    "akFPTVF3dwpDZ1lEVlFRRERBTmhaR0V3S2pBRkJnTXJaWEFESVFBUkUrUXh5cmRxR3BhclFVVElmUXNOdDAyRDc4SkR0em4xCnMz"
    "ZVl1dlUwMXFOVE1GRXdIUVlEVlIwT0JCWUVGTjJhVU1NYlMyaENsQ2U5TnBqaVdXQkFFdjBiTUI4R0ExVWQKSXdRWU1CYUFGTjJh"
    "VU1NYlMyaENsQ2U5TnBqaVdXQkFFdjBiTUE4R0ExVWRFd0VCL3dRRk1BTUJBZjh3QlFZRApLMlZ3QTBFQS9JSXlQQjJPWEttdklh"
    "bGJidXNZVmJhaFdRbzU5WDc1ZEhZaHVyazZPeG9MUTVZcERtamdYaWVQClhETE51aHJDVEpGelVkeFhnRGJEYjVBMXQ4NW9EUT09"
    "Ci0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K"
)
"""A certificate for CN=ada, signed by its own key."""
EARLY = "2020-01-01T00:00:00Z"


def condition(type_: str, **fields: Any) -> dict[str, Any]:
    return {"type": type_, "status": "True", "reason": "Tested", "message": "tested", **fields}


def conditions(*each: dict[str, Any]) -> dict[str, Any]:
    return {"status": {"conditions": list(each)}}


def certificate(encoded: str) -> dict[str, Any]:
    return {"status": {"certificate": encoded}}


def request(what: str, *steps: Call) -> Case:
    """Return a case with a request, which is read and removed at the end."""
    body = {"metadata": {"name": "csr-{ns}"}, "spec": REQUEST}
    return case(f"a certificate request: {what}", post(REQUESTS, body), *steps, get(ONE), delete(ONE))


APPROVED, DENIED, FAILED = (conditions(condition(each)) for each in ("Approved", "Denied", "Failed"))

CASES = [
    request("it is approved", merge(APPROVAL, APPROVED)),
    request("it is denied", merge(APPROVAL, DENIED)),
    request("it is approved, then denied", merge(APPROVAL, APPROVED), merge(APPROVAL, DENIED)),
    request(
        "it is approved and denied", merge(APPROVAL, conditions(condition("Denied"), condition("Approved")))
    ),
    request("a decision is not removed", merge(APPROVAL, APPROVED), merge(APPROVAL, conditions())),
    request("a failure is not removed", merge(STATUS, FAILED), merge(STATUS, conditions())),
    request("a decision is approved twice", merge(APPROVAL, conditions(*[condition("Approved")] * 2))),
    request("its times are kept", merge(APPROVAL, conditions(condition("Approved", lastUpdateTime=EARLY)))),
    request(
        "a condition with the same state keeps its transition",
        merge(STATUS, conditions(condition("Tested", lastTransitionTime=EARLY))),
        merge(STATUS, conditions(condition("Tested", message="again"))),
    ),
    request(
        "a condition with another state has a new transition",
        merge(STATUS, conditions(condition("Tested", lastTransitionTime=EARLY))),
        merge(STATUS, conditions(condition("Tested", status="False"))),
    ),
    request(
        "a status does not change a decision",
        merge(APPROVAL, APPROVED),
        merge(STATUS, conditions(condition("Approved", message="changed"), condition("Failed"))),
    ),
    request("a status removes no decision", merge(APPROVAL, APPROVED), merge(STATUS, FAILED)),
    request("a status denies nothing", merge(STATUS, DENIED)),
    request("a condition without a type", merge(APPROVAL, conditions({"status": "True"}))),
    request("a condition without a state", merge(APPROVAL, conditions({"type": "Approved"}))),
    request(
        "a decision that is not true", merge(APPROVAL, conditions(condition("Approved", status="False")))
    ),
    request("a state that is none", merge(APPROVAL, conditions(condition("Tested", status="Perhaps")))),
    request(
        "an approval sets no certificate",
        merge(APPROVAL, {"status": {"certificate": CERTIFICATE, **APPROVED["status"]}}),
    ),
    request(
        "a status sets a certificate", merge(APPROVAL, APPROVED), merge(STATUS, certificate(CERTIFICATE))
    ),
    request(
        "a certificate is final",
        merge(STATUS, certificate(CERTIFICATE)),
        merge(STATUS, certificate(CERTIFICATE * 2)),
    ),
    request(
        "a certificate is not removed",
        merge(STATUS, certificate(CERTIFICATE)),
        merge(STATUS, {"status": None}),
    ),
    request("a certificate without a block", merge(STATUS, certificate("YQ=="))),
    request("a certificate that is a request", merge(STATUS, certificate(REQUEST["request"]))),
    request("an update changes no status", merge(ONE, {**APPROVED, "spec": {"usages": ["server auth"]}})),
    request(
        "a replace approves",
        put(APPROVAL, {"metadata": {"name": "csr-{ns}"}, "spec": {**REQUEST, "usages": ["any"]}, **APPROVED}),
    ),
]
