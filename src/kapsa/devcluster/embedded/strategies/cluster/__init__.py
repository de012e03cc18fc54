"""The strategies of namespaces, nodes, storage, configuration, Events and Leases."""
