"""Scheduler, kubelets and the node life cycle: from a new pod to its end."""
