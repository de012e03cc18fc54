"""Validation ratcheting: what a cluster's version makes of a finding.

From Kubernetes 1.33 on, an update does not fail on a value that it leaves unchanged. Verified against the API
server: this holds for a scalar that is reached through fields, maps and lists of type map. It does not hold for
an object, list or map as a whole (a missing required field, the number of entries, oneOf, a rule over several
fields), since changing anything inside of it changes its value; nor for entries of atomic lists and sets; nor for
rules that use oldSelf; nor for embedded resources; nor for pruning. And a new object is always validated in full:
a restore from a backup or from git fails.
"""

import re

import msgspec

from kapsa.fleet.domain.crds.findings import ChangeSeverity, CrdFinding

__all__ = ["has_ratcheting", "on_cluster"]

_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})")
_FIRST = (1, 33)


def has_ratcheting(kubernetes_version: str) -> bool:
    """Return whether a cluster of this version ratchets. One whose version is not understood does not."""
    match = _VERSION.match(kubernetes_version)
    return match is not None and (int(match[1]), int(match[2])) >= _FIRST


def on_cluster(findings: tuple[CrdFinding, ...], kubernetes_version: str) -> tuple[CrdFinding, ...]:
    """Return the findings with the severity that they have on a cluster of this version."""
    if not has_ratcheting(kubernetes_version):
        return findings
    return tuple(_softened(finding) for finding in findings)


def _softened(finding: CrdFinding) -> CrdFinding:
    if not finding.ratchets or finding.severity is not ChangeSeverity.BREAKING:
        return finding
    reason = f"{finding.reason}; updates that leave the value unchanged pass, new objects do not"
    return msgspec.structs.replace(finding, severity=ChangeSeverity.WARNING, reason=reason)
