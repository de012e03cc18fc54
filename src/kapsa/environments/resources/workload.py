"""What resources say about the containers that run for them: variables, resources, ports, probes, scaling."""

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
    """The variable's name."""
    value: Annotated[str, Field(max_length=32768)] = ""
    """Its value. What is secret belongs into a Secret instead."""


class ResourceAmounts(Part):
    """An amount of CPU and of memory."""

    cpu: Quantity | None = None
    """CPU, such as 500m."""
    memory: Quantity | None = None
    """Memory, such as 512Mi."""


class ResourceRequirements(Part):
    """What a container asks for, and what it may take at most."""

    requests: Annotated[Mapping[str, Quantity], Field(max_length=16)] = {}
    """What it asks for: cpu, memory, ephemeral-storage."""
    limits: Annotated[Mapping[str, Quantity], Field(max_length=16)] = {}
    """What it may take at most."""


class Port(Part):
    """A port that the application listens on."""

    name: Annotated[str, Field(min_length=1, max_length=15, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = (
        "http"
    )
    """The port's name."""
    container_port: Annotated[int, Field(ge=1, le=65535)]
    """The port in the container."""
    service_port: Annotated[int, Field(ge=1, le=65535)] = 80
    """The port of the Service in front of it."""
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    """The transport protocol."""


class Probe(Part):
    """How to ask an application over HTTP whether it is well."""

    path: Annotated[str, Field(max_length=1024, pattern=r"^/")] = "/"
    """The path that is asked for."""
    port: IntOrString | None = None
    """The port's number or name; the first port if absent."""
    initial_delay_seconds: Annotated[int, Field(ge=0, le=3600)] = 0
    """Seconds before the first request."""
    period_seconds: Annotated[int, Field(ge=1, le=3600)] = 10
    """Seconds from one request to the next."""
    timeout_seconds: Annotated[int, Field(ge=1, le=600)] = 1
    """Seconds that an answer may take."""
    failure_threshold: Annotated[int, Field(ge=1, le=100)] = 3
    """How many failures in a row count."""


class Probes(Part):
    """Which probes there are; one that is absent is not made."""

    readiness: Probe | None = None
    """Whether it takes requests."""
    liveness: Probe | None = None
    """Whether it must be restarted."""
    startup: Probe | None = None
    """Whether it has started; the others wait for it."""


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
    """How many replicas run, by how busy they are."""

    enabled: bool = False
    """Whether the number of replicas is adjusted; `replicas` is ignored then."""
    min_replicas: Annotated[int, Field(ge=1, le=100)] = 1
    """The least number of replicas."""
    max_replicas: Annotated[int, Field(ge=1, le=100)] = 3
    """The greatest number of replicas."""
    target_cpu_utilization: Annotated[int, Field(ge=1, le=100)] | None = field(
        default=None, name="targetCPUUtilization"
    )
    """The percentage of the requested CPU to aim at; 80 if neither target is given."""
    target_memory_utilization: Annotated[int, Field(ge=1, le=100)] | None = None
    """The percentage of the requested memory to aim at."""
