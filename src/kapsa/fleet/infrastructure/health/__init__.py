"""Health of operators, read from their clusters.

- `observer`: the sweep of a cluster, and the reading of one release for the rollout engine.
- `cluster_facts`: the facts of one cluster, read once for all operators on it.
- `release_reader`: the deployed revision of a release, and the objects that it has.
- `workload_reader`: controllers, the pods at their current template, and Leases.
- `resource_reader`: custom resources, page by page.
- `webhook_prober`, `conversion_prober`: dry-run writes through the API server.
- `metrics`: the time of checks, and how many operators are healthy.
- `sample_objects`: objects for those writes.
- `certificate_reader`: when the certificates of webhooks expire.
- `drift_reader`: the fields of a release that somebody else has changed.
- `timed_calls`: the time of a call without the delays of retries.
"""
