"""CRDs and custom resources of clusters."""
