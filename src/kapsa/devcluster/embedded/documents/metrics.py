"""Metrics of the server at `/metrics`, under the names and labels of kube-apiserver.

Each label has a bounded number of values, whatever clients send: a request for a resource that does not exist is not
counted, as in the real server. Two differences: a watch is counted when it begins, not when it ends, and requests that
the real server's filters reject, such as those without the right, are counted, too.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from operator import itemgetter
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
_Key = tuple[str, str, str, str, str, bool, bool, bool, int]
"""Verb, group, version, resource, subresource, with a name, with a namespace, dry run, status."""


class _Counter:
    """The requests of one key and their durations: one bucket for each bound, and one for longer requests."""

    __slots__ = ("buckets", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(_SECONDS) + 1)


class RequestMetrics:
    """Counters of the requests for resources. Counting one takes less than a microsecond; a scrape does the rest."""

    def __init__(self, registry: ResourceRegistry) -> None:
        self._registry = registry
        self._counters: dict[_Key, _Counter] = {}
        self._deprecated: set[tuple[str, str, str, str]] = set()
        self._reading = 0
        self._writing = 0

    def begin(self, verb: str) -> float:
        """Note that a request is being served. Returns its start for `end`."""
        if verb in _READS:
            self._reading += 1
        else:
            self._writing += 1
        return time.perf_counter()

    def end(self, started: float, request: Request, route: ResourceRoute, verb: str, status: int) -> None:
        """Count a request that was served or rejected."""
        seconds = time.perf_counter() - started
        if verb in _READS:
            self._reading -= 1
        else:
            self._writing -= 1
            if verb == "patch" and request.headers.get("content-type", "").startswith(_APPLY):
                verb = "apply"
        key = (
            verb,
            route.group,
            route.version,
            route.resource,
            route.subresource,
            bool(route.name),
            bool(route.namespace),
            "dryRun=" in request.query,
            status,
        )
        counter = self._counters.get(key)
        if counter is None:
            counter = self._new_counter(key)
            if counter is None:
                return
        counter.count += 1
        if verb != "watch":
            counter.seconds += seconds
            counter.buckets[bisect_left(_SECONDS, seconds)] += 1

    def _new_counter(self, key: _Key) -> _Counter | None:
        """Return a counter for a key; None if it names a resource that does not exist."""
        _, group, version, resource, subresource, *_ = key
        info = self._registry.find(group, version, resource)
        if info is None or (subresource and info.subresource(subresource) is None):
            return None
        if info.deprecation:
            self._deprecated.add((group, version, resource, subresource))
        counter = self._counters[key] = _Counter()
        return counter

    def lines(self) -> Iterator[str]:
        """Yield the lines of these metrics in Prometheus' text format."""
        yield from _family(
            "apiserver_request_total",
            "counter",
            "Counter of apiserver requests by verb, dry run value, group, version, resource, scope and response code.",
            (
                ({**_labels(_shown(key)), "code": str(key[-1])}, counter.count)
                for key, counter in sorted(self._counters.items(), key=itemgetter(0))
            ),
        )
        yield from self._duration_lines()
        yield from _family(
            "apiserver_current_inflight_requests",
            "gauge",
            "Number of requests that are being served, by kind.",
            [({"request_kind": "mutating"}, self._writing), ({"request_kind": "readOnly"}, self._reading)],
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
        bounds = [*(f"{bound:g}" for bound in _SECONDS), "+Inf"]
        durations = self._durations()
        if durations:
            yield from _head(name, "histogram", "Response latency in seconds, by what is requested.")
        for request, counters in sorted(durations.items()):
            labels = _labels(request)
            counts = list(accumulate(map(sum, zip(*(each.buckets for each in counters), strict=True))))
            for bound, count in zip(bounds, counts, strict=True):
                yield _sample(f"{name}_bucket", {**labels, "le": bound}, count)
            yield _sample(f"{name}_sum", labels, sum(each.seconds for each in counters))
            yield _sample(f"{name}_count", labels, counts[-1])

    def _durations(self) -> dict[_Request, list[_Counter]]:
        """Return the counters of each kind of request, one for each status. A watch has no duration."""
        durations: dict[_Request, list[_Counter]] = {}
        for key, counter in self._counters.items():
            if key[0] != "watch":
                durations.setdefault(_shown(key), []).append(counter)
        return durations


def _shown(key: _Key) -> _Request:
    """Return the labels of a key, as kube-apiserver writes them."""
    verb, group, version, resource, subresource, named, namespaced, dry_run, _ = key
    shown = _VERBS.get(verb) or verb.upper() or "other"
    scope = "resource" if named or verb == "create" else "namespace" if namespaced else "cluster"
    return shown, group, version, resource, subresource, scope, "All" if dry_run else ""


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
