"""Telemetry: what an operator reports about itself.

`metrics` holds one Prometheus registry per running operator, with the counters and histograms of `series`;
`health` serves it together with the liveness and readiness probes; `tracing` records a span for each run and
each of its requests where OpenTelemetry is set up; `logs` configures structlog; `loop_watch` reports an event
loop that is blocked. Nothing here imports a controller or the cache: they call the telemetry, and it reads
their state through small protocols.
"""
