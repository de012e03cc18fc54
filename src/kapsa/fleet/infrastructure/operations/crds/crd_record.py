"""The record that the fleet leaves on a CRD: the chart that it is from, and what was there before.

It is an annotation of the CRD itself, written in the same request as the change. Whichever replica dies, neither exists
without the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.operations.crds.superset import storage_version, version_names

__all__ = ["KEEP", "RECORD", "CrdRecord", "CrdState", "no_conversion", "read_record", "state_of_spec"]

RECORD = "fleet.kapsa-project.io/crd"
KEEP = {"helm.sh/resource-policy": "keep"}
"""Helm deletes no object with this annotation."""


class CrdState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The parts of a CRD that go forward and back with a chart."""

    release: str
    """Namespace and name of the release whose controller serves the conversion."""
    chart: str
    """The digest of the chart; empty if another client applied the CRD."""
    storage: str
    conversion: dict[str, Any] = {}
    versions: tuple[str, ...] = ()


class CrdRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The chart that was applied last, and the one before."""

    current: CrdState
    base: CrdState | None = None
    """None if the chart brought the CRD."""

    def annotation(self) -> str:
        """Return the record as the value of its annotation."""
        return msgspec.json.encode(self).decode()

    def state_of(self, release: ReleaseRef) -> CrdState | None:
        """Return what a release needs, None if the record does not mention it."""
        states = [self.current] if self.base is None else [self.current, self.base]
        return next((each for each in states if each.release == str(release)), None)


def read_record(crd: Mapping[str, Any] | None) -> CrdRecord | None:
    """Return the record of a CRD; None if there is none that can be read."""
    text = (((crd or {}).get("metadata") or {}).get("annotations") or {}).get(RECORD)
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text, type=CrdRecord)
    except msgspec.DecodeError:
        return None


def state_of_spec(spec: Mapping[str, Any], release: ReleaseRef, chart: str) -> CrdState:
    """Return the state that a spec has."""
    return CrdState(
        release=str(release),
        chart=chart,
        storage=storage_version(spec),
        conversion=dict(spec.get("conversion") or no_conversion()),
        versions=version_names(spec),
    )


def no_conversion() -> dict[str, Any]:
    """Return the conversion that changes the version alone, and needs no webhook."""
    return {"strategy": "None"}
