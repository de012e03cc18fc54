"""The declaration of an operator: its parts and settings, checked, without anything that runs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec
from prometheus_client.core import Metric

from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.client.client import Client
from kapsa.runtime.controller.controller import Controller, check_declaration
from kapsa.runtime.generate.crd import custom_resource_definitions, require_conversion
from kapsa.runtime.generate.rbac import ControllerRights, OperatorRights, WebhookRights
from kapsa.runtime.operator.clusters import ClusterProvider
from kapsa.runtime.operator.election import LeaderElection
from kapsa.runtime.operator.shard_leases import Sharding
from kapsa.runtime.resources.resource import CustomResource
from kapsa.runtime.webhooks.webhooks import Webhooks

__all__ = ["Collect", "Companion", "EveryReplica", "OperatorDeclaration"]

Collect: TypeAlias = Callable[[Cache], Iterable[Metric]]
"""Computes metrics of the operator's own from its cache, each time the metrics are scraped."""
Companion: TypeAlias = Callable[[Client], contextlib.AbstractAsyncContextManager[Any]]
"""Something that runs as long as the operator does.

Its client rejects writes while this process does not lead, as that of the controllers does; with sharding, while it
does not hold the first shard. For a companion that must write on every replica, wrap it in `EveryReplica`.
"""


class EveryReplica(msgspec.Struct, frozen=True):
    """A companion that writes on every replica, whether it leads or not.

    Several replicas may write at the same time: its writes must be harmless when repeated.
    """

    companion: Companion


class OperatorDeclaration:
    """The parts and settings of an operator, and the rights and CRDs that follow from them."""

    def __init__(
        self,
        *,
        controllers: Sequence[Controller[Any]],
        name: str = "",
        namespaces: Sequence[str] = (),
        leader_election: LeaderElection | str | None = None,
        sharding: Sharding | str | None = None,
        clusters: ClusterProvider | None = None,
        webhooks: Webhooks | None = None,
        collect: Collect | None = None,
        companions: Sequence[Companion | EveryReplica] = (),
        metrics_port: int | None = 8080,
        health_port: int | None = 8081,
        metrics_path: str = "/metrics",
        liveness_path: str = "/healthz",
        readiness_path: str = "/readyz",
        debug_port: int | None = None,
        host: str = "0.0.0.0",  # noqa: S104 - the kubelet and Prometheus come from outside the pod
        check_rights: bool = True,
        sync_timeout: float = 120.0,
        shutdown_grace: float = 30.0,
        loop_limit: float = 2.0,
    ) -> None:
        self.controllers = tuple(controllers)
        """The controllers to run."""
        for controller in self.controllers:
            check_declaration(controller)
        if isinstance(leader_election, str):
            leader_election = LeaderElection(name=leader_election)
        if isinstance(sharding, str):
            sharding = Sharding(name=sharding)
        self._named = bool(name)
        self.sharding = sharding
        """The name that the Leases begin with through which several active replicas share the keys, or all settings.

        None if one replica works on all keys.
        """
        self.leader_election = leader_election
        """The name of the lease, or all settings of the election.

        None if there is never more than one process.
        """
        self.name = name or self._default_name()
        """The reporter of events and the name of roles and registrations. Derived from the lease or the first
        controller if empty. If set, it is also the field manager of all writes."""
        self.namespaces = tuple(namespaces)
        """The namespaces to watch; all if empty."""
        self.clusters = clusters
        """The clusters that the controllers work in; None for the operator's own."""
        self.webhooks = webhooks
        """Validating, mutating and conversion webhooks, and the address they are served at."""
        self.collect = collect
        """Additional metrics: called with the cache on each scrape."""
        self.companions = tuple(companions)
        """Other things that run as long as the operator does, such as a server or a connection pool: functions
        from a client to an async context manager."""
        self.metrics_port = metrics_port
        """The port of the metrics: None to serve none, 0 for any free port."""
        self.health_port = health_port
        """The port of the probes. It may equal `metrics_port`."""
        self.metrics_path = metrics_path
        """The path of the metrics."""
        self.liveness_path = liveness_path
        """The path of the liveness probe."""
        self.readiness_path = readiness_path
        """The path of the readiness probe."""
        self.debug_port = debug_port
        """The port of the debug endpoint, which `kapsa inspect` reads, on the loopback interface only. None, the
        default, to serve none; 0 for any free port."""
        self.host = host
        """The address to listen on."""
        self.check_rights = check_rights
        """True to check the declared rights against the API server at start."""
        self.sync_timeout = sync_timeout
        """Seconds after which a watch that has not delivered its first list is reported."""
        self.shutdown_grace = shutdown_grace
        """Seconds that running reconciles get to finish at shutdown."""
        self.loop_limit = loop_limit
        """Seconds without progress after which the event loop is reported as blocked."""
        self._check_names()
        self._check_paths()
        self._check_exclusive()

    def _check_exclusive(self) -> None:
        if self.sharding is not None and self.leader_election is not None:
            raise ValueError(
                "leader_election has one replica work and sharding has all of them: pass one of the two"
            )
        if self.clusters is not None and self.webhooks is not None:
            raise ValueError(
                "webhooks are served to one cluster: run them in each cluster as an operator of their own, without "
                "`clusters`"
            )

    def _check_paths(self) -> None:
        paths = {
            "metrics": self.metrics_path,
            "liveness": self.liveness_path,
            "readiness": self.readiness_path,
        }
        for purpose, path in paths.items():
            if not path.startswith("/"):
                raise ValueError(f"{purpose} path must start with '/', got {path!r}")
        if self.debug_port and self.debug_port in (self.metrics_port, self.health_port):
            raise ValueError(
                f"debug_port {self.debug_port} is taken by the metrics or the probes: use another"
            )
        if len(set(paths.values())) < len(paths):
            raise ValueError(f"metrics and probes need a path each, got {', '.join(paths.values())}")

    def _default_name(self) -> str:
        lease = self.leader_election or self.sharding
        return lease.name if lease is not None else self._controllers_name()

    def _controllers_name(self) -> str:
        return f"{self.controllers[0].name}-operator" if self.controllers else "operator"

    def _check_names(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_./]{0,126}[A-Za-z0-9])?", self.name):
            raise ValueError(f"invalid operator name {self.name!r}: use letters, digits, dashes and dots")
        seen: set[str] = set()
        for controller in self.controllers:
            if controller.name in seen:
                raise ValueError(
                    f"two controllers are named {controller.name!r}: rename one, since metrics and finalizers "
                    "are identified by the name"
                )
            seen.add(controller.name)

    @property
    def field_manager(self) -> str:
        """The owner of the fields that this operator applies.

        The name if one is set, else derived from the first controller. It does not follow the lease: fields applied
        under another name would be left behind, with two owners.
        """
        return self.name if self._named else self._controllers_name()

    @property
    def resources(self) -> list[type[CustomResource[Any, Any]]]:
        """The custom resources that the operator reconciles or converts, each once: the source of the CRDs."""
        kinds: list[Any] = [controller.resource for controller in self.controllers]
        if self.webhooks is not None:
            kinds += self.webhooks.conversions.versions
        return list(
            dict.fromkeys(
                kind for kind in kinds if isinstance(kind, type) and issubclass(kind, CustomResource)
            )
        )

    def definitions(
        self,
        *,
        namespace: str = "",
        also: Iterable[type[CustomResource[Any, Any]]] = (),
        max_description_length: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the CRDs of all versions of the resources, and of the classes in `also`, with their conversion.

        `namespace` is the one that the operator runs in, NAME-system unless set. Descriptions are cut to
        `max_description_length`, or if that is None, to what `kubectl apply` accepts. Raises SchemaError if versions
        differ and no converter connects them: such a CRD would lose data.
        """
        conversion, converted = None, tuple[str, ...]()
        if self.webhooks is not None:
            conversion = self.webhooks.conversion_webhook(namespace or f"{self.name}-system")
            converted = self.webhooks.conversions.crds
        classes = dict.fromkeys((*self.resources, *also))
        crds = custom_resource_definitions(
            classes,
            conversion=conversion,
            converted=converted,
            max_description_length=max_description_length,
        )
        for crd in crds:
            require_conversion(crd)
        return crds

    def rights(self) -> OperatorRights:
        """Return the rights that this operator needs, derived from its declaration.

        If it has `clusters`, those that it needs in each cluster; `home_rights` are those in its own.
        """
        rights = self._rights(tuple(controller.rights() for controller in self.controllers))
        if self.clusters is None:
            return rights
        return msgspec.structs.replace(rights, lease="", sharded=False, cluster_uid=True)

    def home_rights(self) -> OperatorRights:
        """Return the rights that this operator needs in the cluster that it runs in."""
        if self.clusters is None:
            return self.rights()
        return msgspec.structs.replace(self._rights(()), events=False)

    def _rights(self, controllers: tuple[ControllerRights, ...]) -> OperatorRights:
        lease = self.leader_election or self.sharding
        return OperatorRights(
            controllers=controllers,
            namespaces=self.namespaces,
            lease=lease.name if lease is not None else "",
            lease_namespace=lease.namespace if lease is not None else "",
            sharded=self.sharding is not None,
            webhooks=self.webhooks.rights(self.name) if self.webhooks is not None else WebhookRights(),
        )
