"""The manager's view of its own work, for people who watch it.

`rollout_metrics`, `registry_metrics` and `fleet_gauges` are for Prometheus. No label has a name that a person or a
cluster chose: the number of series is the same for one operator and for 100,000. `rollout_traces` makes the spans of
deployments, and `spans` those below them, where the work is done. `rollout_telemetry` is all of it behind one port.
"""
