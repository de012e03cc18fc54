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

__all__ = [
    "KEEP",
    "RECORD",
    "CrdHandover",
    "CrdRecord",
    "CrdReturn",
    "CrdState",
    "no_conversion",
    "read_record",
    "state_of_spec",
]

RECORD = "fleet.kapsa-project.io/crd"
KEEP = {"helm.sh/resource-policy": "keep"}
"""Helm deletes no object with this annotation."""
_PAST = 10
"""The states that a record remembers. Helm keeps as many revisions: no rollback goes further back."""


class CrdHandover(msgspec.Struct, frozen=True):
    """The deployment of a chart, as far as CRDs are concerned."""

    present: ReleaseRef
    following: ReleaseRef
    chart: str = ""
    deployment: str = ""
    base_chart: str | None = ""
    """The chart that a rollback returns to; empty if it is not known, None if a rollback uninstalls."""


class CrdState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The parts of a CRD that go forward and back with a chart."""

    release: str
    """Namespace and name of the release whose controller serves the conversion."""
    chart: str
    """The digest of the chart; empty if another client applied the CRD."""
    storage: str
    conversion: dict[str, Any] = {}
    versions: tuple[str, ...] = ()
    deployment: str = ""
    """The deployment that applied the chart: the same chart may be deployed again, with other values."""


class CrdReturn(msgspec.Struct, frozen=True, rename="camel"):
    """A rollback that could not convert all resources of a CRD back."""

    deployment: str
    left_behind: str
    """One sentence about the resources that lack fields since."""


class CrdRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The chart that was applied last, and those before."""

    current: CrdState
    base: CrdState | None = None
    """None if the chart brought the CRD, or the state before it is forgotten."""
    earlier: tuple[CrdState, ...] = ()
    """The states before the base, newest first: a second rollback returns to them."""
    forgotten: bool = False
    """True if older states were left out."""
    returned: CrdReturn | None = None
    """The rollback that led to the current state, if it left resources behind."""

    @classmethod
    def after(cls, past: tuple[CrdState, ...], current: CrdState, *, forgotten: bool = False) -> CrdRecord:
        """Return the record of a state that follows others, newest first."""
        kept = past[:_PAST]
        return cls(current, kept[0] if kept else None, kept[1:], forgotten or len(past) > _PAST)

    @property
    def past(self) -> tuple[CrdState, ...]:
        """The states before the current one, newest first."""
        return () if self.base is None else (self.base, *self.earlier)

    def left_behind(self, deployment: str) -> str:
        """Return the sentence about resources that the rollback of a deployment left behind; empty if none is."""
        returned = self.returned
        return returned.left_behind if returned is not None and returned.deployment == deployment else ""

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


def state_of_spec(
    spec: Mapping[str, Any], release: ReleaseRef, chart: str = "", deployment: str = ""
) -> CrdState:
    """Return the state that a spec has."""
    return CrdState(
        release=str(release),
        chart=chart,
        storage=storage_version(spec),
        conversion=dict(spec.get("conversion") or no_conversion()),
        versions=version_names(spec),
        deployment=deployment,
    )


def no_conversion() -> dict[str, Any]:
    """Return the conversion that changes the version alone, and needs no webhook."""
    return {"strategy": "None"}
