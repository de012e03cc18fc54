"""The controllers of the embedded control plane: kube-controller-manager, kube-scheduler and the kubelets.

The logic of each kind is a pure function from objects to a `WritePlan`; a controller observes changes,
enqueues the objects they affect, and hands the plan to the `Executor`. The rooms, lowest first:

    machinery     queues, the view of the store, plans and their execution, Events, owner references
    nodes         scheduler, kubelets and the node life cycle
    workloads     Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs
    housekeeping  garbage collection, namespaces, service accounts, endpoints, volumes, disruption budgets

`manager` runs them all. A test controls pods and nodes through `kapsa.devcluster.workloads`.
"""
