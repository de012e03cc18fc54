"""The way from a change in the cluster to the keys that must run."""
