"""CRDs of operators: stored with every version, compared, judged by live resources, approved.

- `use_cases`: `Crds`, what the API calls.
- `requests`: the requests, and their results.
- `documents`: CRDs as JSON: the checks of one that a person stores, and the comparison of two.
- `live_verdict`: the resources of a cluster against a new schema.
- `cluster_changes`: the change that each cluster would see.
"""
