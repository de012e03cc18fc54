"""Telemetry: metrics, traces, logs, health probes, and a watchdog for the event loop."""
