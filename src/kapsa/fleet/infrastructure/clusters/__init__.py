"""Clusters: sessions over untrusted kubeconfigs.

- `gateway`: opens a session from a kubeconfig, with limits on connections, time and sizes.
- `kubeconfig_credential`: the id of a credential, and until when it is valid.
- `answers`: failures of a client in one sentence for people.
- `session`: the requests of one session.
- `service_account`: the account of this manager in a cluster, and its tokens.
- `inventory`: Helm releases and CRDs, and who else manages them.
- `clients`: long-lived clients of registered clusters.
"""
