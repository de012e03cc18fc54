"""A Kubernetes control plane for development and tests: embedded in Python, or real.

DevCluster          a control plane that starts and stops: `async with DevCluster() as cluster`
Workloads           controls the embedded engine's pods and nodes: slow, crashing, unready, gone
FaultPlan           rules for requests that fail, in `kapsa.devcluster.faults`
VirtualClock        time that jumps to the next timer, with `VirtualTimeLoop` or `run_on_virtual_time`
DevClusterError     the base of the errors that starting a cluster raises, in `kapsa.devcluster.errors`

Inside, a room imports only rooms below it:

    cluster             starts and stops either engine
    envtest             programs that Go's envtest starts instead of the real ones
    embedded   real     the API server in this process; etcd, kube-apiserver and the rest as processes
    faults              plans for requests that fail, for both engines
    wire                HTTP, requests and replies, routes, status errors
"""

from kapsa.devcluster.clock import (
    ClusterClock,
    HostClock,
    VirtualClock,
    VirtualTimeLoop,
    run_on_virtual_time,
)
from kapsa.devcluster.cluster import DevCluster, ObjectChange, ObjectSnapshot
from kapsa.devcluster.errors import DevClusterError
from kapsa.devcluster.faults.plan import FaultPlan, FaultRule
from kapsa.devcluster.wire.authorization import AccessAttributes, AccessPolicy
from kapsa.devcluster.wire.exchange import ConnectionDroppedError, Reply, Request, RequestUser
from kapsa.devcluster.workloads import Behaviour, Delays, Workloads

__all__ = [
    "AccessAttributes",
    "AccessPolicy",
    "Behaviour",
    "ClusterClock",
    "ConnectionDroppedError",
    "Delays",
    "DevCluster",
    "DevClusterError",
    "FaultPlan",
    "FaultRule",
    "HostClock",
    "ObjectChange",
    "ObjectSnapshot",
    "Reply",
    "Request",
    "RequestUser",
    "VirtualClock",
    "VirtualTimeLoop",
    "Workloads",
    "run_on_virtual_time",
]
