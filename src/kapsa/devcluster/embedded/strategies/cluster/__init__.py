"""The strategies of the kinds a cluster consists of: namespaces, nodes, storage, configuration, Events, Leases."""
