"""Helm, kept away from clusters: it reaches them through a gate of this process only.

- `gated_helm`: the releases of all clusters, as the rollout engine uses them.
- `runner`: one run of the helm program, in a private home and within limits.
- `private_home`: the directory of one run, which has its values.
- `post_renderer`: the plugin that makes helm apply the approved manifest and nothing else.
- `gate`: the server on loopback that helm talks to.
- `gate_session`: one run's way through the gate: credential, lease, rules, and a record of each write.
- `busy_answers`: the answers of a busy API server, which the gate waits out in the place of helm.
- `gate_rules`: the requests that a run may make, and those that are changed on the way.
- `api_path`: the resource that the path of a request names.
- `history`: the revisions of a release, read from the Secrets that helm stores them in.
- `certificate`: the certificate of the gate.
"""
