"""The embedded engine: a Kubernetes API server with its controllers in one Python process.

`server.Server.handle` takes a request and returns a reply; `kapsa.devcluster.wire.listener` serves it on a socket, and
tests call it directly. A folder imports only folders below it:

    server          the entry point: fault plan, admission chain, routing
    controllers     garbage collection, workloads, scheduling, nodes: clients in this process
    custom          CustomResourceDefinitions become served resources
    endpoints       routes a request about a resource to its verb
    documents       discovery, OpenAPI, health and version
    bootstrap       the namespaces of a new cluster
    replies         negotiation, encoding, tables
    verbs           create, update, patch, delete, list and watch; the only way into the store
    admission       namespace lifecycle, built-in plugins, policies, webhooks
    authentication  the user of a request: by token, certificate, impersonation
    authorization   RBAC: decisions, rules, escalation checks
    backend         the state of one server: store, registry, clock, admission chain
    strategies      defaults and validation of each kind
    apply           server-side apply, field managers, patches
    requests        parameters, writes and deletions as typed values
    expressions     the CEL environments of admission policies
    codec           between bytes and objects, in the forms that kube-apiserver reads, writes and stores
    kinds           the served resources, their schemas and names
    storage         objects, revisions and the windows of changes

`data/` holds the definitions of the built-in kinds, generated from a real server.
"""
