"""A test's control over the embedded engine's pods and nodes: delays, crashes, lost nodes, logs."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

__all__ = ["Behaviour", "Delays", "Workloads"]

Object = dict[str, Any]

Selector = str | Mapping[str, str]
"""A pattern for a pod's name (with `*` and `?`, also as `namespace/name`), or the labels it must have."""


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that each phase of a pod takes."""

    schedule: float = 0.0
    """From creation to the binding to a node."""
    start: float = 0.0
    """From the binding to running containers: image pull and container creation."""
    ready: float = 0.0
    """From running to Ready, in addition to the readiness probe's initialDelaySeconds."""
    finish: float = 0.0
    """From the start of a Job's pod to its success."""
    terminate: float = 0.0
    """From the start of a deletion to the end of the containers."""


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """The behaviour of a pod: the sum of all rules that select it."""

    delays: Delays = Delays()
    broken_images: tuple[str, ...] = ()
    """Patterns of images whose pull fails."""
    exit_code: int | None = None
    """Exit code of the containers; None if they keep running."""
    exit_after: float = 0.0
    """Seconds that the containers run before they exit."""
    crashes: int | None = None
    """Number of exits before a container keeps running; None for no limit."""
    container: str = ""
    """Name of the container that exits; empty for all."""
    message: str = ""
    """Termination message."""
    unready: bool = False
    """True if the readiness probe never succeeds."""


class _Rule(msgspec.Struct, frozen=True):
    selector: Selector
    change: dict[str, object]


class Workloads:
    """A test's control over pods and nodes.

    ::

        cluster.workloads.delay(start=2, ready=1)
        cluster.workloads.fail_image("broken:*")
        cluster.workloads.crash("web-*", exit_code=137)
        cluster.workloads.crash({"job-name": "migrate"}, times=1)
        cluster.workloads.remove_node("node-1")
        cluster.workloads.logs("web-*", "listening on :8080\\n")

    Later rules override earlier ones, and they also apply to running pods. `heal` removes them all.
    """

    def __init__(self) -> None:
        self._delays = Delays()
        self._rules: list[_Rule] = []
        self._images: list[str] = []
        self._logs: list[tuple[Selector, str]] = []
        self._gone: set[str] = set()
        self._listeners: list[Callable[[], None]] = []

    # -- for tests ----------------------------------------------------------------------------------------

    def delay(self, selector: Selector | None = None, **seconds: float) -> None:
        """Set delays (fields of `Delays`) for all pods, or for those a selector matches."""
        if selector is None:
            self._delays = msgspec.structs.replace(self._delays, **seconds)
        else:
            self._rules.append(_Rule(selector, {"delays": seconds}))
        self._changed()

    def fail_image(self, pattern: str) -> None:
        """Make the pull of matching images fail: ErrImagePull, then ImagePullBackOff."""
        self._images.append(pattern)
        self._changed()

    def crash(
        self,
        selector: Selector,
        *,
        exit_code: int = 1,
        after: float = 0.0,
        times: int | None = None,
        container: str = "",
        message: str = "",
    ) -> None:
        """Make containers exit with an error: CrashLoopBackOff if they are restarted, a failed pod if not.

        They run for `after` seconds first. With `times`, a container keeps running after that number of
        crashes.
        """
        change: dict[str, object] = {
            "exit_code": exit_code,
            "exit_after": after,
            "crashes": times,
            "container": container,
            "message": message,
        }
        self._rules.append(_Rule(selector, change))
        self._changed()

    def finish(self, selector: Selector, *, after: float = 0.0) -> None:
        """Make containers exit with code 0, as those of Jobs do by default."""
        self._rules.append(
            _Rule(selector, {"exit_code": 0, "exit_after": after, "crashes": None, "container": ""})
        )
        self._changed()

    def stay_unready(self, selector: Selector) -> None:
        """Make pods run but never pass their readiness probe."""
        self._rules.append(_Rule(selector, {"unready": True}))
        self._changed()

    def heal(self) -> None:
        """Remove all rules and restore all nodes. The delays for all pods stay."""
        self._rules.clear()
        self._images.clear()
        self._gone.clear()
        self._changed()

    def remove_node(self, name: str) -> None:
        """Stop a node's kubelet: the node becomes NotReady, and its pods are evicted in time."""
        self._gone.add(name)
        self._changed()

    def restore_node(self, name: str) -> None:
        """Start a removed node's kubelet again."""
        self._gone.discard(name)
        self._changed()

    def logs(self, selector: Selector, text: str) -> None:
        """Set the text that `kubectl logs` prints for matching pods."""
        self._logs.append((selector, text))

    # -- for the engine -----------------------------------------------------------------------------------

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a test changes a rule."""
        self._listeners.append(listener)

    def is_gone(self, node: str) -> bool:
        """Return whether the node was removed."""
        return node in self._gone

    def behaviour(self, pod: Object) -> Behaviour:
        """Return the current behaviour of a pod."""
        fields: dict[str, object] = {}
        delays = self._delays
        for rule in self._rules:
            if not selects(rule.selector, pod):
                continue
            for field, value in rule.change.items():
                if field == "delays":
                    assert isinstance(value, dict)
                    delays = msgspec.structs.replace(delays, **value)
                else:
                    fields[field] = value
        return msgspec.structs.replace(Behaviour(delays=delays, broken_images=tuple(self._images)), **fields)

    def log_of(self, pod: Object) -> str:
        """Return the log of a pod: the last text that was set for it."""
        for selector, text in reversed(self._logs):
            if selects(selector, pod):
                return text
        return ""

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()


def selects(selector: Selector, pod: Object) -> bool:
    """Return whether a selector matches a pod."""
    metadata = pod["metadata"]
    if isinstance(selector, str):
        name = metadata["name"]
        if "/" in selector:
            name = f"{metadata['namespace']}/{name}"
        return fnmatch.fnmatchcase(name, selector)
    labels = metadata.get("labels") or {}
    return all(labels.get(key) == value for key, value in selector.items())
