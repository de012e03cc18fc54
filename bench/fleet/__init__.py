"""The fleet manager under load: managers as processes on one PostgreSQL, embedded clusters, and clients.

- `size`, `charts`: the sizes, and the operators.
- `repository_process`, `cluster_process`, `load_process`: programs that run next to the managers.
- `child_process`, `managers`, `calls`: how they are started, observed and called.
- `registration`: fills the managers with clusters, operators and releases.
- `measurement`: runs all of them, and reads what the managers use.
- `latencies`, `limits`: percentiles, and the targets that they are compared with.
"""
