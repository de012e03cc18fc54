"""Systems outside the cluster, behind small interfaces that know neither environments nor fleets.

- `git`: repositories, listed and checked out by a hardened git.
- `oci`: image references, and clients of image registries.
- `helm`, `kustomize`: charts and kustomizations, rendered by the real tools; archives and repositories of charts.
- `manifests`: manifests read within limits, the pods in them, and the health of their objects.
- `http`: requests to servers that are not trusted.
- `process`: programs run within limits, the programs to run, and locks between processes.
- `secret_data`, `redaction`, `errors`: credentials in, secrets out, and what went wrong.
- `variables`: environment variables, read into settings.
- `testing`: a git server, an image registry and a chart repository on loopback.

Nothing that comes from outside is trusted: addresses, references and paths are checked before use, every read
has a limit, and no message contains a secret.
"""
