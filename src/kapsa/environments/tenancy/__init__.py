"""Tenancy: the namespaces of resources, the Project of an Environment, and the reachable network."""
