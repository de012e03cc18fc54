"""Preflights on a cluster: dry runs of every object, rights, kinds, the size of the release, and the diff.

`manifest_trials` is the entry. It splits the manifest (`manifest_documents`), resolves kinds and namespaces
(`cluster_kinds`), tries each object (`object_trial`, `field_owners`), tries the CRDs of the
version (`crd_trial`), and asks for the rights that Helm needs (`rights`).
"""
