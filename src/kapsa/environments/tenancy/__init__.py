"""Tenancy: the namespaces made for a resource, the Project an Environment belongs to, and the network a tenant may reach."""
