"""The real engine: etcd, kube-apiserver and the rest as processes, built, started and supervised.

`control_plane` starts a cluster: `binaries` locates the executables and `build` builds missing ones,
`components` holds the command lines, `supervisor` runs the processes (in a child, `reaper`, that ends them
with us), and `bootstrap` creates the first objects. `kwok_stages` simulates the kubelets. `proxy` injects
faults in front of the API server.
"""
