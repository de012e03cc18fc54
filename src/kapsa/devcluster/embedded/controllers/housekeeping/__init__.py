"""The controllers that keep a cluster in order, from garbage collection to volumes."""
