"""The manager's view of its own work: `rollout_metrics` and `registry_metrics` count it, `fleet_gauges` show its size.

No label has a name that a person or a cluster chose: the number of series is the same for one operator and for 100,000.
"""
