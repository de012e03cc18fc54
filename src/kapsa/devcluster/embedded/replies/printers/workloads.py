"""The printers of workloads: Deployments, sets, Jobs, autoscalers, disruption budgets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kapsa.devcluster.embedded.replies.printers.cells import (
    Object,
    age,
    containers,
    dig,
    human_duration,
    labels,
    printer,
    selector,
    since,
)

__all__ = ["PRINTERS"]


def _number(obj: Object, *keys: str) -> int:
    value = dig(obj, *keys)
    return value if isinstance(value, int) else 0


def _template(obj: Object) -> tuple[str, str]:
    return containers(dig(obj, "spec", "template", "spec"))


def _deployment(obj: Object, now: datetime) -> list[Any]:
    ready = f"{_number(obj, 'status', 'readyReplicas')}/{_number(obj, 'spec', 'replicas')}"
    updated, available = (
        _number(obj, "status", "updatedReplicas"),
        _number(obj, "status", "availableReplicas"),
    )
    shown = selector(dig(obj, "spec", "selector"), empty="")
    return [obj["metadata"]["name"], ready, updated, available, age(obj, now), *_template(obj), shown]


def _replicas(obj: Object, now: datetime) -> list[Any]:
    counts = [_number(obj, "spec", "replicas")]
    counts += [_number(obj, "status", key) for key in ("replicas", "readyReplicas")]
    chosen = dig(obj, "spec", "selector")
    plain = chosen is not None and not {"matchLabels", "matchExpressions"} & set(chosen)
    shown = labels(chosen) if plain else selector(chosen)
    return [obj["metadata"]["name"], *counts, age(obj, now), *_template(obj), shown]


def _stateful_set(obj: Object, now: datetime) -> list[Any]:
    ready = f"{_number(obj, 'status', 'readyReplicas')}/{_number(obj, 'spec', 'replicas')}"
    return [obj["metadata"]["name"], ready, age(obj, now), *_template(obj)]


def _daemon_set(obj: Object, now: datetime) -> list[Any]:
    keys = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    counts = [_number(obj, "status", key) for key in keys]
    nodes = labels(dig(obj, "spec", "template", "spec", "nodeSelector"))
    shown = selector(dig(obj, "spec", "selector"))
    return [obj["metadata"]["name"], *counts, nodes, age(obj, now), *_template(obj), shown]


def _revision(obj: Object, now: datetime) -> list[Any]:
    owner = next(
        (owner for owner in obj["metadata"].get("ownerReferences") or () if owner.get("controller")), None
    )
    name = "<none>"
    if owner is not None:
        group = owner["apiVersion"].rpartition("/")[0]
        kind = owner["kind"].lower()
        name = f"{kind}.{group}/{owner['name']}" if group else f"{kind}/{owner['name']}"
    return [obj["metadata"]["name"], name, obj.get("revision", 0), age(obj, now)]


_JOB_CONDITIONS = (
    ("Complete", "Complete"),
    ("Failed", "Failed"),
    ("", "Terminating"),
    ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"),
    ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)


def _job_status(obj: Object) -> str:
    conditions = dig(obj, "status", "conditions") or ()
    true = {entry["type"] for entry in conditions if entry.get("status") == "True"}
    for condition, text in _JOB_CONDITIONS:
        if condition in true or (not condition and obj["metadata"].get("deletionTimestamp")):
            return text
    return "Running"


def _job(obj: Object, now: datetime) -> list[Any]:
    succeeded, total = _number(obj, "status", "succeeded"), dig(obj, "spec", "completions")
    parallelism = _number(obj, "spec", "parallelism")
    completions = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    if total is not None:
        completions = f"{succeeded}/{total}"
    started, ended = dig(obj, "status", "startTime"), dig(obj, "status", "completionTime")
    duration = ""
    if started:
        end = datetime.fromisoformat(ended) if ended else now
        duration = human_duration(end - datetime.fromisoformat(started))
    shown = selector(dig(obj, "spec", "selector"))
    name, status = obj["metadata"]["name"], _job_status(obj)
    return [name, status, completions, duration, age(obj, now), *_template(obj), shown]


def _cron_job(obj: Object, now: datetime) -> list[Any]:
    spec, last = obj.get("spec") or {}, dig(obj, "status", "lastScheduleTime")
    suspend = spec.get("suspend")
    template = dig(spec, "jobTemplate", "spec") or {}
    return [
        obj["metadata"]["name"],
        spec.get("schedule", ""),
        spec.get("timeZone") or "<none>",
        "<unset>" if suspend is None else ("True" if suspend else "False"),
        len(dig(obj, "status", "active") or ()),
        since(last, now) if last else "<none>",
        age(obj, now),
        *containers(dig(template, "template", "spec")),
        selector(template.get("selector")),
    ]


def _autoscaler(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    target = spec.get("scaleTargetRef") or {}
    minimum = spec.get("minReplicas")
    return [
        obj["metadata"]["name"],
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(spec.get("metrics") or (), status.get("currentMetrics") or ()),
        "<unset>" if minimum is None else str(minimum),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age(obj, now),
    ]


def _metrics(specs: Any, statuses: Any) -> str:
    if not specs:
        return "<none>"
    shown = [
        _metric(spec, statuses[index] if index < len(statuses) else {}) for index, spec in enumerate(specs)
    ]
    text = ", ".join(shown[:2])
    return f"{text} + {len(shown) - 2} more..." if len(shown) > 2 else text


def _metric(spec: Object, status: Object) -> str:
    key = spec.get("type", "")[:1].lower() + spec.get("type", "")[1:]
    target, current = dig(spec, key, "target"), dig(status, key, "current") or {}
    if target is None:
        return "<unknown type>"
    named = f"{dig(spec, key, 'name')}: " if key in ("resource", "containerResource") else ""
    if target.get("averageValue") is not None:
        average = " (avg)" if key in ("external", "object") else ""
        return f"{named}{current.get('averageValue', '<unknown>')}/{target['averageValue']}{average}"
    if named:
        used, desired = current.get("averageUtilization"), target.get("averageUtilization")
        left = "<unknown>" if used is None else f"{used}%"
        return f"{named}{left}/{'<auto>' if desired is None else f'{desired}%'}"
    return f"{current.get('value', '<unknown>')}/{target.get('value', '<unknown>')}"


def _budget(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    limits = [str(spec.get(key, "N/A")) for key in ("minAvailable", "maxUnavailable")]
    return [obj["metadata"]["name"], *limits, _number(obj, "status", "disruptionsAllowed"), age(obj, now)]


_SCALED = "Name, Desired:integer, Current:integer, Ready:integer, Age, Containers+, Images+, Selector+"
_AUTOSCALED = "Name, Reference, Targets, MinPods, MaxPods, Replicas, Age"

PRINTERS = {
    ("apps", "deployments"): printer(
        "Name, Ready, Up-to-date, Available, Age, Containers+, Images+, Selector+", _deployment
    ),
    ("apps", "replicasets"): printer(_SCALED, _replicas),
    ("", "replicationcontrollers"): printer(_SCALED, _replicas),
    ("apps", "statefulsets"): printer("Name, Ready, Age, Containers+, Images+", _stateful_set),
    ("apps", "daemonsets"): printer(
        "Name, Desired:integer, Current:integer, Ready:integer, Up-to-date:integer, Available:integer, "
        "Node Selector, Age, Containers+, Images+, Selector+",
        _daemon_set,
    ),
    ("apps", "controllerrevisions"): printer("Name, Controller, Revision, Age", _revision),
    ("batch", "jobs"): printer(
        "Name, Status, Completions, Duration, Age, Containers+, Images+, Selector+", _job
    ),
    ("batch", "cronjobs"): printer(
        "Name, Schedule, Timezone, Suspend:boolean, Active:integer, Last Schedule, Age, "
        "Containers+, Images+, Selector+",
        _cron_job,
    ),
    ("autoscaling", "horizontalpodautoscalers"): printer(_AUTOSCALED, _autoscaler),
    ("policy", "poddisruptionbudgets"): printer(
        "Name, Min Available, Max Unavailable, Allowed Disruptions:integer, Age", _budget
    ),
}
