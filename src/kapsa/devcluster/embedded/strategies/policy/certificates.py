"""Certificate signing requests."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.policy import certificate_status
from kapsa.schemas.field_errors import FieldError, duplicate, invalid, not_supported, required

_USAGES = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)
_SHORTEST = 600


class CertificateSigningRequestStrategy(BuiltInStrategy):
    """Strategy of certificate requests. An update changes neither the spec nor, except by a subresource, the status."""

    def reset_for_update(self, obj: Object, old: Object) -> None:
        super().reset_for_update(obj, old)
        obj["spec"] = old["spec"]

    def prepare_for_status(self, obj: Object, old: Object) -> None:
        certificate_status.keep_approval(obj, old)

    def prepare_for_part(self, subresource: str, obj: Object, old: Object) -> None:
        certificate_status.keep_all_but_conditions(obj, old)

    def complete_conditions(self, obj: Object, old: Object, now: str) -> None:
        certificate_status.set_times(obj, old, now)

    def validate_status(self, obj: Object, old: Object) -> list[FieldError]:
        return certificate_status.validate(obj, old, approves=False)

    def validate_part(self, subresource: str, obj: Object, old: Object) -> list[FieldError]:
        return certificate_status.validate(obj, old, approves=True)

    def validate_create(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = _request(spec.get("request"))
        usages = spec.get("usages") or []
        if not usages:
            errors.append(required("spec.usages"))
        errors += _usages(usages)
        errors += _signer(spec.get("signerName") or "")
        seconds = spec.get("expirationSeconds")
        if seconds is not None and seconds < _SHORTEST:
            detail = "may not specify a duration less than 600 seconds (10 minutes)"
            errors.append(invalid("spec.expirationSeconds", seconds, detail))
        return errors


def _request(encoded: str | None) -> list[FieldError]:
    """Return the error of a request that is not a signed PKCS#10 one."""
    from cryptography import x509  # few clusters ever see a request

    try:
        pem = base64.b64decode(encoded or "")
    except (ValueError, binascii.Error):
        pem = b""
    if b"-----BEGIN CERTIFICATE REQUEST-----" not in pem:
        return [_unreadable(encoded, "PEM block type must be CERTIFICATE REQUEST")]
    try:
        parsed = x509.load_pem_x509_csr(pem)
        signed = parsed.is_signature_valid
    except ValueError:
        return [_unreadable(encoded, "asn1: structure error")]
    return [] if signed else [_unreadable(encoded, "x509: signature is not valid")]


def _unreadable(encoded: str | None, detail: str) -> FieldError:
    return invalid("spec.request", encoded, detail)


def _usages(usages: list[Any]) -> list[FieldError]:
    errors = [
        not_supported(f"spec.usages[{index}]", usage, _USAGES)
        for index, usage in enumerate(usages)
        if usage not in _USAGES
    ]
    repeated = [index for index, usage in enumerate(usages) if usage in usages[:index]]
    return [*errors, *(duplicate(f"spec.usages[{index}]", usages[index]) for index in repeated)]


def _signer(signer: str) -> list[FieldError]:
    """Return the errors of a signer's name, which is a domain, a slash and a path."""
    if not signer:
        return [required("spec.signerName")]
    domain, _, path = signer.partition("/")
    if not path or "/" in path:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid("spec.signerName", signer, detail)]
    problems = [*names.dns1123_subdomain(domain), *names.dns1123_subdomain(path)]
    return [invalid("spec.signerName", signer, problem) for problem in problems]
