"""The environments operator: an isolated environment for each branch and pull request.

From the top down; a line imports only what is below it:

installation     the manifests that install the operator · testing stands in for parts of a cluster
operator         the composition root; `kapsa environments run`
controllers      one for each kind · admission checks the same rules in a webhook
steps            the twelve steps of an Environment, and its teardown
namespace_objects  the objects in an environment's namespace · step_run is the state of one run of the steps
render, build    from a commit to objects, and to an image
sources          repositories, polling, previews, trust
images           registries and retention
hosts            hosts, their pools, routes to them
tenancy          namespaces, ownership, network
ports            what is needed from outside the cluster, as protocols
metrics · settings · names · expiry
resources        the kinds: Project, Environment, DomainPool, Registry, PreviewEnvironment
"""
