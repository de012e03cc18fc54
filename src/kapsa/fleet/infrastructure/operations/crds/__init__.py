"""CRDs on clusters.

- `superset`: a chart's CRD joined with the one that a cluster has, so that nothing is removed.
- `crd_record`: the note on a CRD of which chart it is from, and what was there before.
- `crd_plan`: the change of one CRD, decided before anything is written.
- `crd_changes`: the application of a chart's CRDs, and the way back.
- `storage_migration`: custom resources written again in the storage version.
"""
