"""Authentication: the credentials and the TLS trust for one cluster.

`access` holds `ClusterAccess`: the address of the API server and what each request to it carries.
`credentials` holds those that are written down as values or files, `exec_plugin` those that a command prints,
`oidc` those that an OpenID Connect issuer renews. `kubeconfig` reads and merges kubeconfig files; `untrusted`
accepts a kubeconfig from somebody else and rejects everything in it that could harm this machine. `tls`
builds TLS contexts.
"""
