"""What a test says about workloads: how long things take, and what goes wrong with which pods."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

__all__ = ["Behaviour", "Delays", "Workloads"]

Object = dict[str, Any]

Selector = str | Mapping[str, str]
"""A pod's name (with `*` and `?`, optionally as `namespace/name`), or labels it must carry."""


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that the steps of a pod's life take."""

    schedule: float = 0.0
    """From creation to a node."""
    start: float = 0.0
    """From a node to running containers: image pull and creation."""
    ready: float = 0.0
    """From running to Ready, on top of the readiness probe's initialDelaySeconds."""
    finish: float = 0.0
    """How long the pod of a Job runs before it succeeds."""
    terminate: float = 0.0
    """From the beginning of a deletion to the end of the containers."""


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """How one pod will act, put together from everything that was said about it."""

    delays: Delays = Delays()
    broken_images: tuple[str, ...] = ()
    exit_code: int | None = None
    """Set when its containers end by themselves, with this code."""
    exit_after: float = 0.0
    crashes: int | None = None
    """How many times they end like that before they stay up; None: for ever."""
    container: str = ""
    """The one container that crashes; empty: all of them."""
    message: str = ""
    unready: bool = False


class _Rule(msgspec.Struct, frozen=True):
    selector: Selector
    change: dict[str, object]


class Workloads:
    """The hand of a test on the nodes.

    ::

        cluster.workloads.delay(start=2, ready=1)
        cluster.workloads.fail_image("broken:*")
        cluster.workloads.crash("web-*", exit_code=137)
        cluster.workloads.crash({"job-name": "migrate"}, times=1)
        cluster.workloads.remove_node("node-1")
        cluster.workloads.logs("web-*", "listening on :8080\\n")

    What is said later wins; it also changes pods that run already. :meth:`heal` takes everything back.
    """

    def __init__(self) -> None:
        self._delays = Delays()
        self._rules: list[_Rule] = []
        self._images: list[str] = []
        self._logs: list[tuple[Selector, str]] = []
        self._gone: set[str] = set()
        self._listeners: list[Callable[[], None]] = []

    # -- what a test says ---------------------------------------------------------------------------------

    def delay(self, selector: Selector | None = None, **seconds: float) -> None:
        """Set delays (fields of :class:`Delays`) for all pods, or for some."""
        if selector is None:
            self._delays = msgspec.structs.replace(self._delays, **seconds)
        else:
            self._rules.append(_Rule(selector, {"delays": seconds}))
        self._changed()

    def fail_image(self, pattern: str) -> None:
        """Let the pull of matching images fail: ErrImagePull, then ImagePullBackOff."""
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
        """Let containers end with an error: CrashLoopBackOff where they are restarted, a failed pod where not.

        :param after: seconds they run first.
        :param times: how many times a container does so before it stays up; for ever by default.
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
        """Let containers end well, as those of Jobs do anyway."""
        self._rules.append(
            _Rule(selector, {"exit_code": 0, "exit_after": after, "crashes": None, "container": ""})
        )
        self._changed()

    def stay_unready(self, selector: Selector) -> None:
        """Let pods run but never pass their readiness probe."""
        self._rules.append(_Rule(selector, {"unready": True}))
        self._changed()

    def heal(self) -> None:
        """Forget every rule and bring every node back; the delays stay."""
        self._rules.clear()
        self._images.clear()
        self._gone.clear()
        self._changed()

    def remove_node(self, name: str) -> None:
        """Let a node vanish: its kubelet falls silent, it becomes NotReady, and its pods are evicted in time."""
        self._gone.add(name)
        self._changed()

    def restore_node(self, name: str) -> None:
        """Let a vanished node come back."""
        self._gone.discard(name)
        self._changed()

    def logs(self, selector: Selector, text: str) -> None:
        """What `kubectl logs` prints for matching pods."""
        self._logs.append((selector, text))

    # -- what the nodes ask -------------------------------------------------------------------------------

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a test says something new."""
        self._listeners.append(listener)

    def is_gone(self, node: str) -> bool:
        """Whether this node has vanished."""
        return node in self._gone

    def behaviour(self, pod: Object) -> Behaviour:
        """How this pod acts now."""
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
        """The canned log of a pod: the last text given for it."""
        for selector, text in reversed(self._logs):
            if selects(selector, pod):
                return text
        return ""

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()


def selects(selector: Selector, pod: Object) -> bool:
    metadata = pod["metadata"]
    if isinstance(selector, str):
        name = metadata["name"]
        if "/" in selector:
            name = f"{metadata['namespace']}/{name}"
        return fnmatch.fnmatchcase(name, selector)
    labels = metadata.get("labels") or {}
    return all(labels.get(key) == value for key, value in selector.items())
