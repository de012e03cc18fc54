"""The client of the Kubernetes API, from `client.get(...)` down to bytes on a socket.

`client` holds `Client`, which reads and writes one cluster; `reader` holds the half that reads. `config`
finds the cluster in a kubeconfig or in the pod's service account. `dispatch` sends each call: through the
write gate, with the retries that `retry` allows, seen by observers. `discovery` maps kinds to what the
cluster serves, and `watch` turns a stream of bytes into typed events.

Below are two rooms: `http` carries requests over HTTP/1.1, and `auth` supplies the credentials and the TLS
trust that each request uses. Imports go down only: this package, then `http`, then `auth`, then resources and
errors.
"""
