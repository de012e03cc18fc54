"""Controllers: the way from a watch event through the work queue to a reconcile and its requests."""
