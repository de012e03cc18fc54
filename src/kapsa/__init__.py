"""Kapsa: a Kubernetes operator platform in Python.

`kapsa.runtime`       the framework an operator is written with
`kapsa.environments`  the operator that gives every branch its own environment
`kapsa.fleet`         the manager that rolls operators out over many clusters
`kapsa.devcluster`    a Kubernetes control plane for development and tests
"""

__version__ = "0.1.0"
