"""The environments operator: an isolated environment for every branch and pull request, and staging and production alike.

The map, one noun a module:

Kinds            resources (Project, Environment, DomainPool, Registry, PreviewEnvironment)
Naming           names · settings · metrics
Reconciling      controllers, one for each kind · steps that an Environment goes through
What they use    domains (hosts) · repository and git (source) · image_registry, build (images) · render (manifests)
Running          operator (the composition root); `kapsa environments run`
"""
