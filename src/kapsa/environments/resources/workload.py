"""Settings of containers: variables, resources, ports, probes and scaling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import field

from kapsa.runtime import Field, IntOrString, Part, Quantity, rule

__all__ = [
    "Autoscaling",
    "EnvVar",
    "Port",
    "Probe",
    "Probes",
    "ResourceAmounts",
    "ResourceRequirements",
]


class EnvVar(Part):
    """An environment variable."""

    name: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=32768)] = ""
    """Value of the variable. Put secrets into a Secret instead."""


class ResourceAmounts(Part):
    """An amount of CPU, of memory and of storage on the disk of the node."""

    cpu: Quantity | None = None
    """CPU, such as 500m."""
    memory: Quantity | None = None
    """Memory, such as 512Mi."""
    ephemeral_storage: Quantity | None = None
    """Storage for logs, temporary files and the writable layer of the container, such as 2Gi."""


class ResourceRequirements(Part):
    """Resource requests and limits of a container."""

    requests: Annotated[Mapping[str, Quantity], Field(max_length=16)] = {}
    """Requested amounts of cpu, memory and ephemeral-storage."""
    limits: Annotated[Mapping[str, Quantity], Field(max_length=16)] = {}
    """Limits of cpu, memory and ephemeral-storage."""


class Port(Part):
    """A port that the application listens on."""

    name: Annotated[str, Field(min_length=1, max_length=15, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = (
        "http"
    )
    """Name of the port."""
    container_port: Annotated[int, Field(ge=1, le=65535)]
    """Port of the container."""
    service_port: Annotated[int, Field(ge=1, le=65535)] = 80
    """Port of the Service."""
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    """The transport protocol."""


class Probe(Part):
    """An HTTP health check."""

    path: Annotated[str, Field(max_length=1024, pattern=r"^/")] = "/"
    """Path of the request."""
    port: IntOrString | None = None
    """Number or name of the port. Defaults to the first port."""
    initial_delay_seconds: Annotated[int, Field(ge=0, le=3600)] = 0
    """Seconds before the first request."""
    period_seconds: Annotated[int, Field(ge=1, le=3600)] = 10
    """Seconds between two requests."""
    timeout_seconds: Annotated[int, Field(ge=1, le=600)] = 1
    """Seconds until a request times out."""
    failure_threshold: Annotated[int, Field(ge=1, le=100)] = 3
    """Number of consecutive failures after which the check fails."""


class Probes(Part):
    """The health checks of a container. One that is absent is not configured."""

    readiness: Probe | None = None
    """The check that decides whether the container receives requests."""
    liveness: Probe | None = None
    """The check that decides whether the container is restarted."""
    startup: Probe | None = None
    """The check that decides whether the container has started. The other checks wait for it."""


class Autoscaling(
    Part,
    rules=[
        rule(
            "self.minReplicas <= self.maxReplicas",
            "minReplicas must not be greater than maxReplicas",
            field_path=".minReplicas",
        )
    ],
):
    """Scaling of the number of replicas with the load."""

    enabled: bool = False
    """True to scale automatically; `replicas` is ignored then."""
    min_replicas: Annotated[int, Field(ge=1, le=100)] = 1
    """Minimum number of replicas."""
    max_replicas: Annotated[int, Field(ge=1, le=100)] = 3
    """Maximum number of replicas."""
    target_cpu_utilization: Annotated[int, Field(ge=1, le=100)] | None = field(
        default=None, name="targetCPUUtilization"
    )
    """Target utilization of the requested CPU in percent. Defaults to 80 if no target is set."""
    target_memory_utilization: Annotated[int, Field(ge=1, le=100)] | None = None
    """Target utilization of the requested memory in percent."""
