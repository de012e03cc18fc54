"""Metrics of the server at `/metrics`, under the names and labels of kube-apiserver.

Each label has a bounded number of values, whatever clients send: a request for a resource that does not exist is not
counted, as in the real server. A watch is counted when it begins, the real server counts it when it ends.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path

from kapsa.devcluster.embedded.kinds.definitions import load
from kapsa.devcluster.embedded.kinds.registry import ResourceRegistry
from kapsa.devcluster.embedded.storage.store import ObjectStore
from kapsa.devcluster.wire.exchange import Reply, Request
from kapsa.devcluster.wire.routes import ResourceRoute

__all__ = ["RequestMetrics", "metrics"]

Labels = Mapping[str, str]
Sample = tuple[Labels, float]

_SECONDS = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0),
    *(3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
"""The bounds of the buckets of durations."""
_VERBS = {
    "create": "POST",
    "update": "PUT",
    "deletecollection": "DELETECOLLECTION",
}
_READS = frozenset({"get", "list", "watch"})
_APPLY = "application/apply-patch"
_HEADERS = {"content-type": "text/plain; version=0.0.4; charset=utf-8", "cache-control": "no-cache, private"}
_STARTED = time.time()

_Request = tuple[str, str, str, str, str, str, str]
"""Verb, group, version, resource, subresource, scope, dry run."""
_NAMES = ("verb", "group", "version", "resource", "subresource", "scope", "dry_run")


class RequestMetrics:
    """Counters of the requests for resources."""

    def __init__(self, registry: ResourceRegistry) -> None:
        self._registry = registry
        self._counts: dict[tuple[_Request, int], int] = {}
        self._durations: dict[_Request, list[float]] = {}
        self._deprecated: set[tuple[str, str, str, str]] = set()
        self._in_flight = {"mutating": 0, "readOnly": 0}

    def begin(self, verb: str) -> float:
        """Note that a request is being served. Returns its start for `end`."""
        self._in_flight["readOnly" if verb in _READS else "mutating"] += 1
        return time.perf_counter()

    def end(self, started: float, request: Request, route: ResourceRoute, verb: str, status: int) -> None:
        """Count a request that was served or rejected."""
        self._in_flight["readOnly" if verb in _READS else "mutating"] -= 1
        info = self._registry.find(route.group, route.version, route.resource)
        if info is None or (route.subresource and info.subresource(route.subresource) is None):
            return
        key = _key(request, route, verb)
        self._counts[key, status] = self._counts.get((key, status), 0) + 1
        if info.deprecation:
            self._deprecated.add((route.group, route.version, route.resource, route.subresource))
        if verb != "watch":
            self._observe(key, time.perf_counter() - started)

    def _observe(self, key: _Request, seconds: float) -> None:
        buckets = self._durations.get(key)
        if buckets is None:
            # One bucket for each bound, one for longer requests, and the sum.
            buckets = self._durations[key] = [0.0] * (len(_SECONDS) + 2)
        buckets[bisect_left(_SECONDS, seconds)] += 1
        buckets[-1] += seconds

    def lines(self) -> Iterator[str]:
        """Yield the lines of these metrics in Prometheus' text format."""
        yield from _family(
            "apiserver_request_total",
            "counter",
            "Counter of apiserver requests by verb, dry run value, group, version, resource, scope and response code.",
            (
                ({**_labels(key), "code": str(status)}, count)
                for (key, status), count in sorted(self._counts.items())
            ),
        )
        yield from self._duration_lines()
        yield from _family(
            "apiserver_current_inflight_requests",
            "gauge",
            "Number of requests that are being served, by kind.",
            (({"request_kind": kind}, count) for kind, count in self._in_flight.items()),
        )
        names = ("group", "version", "resource", "subresource")
        yield from _family(
            "apiserver_requested_deprecated_apis",
            "gauge",
            "Deprecated APIs that have been requested.",
            (
                ({**dict(zip(names, key, strict=True)), "removed_release": ""}, 1)
                for key in sorted(self._deprecated)
            ),
        )

    def _duration_lines(self) -> Iterator[str]:
        name = "apiserver_request_duration_seconds"
        if self._durations:
            yield from _head(name, "histogram", "Response latency in seconds, by what is requested.")
        bounds = [*(f"{bound:g}" for bound in _SECONDS), "+Inf"]
        for key, buckets in sorted(self._durations.items()):
            labels = _labels(key)
            counts = list(accumulate(buckets[:-1]))
            for bound, count in zip(bounds, counts, strict=True):
                yield _sample(f"{name}_bucket", {**labels, "le": bound}, count)
            yield _sample(f"{name}_sum", labels, buckets[-1])
            yield _sample(f"{name}_count", labels, counts[-1])


def _key(request: Request, route: ResourceRoute, verb: str) -> _Request:
    shown = _VERBS.get(verb) or verb.upper() or "other"
    if verb == "patch" and request.headers.get("content-type", "").startswith(_APPLY):
        shown = "APPLY"
    named = route.name or verb == "create"
    scope = "resource" if named else "namespace" if route.namespace else "cluster"
    dry_run = "All" if "dryRun=" in request.query else ""
    return shown, route.group, route.version, route.resource, route.subresource, scope, dry_run


def _labels(key: _Request) -> dict[str, str]:
    return {"component": "apiserver", **dict(zip(_NAMES, key, strict=True))}


def metrics(request: Request, requests: RequestMetrics, store: ObjectStore) -> Reply | None:
    """Serve `/metrics`."""
    if request.path != "/metrics" or request.method not in ("GET", "HEAD"):
        return None
    lines = [*requests.lines(), *_storage(store), *_build(), *_process(), ""]
    return Reply(status=200, headers=dict(_HEADERS), body="\n".join(lines).encode())


def _storage(store: ObjectStore) -> Iterator[str]:
    collections = sorted(store.collections(), key=lambda each: each.key)
    yield from _family(
        "apiserver_storage_objects",
        "gauge",
        "Number of stored objects by kind.",
        (
            ({"resource": f"{each.key[1]}.{each.key[0]}" if each.key[0] else each.key[1]}, len(each))
            for each in collections
        ),
    )
    yield from _family(
        "apiserver_resource_objects",
        "gauge",
        "Number of stored objects by group and resource.",
        (({"group": each.key[0], "resource": each.key[1]}, len(each)) for each in collections),
    )
    yield from _family(
        "apiserver_longrunning_requests",
        "gauge",
        "Number of open watches by group and resource.",
        (
            (
                {"component": "apiserver", "verb": "WATCH", "group": each.key[0], "resource": each.key[1]},
                each.watches,
            )
            for each in collections
            if each.watches
        ),
    )


def _build() -> Iterator[str]:
    version = load().version
    labels = {
        "major": version.major,
        "minor": version.minor,
        "git_version": f"{version.git_version}+kapsa",
        "git_commit": version.git_commit,
        "build_date": version.build_date,
        "platform": "python",
    }
    text = "The version of Kubernetes that this server behaves like."
    yield from _family("kubernetes_build_info", "gauge", text, [(labels, 1)])


def _process() -> Iterator[str]:
    times = os.times()
    used = times.user + times.system
    yield from _family("process_cpu_seconds_total", "counter", "CPU time of this process.", [({}, used)])
    text = "Start of this process, in seconds since 1970."
    yield from _family("process_start_time_seconds", "gauge", text, [({}, _STARTED)])
    memory = _resident_bytes()
    if memory is not None:
        text = "Resident memory of this process in bytes."
        yield from _family("process_resident_memory_bytes", "gauge", text, [({}, memory)])


def _resident_bytes() -> int | None:
    """Return the resident memory of this process; None where there is no /proc."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of a family; none if it has no samples."""
    lines = [_sample(name, labels, value) for labels, value in samples]
    if lines:
        yield from _head(name, kind, text)
        yield from lines


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _sample(name: str, labels: Labels, value: float) -> str:
    # No label needs escapes: names of resources and subresources, and constants.
    shown = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    number = f"{int(value)}" if value == int(value) else f"{value!r}"
    return f"{name}{{{shown}}} {number}" if shown else f"{name} {number}"
