"""The change of one CRD, decided before anything is written. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kapsa.fleet.domain.rollout.releases import ReleaseRef
from kapsa.fleet.infrastructure.operations.crds.crd_record import (
    KEEP,
    RECORD,
    CrdHandover,
    CrdRecord,
    CrdReturn,
    CrdState,
    no_conversion,
    read_record,
    state_of_spec,
)
from kapsa.fleet.infrastructure.operations.crds.superset import (
    joined_spec,
    storage_version,
    version_names,
    with_storage,
)

__all__ = [
    "CRD",
    "CrdPlan",
    "earlier_storage",
    "plan_crd",
    "plan_detachment",
    "plan_return",
    "plan_storage",
    "plan_switch",
]

CRD = "apiextensions.k8s.io/v1/CustomResourceDefinition"
Crd = Mapping[str, Any]


class CrdPlan(msgspec.Struct, frozen=True):
    """The CRD to apply. Everything it lacks stays as it is on the cluster."""

    body: dict[str, Any]
    live: dict[str, Any] | None = None
    dropped: frozenset[str] = frozenset()
    """Versions to remove from the body, once nothing is stored in them."""

    @property
    def name(self) -> str:
        """The name of the CRD."""
        return str(self.body["metadata"]["name"])

    @property
    def blocked_by(self) -> frozenset[str]:
        """The dropped versions in which objects may be stored."""
        stored = ((self.live or {}).get("status") or {}).get("storedVersions") or ()
        return self.dropped & frozenset(stored)

    def final_body(self) -> dict[str, Any]:
        """Return the body without the dropped versions."""
        spec = self.body["spec"]
        versions = [each for each in spec["versions"] if each["name"] not in self.dropped]
        return {**self.body, "spec": {**spec, "versions": versions}}


def plan_crd(definition: Crd, live: dict[str, Any] | None, change: CrdHandover) -> CrdPlan:
    """Return the CRD of a chart as a superset of the live one, with a record of what was there.

    Blue-green keeps conversion and storage version as they are until the switch: the earlier controller serves them.
    """
    spec = definition["spec"]
    following_state = state_of_spec(spec, change.following, change.chart, change.deployment)
    if live is None:
        return CrdPlan(_body(definition, dict(spec), CrdRecord(following_state)))
    record = _following_record(following_state, live, change)
    joined = joined_spec(spec, live["spec"])
    if change.present != change.following:
        joined = with_storage(joined, storage_version(live["spec"]))
        if _has_webhook(live["spec"]):
            joined["conversion"] = live["spec"]["conversion"]
    base = record.base.versions if record.base is not None else version_names(live["spec"])
    dropped = frozenset(version_names(live["spec"])) - {
        *following_state.versions,
        *base,
        storage_version(joined),
    }
    return CrdPlan(_body(definition, joined, record), live, dropped)


def plan_return(live: Crd, earlier: Crd | None, left_behind: str = "") -> dict[str, Any] | None:
    """Return the patch that gives a CRD back what it had before its chart. Versions and properties stay.

    `earlier` is the CRD of the chart before, if it is known: its schemas decide again. None if nothing is known of
    the state before: the CRD stays as it is. `left_behind` is recorded in the same write: whichever process dies
    after it, the rollback still ends with this sentence.
    """
    record = read_record(live)
    assert record is not None
    if record.base is None and record.forgotten:
        return None
    # Without a base the chart brought the CRD, and its conversion Service goes with it.
    state = record.base or msgspec.structs.replace(
        _unserved(record.current), storage=storage_version(live["spec"])
    )
    spec = live["spec"] if earlier is None else joined_spec(earlier["spec"], live["spec"])
    following = CrdRecord.after(record.earlier, state, forgotten=record.forgotten)
    if left_behind:
        returned = CrdReturn(record.current.deployment, left_behind)
        following = msgspec.structs.replace(following, returned=returned)
    return _patch(live, spec, state, following)


def earlier_storage(live: Crd, deployment: str) -> str:
    """Return the storage version before a deployment, if resources may be stored in one that only its chart converts.

    Empty if nothing has to be converted before that webhook goes away.
    """
    record = read_record(live)
    if record is None or record.base is None or record.current.deployment != deployment:
        return ""
    before = record.base.storage
    stored = set((live.get("status") or {}).get("storedVersions") or ())
    moved = record.current.storage != before and bool(stored - {before})
    return before if moved and _has_webhook(live["spec"]) else ""


def plan_storage(live: Crd, storage: str) -> dict[str, Any] | None:
    """Return the patch that changes the storage version alone; None if the CRD has it."""
    if storage_version(live["spec"]) == storage:
        return None
    return {
        "metadata": {"resourceVersion": live["metadata"]["resourceVersion"]},
        "spec": {"versions": with_storage(live["spec"], storage)["versions"]},
    }


def plan_switch(live: Crd, release: ReleaseRef) -> dict[str, Any] | None:
    """Return the patch that gives a CRD the conversion and storage version of a release; None if it has them."""
    record = read_record(live)
    state = record.state_of(release) if record is not None else None
    if record is None or state is None or _holds(live["spec"], state):
        return None
    return _patch(live, live["spec"], state, record)


def plan_detachment(live: Crd, change: CrdHandover) -> dict[str, Any]:
    """Return the patch for a CRD that the next release no longer has, whose conversion Service is about to go."""
    state = msgspec.structs.replace(
        _state(live, change.present, read_record(live)),
        release=str(change.following),
        chart=change.chart,
        deployment=change.deployment,
        conversion=no_conversion(),
    )
    return _patch(live, live["spec"], state, _following_record(state, live, change))


def _following_record(following_state: CrdState, live: Crd, change: CrdHandover) -> CrdRecord:
    """Return the record after the change. A repetition by the same deployment keeps what the first attempt saw."""
    record = read_record(live)
    if record is not None and change.deployment and _origin(record.current) == _origin(following_state):
        return msgspec.structs.replace(record, current=following_state)
    forgotten = record is not None and record.forgotten
    return CrdRecord.after(_past(live, change, record), following_state, forgotten=forgotten)


def _origin(state: CrdState) -> tuple[str, str, str]:
    return state.deployment, state.chart, state.release


def _past(live: Crd, change: CrdHandover, record: CrdRecord | None) -> tuple[CrdState, ...]:
    """Return the states before a change, newest first. The first belongs to the chart that a rollback returns to.

    A deployment that ended between the CRDs and Helm has left CRDs that are ahead of the release.
    """
    live_state = _state(live, change.present, record)
    if record is None or change.base_chart == "":
        return (live_state, *(record.past if record is not None else ()))
    states = (live_state, *record.past)
    recorded = enumerate((record.current, *record.past))
    start = next((number for number, each in recorded if _is_base(each, change)), None)
    if start is not None:
        return states[start:]
    return states if change.base_chart else (_unserved(live_state),)


def _is_base(state: CrdState, change: CrdHandover) -> bool:
    """Return whether a recorded state is of the chart that a rollback returns to, or is served without the release."""
    if change.base_chart is not None:
        return state.chart == change.base_chart
    return not state.chart or state.release not in {str(change.present), str(change.following)}


def _unserved(state: CrdState) -> CrdState:
    """Return the state of a CRD that no chart serves."""
    return msgspec.structs.replace(state, chart="", deployment="", conversion=no_conversion())


def _state(live: Crd, present: ReleaseRef, record: CrdRecord | None) -> CrdState:
    """Return the state of a live CRD, under the chart that applied it if that is recorded."""
    if record is None:
        return state_of_spec(live["spec"], present)
    current = record.current
    state = state_of_spec(live["spec"], present, current.chart, current.deployment)
    return msgspec.structs.replace(state, versions=current.versions)


def _body(definition: Crd, spec: dict[str, Any], record: CrdRecord) -> dict[str, Any]:
    metadata = definition["metadata"]
    spec.setdefault("conversion", no_conversion())
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": metadata["name"],
            "labels": dict(metadata.get("labels") or {}),
            "annotations": {**(metadata.get("annotations") or {}), **KEEP, RECORD: record.annotation()},
        },
        "spec": spec,
    }


def _patch(live: Crd, spec: Mapping[str, Any], state: CrdState, record: CrdRecord) -> dict[str, Any]:
    """Return a merge patch, bound to the version that it was made from."""
    conversion = {"webhook": None, **(state.conversion or no_conversion())}
    return {
        "metadata": {
            "resourceVersion": live["metadata"]["resourceVersion"],
            "annotations": {**KEEP, RECORD: record.annotation()},
        },
        "spec": {"versions": with_storage(spec, state.storage)["versions"], "conversion": conversion},
    }


def _holds(spec: Mapping[str, Any], state: CrdState) -> bool:
    present = spec.get("conversion") or no_conversion()
    return present == (state.conversion or no_conversion()) and storage_version(spec) == state.storage


def _has_webhook(spec: Mapping[str, Any]) -> bool:
    return (spec.get("conversion") or {}).get("strategy") == "Webhook"
