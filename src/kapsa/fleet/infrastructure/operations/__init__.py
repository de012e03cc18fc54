"""Operations on managed clusters that are not Helm's.

- `cluster_operations`: the port `ClusterOperations`, composed of the parts below and of a health observer.
- `leased_clients`: clients whose writes stop with the lease and leave an audit entry.
- `release_objects`: the objects of the release that is deployed, from Helm's own record.
- `crds`: CRDs applied as a superset, their way back, and storage migration.
- `handover`: blue-green: controllers stopped and started, idle releases validated, webhooks switched.
"""
