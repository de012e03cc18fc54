"""Operators: a declaration, and the process that runs it.

`OperatorDeclaration` (in `declaration`) holds what runs together: controllers, webhooks, leader election,
ports, but no state of a run. `Operator` (in `operator`) adds the ways to run it. `Operator.start` makes a
`RunningOperator` (in `lifecycle`), which puts the parts together, starts them in order and stops them in the
reverse order. The work in one cluster is a `ClusterRun` (in `cluster_run`). An operator with `clusters`, whose
providers are in `clusters`, has one for each member. `election` decides through a Lease which replica may write;
`shard_leases` lets several replicas share the keys through one Lease for each part of them.
`access_review` asks the API server at start for the declared rights and reports each one that is missing.
`entrypoint` is the program behind `kapsa run`.
"""
